"""Invariants of what was recorded: the expected ranks, steps and microbatches, and the same on all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final

from detlab.checks.trace.survey import RankSurvey
from detlab.checks.trace.told import Breach, Holds, Skipped, Subject, Told, on_ranks
from detlab.errors import InputError
from detlab.run import spans
from detlab.store import Selection
from detlab.text import plural

_MOST_EXPECTED: Final = 1_000_000
"""Numbers that an expectation may list; a larger one was mistyped."""


def ranks_are_there(subject: Subject) -> Told:
    """TRC006: the ranks that were asked for, that the recorder was to record, or all of the run."""
    recorded = {each.rank for each in subject.surveys}
    left_out = set(subject.run.left_out_ranks)
    if subject.run.manifest.world_size > _MOST_EXPECTED:
        yield Breach(f"a world of {subject.run.manifest.world_size:,} ranks is damage", sorted(recorded))
        return
    expected, reason = _expected_ranks(subject)
    missing = sorted(expected - recorded - left_out)
    if missing:
        found = f"{len(missing)} of {len(expected)} ranks have no trace: {spans(missing)}"
        yield Breach(found, missing, len(missing), expected=f"ranks {spans(sorted(expected))} ({reason})")
    elif expected:
        yield Holds(f"{len(expected & recorded)} of {len(expected)} ranks ({reason})")
    if not expected:
        yield Skipped("TRC006", f"{subject.format} does not say how many ranks there were: say expect_ranks")
    if left_out:
        yield Skipped(f"TRC006: ranks {spans(sorted(left_out))}", "left out by request")
    silent = set(range(subject.run.manifest.world_size)) - expected - recorded - left_out
    if silent and expected:
        yield Skipped(f"TRC006: ranks {spans(sorted(silent))}", f"not expected: {reason}")


def _expected_ranks(subject: Subject) -> tuple[set[int], str]:
    if not subject.expect_ranks.takes_all:
        return _listed(subject.expect_ranks, "ranks"), "expected by request"
    every = set(range(subject.run.manifest.world_size))
    selected = _selection(subject, "ranks")
    if selected is not None and not selected.takes_all:
        return {rank for rank in every if rank in selected}, "those that the recorder was to record"
    return (set(), "") if subject.format == _WORLDLESS else (every, "all of the run")


_WORLDLESS: Final = "rank-local JSONL"
"""The format whose records do not say how many ranks trained."""


def steps_are_there(subject: Subject) -> Told:
    """TRC007: every rank has the steps that were expected, or those that any rank has."""
    left_out = set(subject.run.left_out_steps)
    steps = {each.rank: {step for step in each.trace.steps if step >= 0} for each in subject.surveys}
    common = set().union(*steps.values())
    expected = common | (_expected_steps(subject) - left_out)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, seen in steps.items():
        groups[tuple(sorted(common - seen))].append(rank)
    for missing, ranks in sorted(groups.items()):
        if missing:
            found = f"steps {spans(list(missing))} missing {on_ranks(ranks)}"
            yield Breach(found, ranks, len(missing), expected=f"steps {spans(sorted(common))} on every rank")
    nowhere = sorted(expected - common)
    if nowhere:
        by_request = not subject.expect_steps.takes_all
        wanted = "by request" if by_request else "by the recorder's selection; the run may have ended before"
        found = f"steps {spans(nowhere)} on no rank, expected {wanted}"
        yield Breach(found, list(steps), len(nowhere), severity="" if by_request else "warning")
    if len(groups) == 1 and () in groups and not nowhere:
        yield Holds(f"{plural('step', len(common))} {spans(sorted(common))} {on_ranks(groups[()])}")
    if left_out:
        yield Skipped(f"TRC007: steps {spans(sorted(left_out))}", "left out by request")


def _expected_steps(subject: Subject) -> set[int]:
    if not subject.expect_steps.takes_all:
        return _listed(subject.expect_steps, "steps")
    selected = _selection(subject, "steps")
    bounded = selected is not None and sum(last - first for first, last in selected.ranges) < _MOST_EXPECTED
    return _listed(selected, "steps") if selected is not None and bounded else set()


def _selection(subject: Subject, name: str) -> Selection | None:
    """Give what the recorder was to record; None where the trace does not say it."""
    text = subject.recorder.get(name)
    try:
        return Selection.parse(text or None, name) if isinstance(text, str) else None
    except InputError:  # the manifest is a file, and may hold anything
        return None


def _listed(selection: Selection, what: str) -> set[int]:
    if sum(last - first for first, last in selection.ranges) >= _MOST_EXPECTED:
        raise InputError(f"{selection.text} are more {what} than anybody records.", f"expect fewer {what}")
    return {number for first, last in selection.ranges for number in range(first, last + 1)}


def microbatches_agree(subject: Subject) -> Told:
    """TRC008: in a step that every rank has whole, the ranks have the same microbatches."""
    seen: dict[int, dict[int, Collection[int]]] = defaultdict(dict)
    for each in subject.readable:
        for step in each.whole_steps:
            if each.microbatches.get(step):
                seen[step][each.rank] = each.microbatches[step]
    broken = False
    for step, by_rank in sorted(seen.items()):
        every = set().union(*by_rank.values())
        short = [rank for rank, numbers in by_rank.items() if set(numbers) != every]
        if short:
            broken = True
            lost = sorted(every - set(by_rank[short[0]]))
            found = f"microbatches {spans(lost)} of step {step} are missing {on_ranks(short)}"
            yield Breach(found, short, len(short), expected=f"microbatches {spans(sorted(every))}")
            return
    if not seen:
        yield Skipped("TRC008", "no call says which microbatch it belongs to")
    elif not broken:
        yield Holds(f"{_numbers(seen)} in steps {spans(sorted(seen))}")


def _numbers(seen: dict[int, dict[int, Collection[int]]]) -> str:
    every = sorted({number for by_rank in seen.values() for its in by_rank.values() for number in its})
    return f"{plural('microbatch', 1) if len(every) == 1 else 'microbatches'} {spans(every)} on every rank"


def whole_steps(surveys: Collection[RankSurvey]) -> set[int]:
    """Give the steps that end inside the trace of every one of some ranks."""
    return set.intersection(*(set(each.whole_steps) for each in surveys)) if surveys else set()


COVERAGE: Final[dict[str, Callable[[Subject], Told]]] = {
    "TRC006": ranks_are_there,
    "TRC007": steps_are_there,
    "TRC008": microbatches_agree,
}
"""How each of these invariants is looked at."""

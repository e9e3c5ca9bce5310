"""Invariants of the evidence: nothing pending or hashed too early, digests of one kind, outputs known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final

from detlab.checks.trace.told import Breach, Holds, Skipped, Subject, Told, added_up, flagged, on_ranks
from detlab.comparison.text import PROVES
from detlab.schema import Evidence, Kind
from detlab.text import plural, shorten


def nothing_is_pending(subject: Subject) -> Told:
    """TRC011: every collective that began has a result."""
    ranks, num, first = flagged(subject, "pending")
    if num:
        found = f"{num:,} {plural('collective', num)} {on_ranks(ranks)} never waited for while the trace ran"
        yield Breach(found, ranks, num, first)
    total = _num_collectives(subject)
    if total and not num:
        yield Holds(f"{total:,} {plural('collective', total)} have a result")
    if not total:
        yield Skipped("TRC011", "the trace shows no collective")


def _num_collectives(subject: Subject) -> int:
    """Count the calls that communicate; their kinds are read, for messages have no communicator."""
    return sum(
        int((columns["kind"] == Kind.COLLECTIVE).sum())
        for each in subject.readable
        for _, columns in each.trace.blocks(0, each.trace.num_events, ("kind",))
    )


def hashed_in_time(subject: Subject) -> Told:
    """TRC012: no result was hashed before it was there, and no array of addresses for its values."""
    names = {name: None for each in subject.readable for name in each.early}
    is_clean = True
    for name in names:
        found = [(each.rank, each.early[name]) for each in subject.readable if each.early[name].num]
        ranks, num, first = added_up(found)
        if num:
            is_clean = False
            yield Breach(f"{num:,} {name} {on_ranks(ranks)}", ranks, num, first)
    if is_clean and subject.readable:
        total = sum(each.num_events for each in subject.readable)
        yield Holds(
            f"none of {total:,} events carries a mark of it; what the tracer does not mark is not seen"
        )


def outputs_are_known(subject: Subject) -> Told:
    """TRC013: calls that compute something have evidence of what they gave."""
    total = sum(each.num_computing for each in subject.readable)
    ranks, num, first = flagged(subject, "no_output")
    if num:
        severity = "error" if num == total else ""
        found = f"{num:,} of {total:,} computing calls {on_ranks(ranks)} have no evidence of their outputs"
        yield Breach(found, ranks, num, first, severity=severity)
    elif total:
        yield Holds(f"all {total:,} computing calls", _levels(subject))
    if not total:
        yield Breach("no call computes anything", severity="error")


def _levels(subject: Subject) -> str:
    """Give what equality of outputs rests on, the strongest first."""
    levels: Counter[Evidence] = sum((each.levels for each in subject.readable), Counter())
    if len(levels) == 1:
        return PROVES[next(iter(levels))]
    return ", ".join(f"{levels[level]:,} {level.name.lower()}" for level in sorted(levels, reverse=True))


def inputs_are_known(subject: Subject) -> Told:
    """TRC014: calls that compute something have evidence of what they read."""
    total = sum(each.num_computing for each in subject.readable)
    ranks, num, first = flagged(subject, "no_input")
    silent = [each.rank for each in subject.readable if not each.takes_inputs]
    if num:
        found = f"{num:,} of {total:,} computing calls {on_ranks(ranks)} have no evidence of their inputs"
        yield Breach(found, ranks, num, first)
    elif silent:
        yield Breach(f"no call {on_ranks(silent)} lists an input", silent, len(silent))
    ranks, opened, first = flagged(subject, "open_input")
    if opened:
        found = f"{opened:,} of {total:,} computing calls {on_ranks(ranks)} have inputs that are not recorded"
        yield Breach(found, ranks, opened, first, severity="note", then=_OPEN)
    if total and not num and not silent:
        part = f"{total - opened:,} of {total:,}" if opened else f"all {total:,}"
        yield Holds(f"{part} computing calls; those are closed but for what the tracer does not know")


_OPEN: Final = "nothing: such a call is judged unknown, not as an origin; detlab.Recorder folds scalars in"


def one_algorithm(subject: Subject) -> Told:
    """TRC015: all ranks made their digests with one algorithm."""
    by_rank = {each.rank: frozenset(each.algorithms) for each in subject.readable if each.algorithms}
    kinds: dict[frozenset[str], list[int]] = defaultdict(list)
    for rank, algorithms in by_rank.items():
        kinds[algorithms].append(rank)
    every = sorted(set().union(*by_rank.values()))
    names = ", ".join(map(shorten, every))
    if len(kinds) > 1:
        told = "; ".join(f"{', '.join(sorted(its))} {on_ranks(ranks)}" for its, ranks in kinds.items())
        yield Breach(f"other digests on other ranks: {shorten(told, 300)}", sorted(by_rank), len(kinds))
    elif len(every) > 1:
        found = f"{len(every)} kinds of digests: {names}; each call is compared with its own kind alone"
        yield Breach(found, sorted(by_rank), len(every), severity="note")
    elif every:
        yield Holds(f"{names} {on_ranks(list(by_rank))}")
    else:
        yield Skipped("TRC015", "no call has a digest")


def digests_are_strong(subject: Subject) -> Told:
    """TRC016: no digest is blind to much of what could have changed."""
    for name, side in (("weak_input", "inputs"), ("weak_output", "outputs")):
        ranks, num, first = flagged(subject, name)
        if num:
            total = sum(each.num_events for each in subject.readable)
            yield Breach(
                f"{num:,} of {total:,} calls {on_ranks(ranks)} have weak digests of {side}", ranks, num, first
            )
    if not any(each.weak_input.num or each.weak_output.num for each in subject.readable) and subject.readable:
        yield Holds("no digest is marked as weak", _levels(subject))


EVIDENCE: Final[dict[str, Callable[[Subject], Told]]] = {
    "TRC011": nothing_is_pending,
    "TRC012": hashed_in_time,
    "TRC013": outputs_are_known,
    "TRC014": inputs_are_known,
    "TRC015": one_algorithm,
    "TRC016": digests_are_strong,
}
"""How each of these invariants is looked at."""

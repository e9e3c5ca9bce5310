"""Invariants of the files and of the order in them: nothing cut, nothing damaged, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detlab.checks.trace.survey import RankSurvey
from detlab.checks.trace.told import Breach, Holds, Subject, Told, flagged, on_ranks
from detlab.errors import TraceError
from detlab.run import spans
from detlab.store import NameFile, RankTrace
from detlab.store.reader import rebuild_index
from detlab.text import plural

_GAPS_ARE_LEGAL: Final = "rank-local JSONL"
"""The one format whose writer may leave numbers out."""

_SHOWN: Final = 4


def files_are_whole(subject: Subject) -> Told:
    """TRC001: no file is cut, and no reader met a record that it could not use."""
    known = [(each.rank, problem) for each in subject.surveys for problem in each.trace.problems]
    told = {problem for _, problem in known}
    for rank, problem in known:
        yield Breach(problem, [rank])
    for problem in subject.run.problems:
        if problem not in told:
            yield Breach(problem)
    for each in subject.surveys:
        if not each.trace.complete and not each.trace.problems:
            yield Breach(f"rank {each.rank} did not close its trace", [each.rank])
    if not subject.run.problems and all(each.trace.complete for each in subject.surveys):
        num = sum(each.trace.num_events for each in subject.surveys)
        ranks = [each.rank for each in subject.surveys]
        yield Holds(f"{num:,} events {on_ranks(ranks)}, to the end of every file")


def index_agrees(subject: Subject) -> Told:
    """TRC002: the segments hash to what the index says of them."""
    whole: list[RankTrace] = []
    for each in subject.readable:
        try:
            _verify(each.trace)
        except TraceError as error:
            yield Breach(error.finding, [each.rank])
        else:
            whole.append(each.trace)
    for each in subject.surveys:
        if each.damage and not _names_problem(each):
            yield Breach(each.damage, [each.rank])
    if whole:
        num = sum(len(trace.index) for trace in whole)
        yield Holds(f"{num:,} segments {on_ranks([trace.header.rank for trace in whole])}")


def _verify(trace: RankTrace) -> None:
    """Hash every batch again; only where that is not what the index says is the segment looked for."""
    found, _ = rebuild_index(trace.events, trace.names)
    names = ["identity", "values", "num_rows"]
    if len(found) != len(trace.index) or any((found[name] != trace.index[name]).any() for name in names):
        trace.check(np.arange(len(trace.index)))


def names_are_whole(subject: Subject) -> Told:
    """TRC003: the name tables make sense to their end, and hold every id that an event uses."""
    whole: list[int] = []
    for each in subject.surveys:
        if problem := _names_problem(each):
            yield Breach(problem, [each.rank])
        elif not each.damage:
            whole.append(each.rank)
    if whole:
        num = sum(len(each.trace.names.callees) for each in subject.readable)
        yield Holds(f"{num:,} callees {on_ranks(whole)}")


def _names_problem(each: RankSurvey) -> str:
    names = each.trace.names
    return names.problem if isinstance(names, NameFile) else ""


def numbers_are_whole(subject: Subject) -> Told:
    """TRC004: no sequence number stands twice, and none is missing inside a step."""
    for each in subject.readable:
        if each.repeated:
            found = f"number {each.repeated[0]} stands twice on rank {each.rank}"
            yield Breach(found, [each.rank], len(each.repeated))
    yield from _missing_numbers(subject)
    clean = [each for each in subject.readable if not each.repeated and not _gaps(subject, each)]
    if clean:
        ranks = [each.rank for each in clean]
        said = "unique and ascending; gaps are legal in this format" if _may_have_gaps(subject) else ""
        yield Holds(f"{said or 'unique and without a gap'} {on_ranks(ranks)}")


def _may_have_gaps(subject: Subject) -> bool:
    return subject.format == _GAPS_ARE_LEGAL


def _gaps(subject: Subject, each: RankSurvey) -> list[tuple[int, int, bool]]:
    """Give the gaps that say something: not those between steps when steps were left out by request."""
    if _may_have_gaps(subject):
        return []
    return [gap for gap in each.gaps if gap[2] or not subject.run.left_out_steps]


def _missing_numbers(subject: Subject) -> Told:
    """Say which numbers are missing.

    In detlab's own files a batch is sealed by its index, so that there a missing number is a call that
    began and raised. Between steps a tracer may have counted calls that it was not asked to write.
    """
    for each in subject.readable:
        gaps = _gaps(subject, each)
        if not gaps:
            continue
        num = sum(last - first + 1 for first, last, _ in gaps)
        listed = ", ".join(_range(first, last) for first, last, _ in gaps[:_SHOWN])
        more = f" and {len(gaps) - _SHOWN} more gaps" if len(gaps) > _SHOWN else ""
        is_sealed = isinstance(each.trace.names, NameFile) and each.trace.complete
        is_weak = is_sealed or not any(inside for *_, inside in gaps)
        why = ": calls that began and raised, for the files are whole" if is_sealed else ""
        found = f"{num:,} {plural('number', num)} missing on rank {each.rank}: {listed}{more}{why}"
        yield Breach(found, [each.rank], num, severity="warning" if is_weak else "")


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def steps_go_on(subject: Subject) -> Told:
    """TRC005: in the order in which calls began, no step follows a later one."""
    for each in subject.readable:
        if each.turns:
            step, following = each.turns[0]
            yield Breach(
                f"step {following} follows step {step} on rank {each.rank}", [each.rank], len(each.turns)
            )
    clean = [each.rank for each in subject.readable if not each.turns]
    if clean:
        yield Holds(f"steps {spans(subject.run.steps)} {on_ranks(clean)} stand in their order")


def sites_are_unique(subject: Subject) -> Told:
    """TRC017: no two calls of a rank have one site."""
    ranks, num, first = flagged(subject, "twins")
    if num:
        yield Breach(f"{num:,} {plural('call', num)} {on_ranks(ranks)} repeat a site", ranks, num, first)
    clean = [each.rank for each in subject.readable if not each.twins.num]
    if clean:
        yield Holds(f"every site is there once {on_ranks(clean)}")


FILES: Final[dict[str, Callable[[Subject], Told]]] = {
    "TRC001": files_are_whole,
    "TRC002": index_agrees,
    "TRC003": names_are_whole,
    "TRC004": numbers_are_whole,
    "TRC005": steps_go_on,
    "TRC017": sites_are_unique,
}
"""How each of these invariants is looked at."""

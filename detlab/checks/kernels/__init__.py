"""Did both runs choose the same kernels: selection (another algorithm or configuration), or execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from detlab.checks.kernels.attributes import attribute_choices
from detlab.checks.kernels.calls import RankCalls, calls_by_rank
from detlab.checks.kernels.findings import MORE_COLUMNS, ambiguous, execution, selection, within_run
from detlab.checks.kernels.instruments import NAMES_ALONE, believe
from detlab.checks.kernels.joining import Joined, join
from detlab.checks.kernels.pairing import Entry, Pair, pair_choices
from detlab.checks.kernels.shapes import seen_at, untold
from detlab.checks.kernels.verified import one_sided, verified_agreement, verified_choices
from detlab.checks.kernels.within import Agreement, agreement
from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.readers.choices import Choices, read_choices
from detlab.run import Run, spans
from detlab.text import plural

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

__all__ = ["check_kernels"]

Source = Run | Choices | str | PathLike[str] | Sequence[str | PathLike[str]]


def check_kernels(a: Source, b: Source, cmp: Comparison | None = None) -> CheckResult:
    """Ask whether both runs chose the same kernels, and what came of it where they did not.

    The same choice and other bits: the difference is made inside the kernel (execution). Another choice: the
    autotuner or the heuristic (selection). A different choice is an error only where the comparison shows
    other bits for equal inputs at that call; without a comparison it is a warning.

    Parameters
    ----------
    a, b
        What tells the choices of each run, see `detlab.readers.choices.read_choices`: a log, profile or
        cache, a folder of them with a file a rank, several of these, or a run whose calls carry what was
        chosen.
    cmp
        The comparison of the two runs. Choices are joined to its calls, and those that its calls carry are
        read from it.

    Returns
    -------
    Its findings have the columns of every check and those of `MORE_COLUMNS`. The ``component`` is
    ``selection``, ``execution``, ``selection or execution`` (no source tells which algorithm ran), or ``ranks
    of a`` and ``ranks of b`` (ranks of one run chose differently).

    Raises
    ------
    InputError
        There is nothing at a place.
    """
    told = [read_choices(each) for each in (a, b)]
    traced = [read_choices(each) for each in (cmp.a, cmp.b)] if cmp is not None else []
    frames = [_without_calls(each.frame) if traced else each.frame for each in told]
    frames[1], strangers = _as_ranks_of_a(frames[1], cmp)
    paired = pair_choices(*frames)
    calls = calls_by_rank(cmp) if cmp is not None else {}
    believed = believe(paired.pairs, frames, calls)
    joins = join(believed.pairs, calls)
    joined = [*(attribute_choices(cmp) if cmp is not None else ()), *joins.joined]
    recorded = [each.pair for each in joined if each.pair.entry.source == "trace"]
    pairs = [*recorded, *believed.pairs]
    agreements = [_agreement(each, own) for each, own in zip(frames, traced or (None, None), strict=True)]
    rows = [*selection(pairs, joined), *_compared(cmp, joined, calls)]
    for run, each in zip("ab", agreements, strict=True):
        rows += within_run(each, run)
    rows = [{**row, "comparison_findings": _findings_at(cmp, row["sites"])} for row in rows]
    not_checked = [*paired.not_checked, *believed.not_checked, *one_sided(pairs), *ambiguous(joined)]
    not_checked += strangers + _not_told(told) + _unjoined(cmp, joins.without_call, bool(pairs))
    return CheckResult(
        check="kernels",
        subjects=tuple(each.label for each in told),
        findings=findings_frame(rows, MORE_COLUMNS),
        verified=_verified(pairs, agreements),
        not_checked=tuple(NotChecked(what, why) for what, why in not_checked),
        problems=(*_problems(told), *_silent(frames, recorded), *_same_place(a, b)),
        notes=(*believed.notes, *_notes(told, cmp)),
    )


def _without_calls(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out what calls carry: a comparison pairs them better than their numbers do."""
    return frame.filter(pl.col("source") != "trace")


def _as_ranks_of_a(frame: pl.DataFrame, cmp: Comparison | None) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    """Give ranks of run b the numbers that run a has at their places, where a comparison pairs other ones."""
    numbers = {rank.source_b.header.rank: rank.rank for rank in cmp.ranks} if cmp is not None else {}
    if all(theirs == mine for theirs, mine in numbers.items()):
        return frame, []
    known = frame.filter(pl.col("rank").is_null() | pl.col("rank").is_in(list(numbers)))
    lost = sorted(set(frame["rank"].drop_nulls()) - set(numbers))
    why = "the comparison has no place for them in run a"
    strangers = [(f"{plural('rank', len(lost))} {spans(lost)} of b", why)] if lost else []
    return known.with_columns(pl.col("rank").replace_strict(numbers, default=None)), strangers


def _agreement(frame: pl.DataFrame, traced: Choices | None) -> dict[str, Agreement]:
    """Ask whether the ranks of one run agree; names alone are not asked."""
    kept = frame.filter(~pl.col("source").cast(pl.String).is_in(NAMES_ALONE))
    return agreement(kept if traced is None else pl.concat([kept, traced.frame]))


def _compared(
    cmp: Comparison | None, joined: Sequence[Joined], calls: Mapping[int, RankCalls]
) -> Iterator[dict[str, Any]]:
    """Give what a comparison adds: the same choice with other bits, and products of which no log tells."""
    if cmp is not None:
        yield from execution(joined, seen_at(cmp, calls, {site for each in joined for site in each.sites}))
        known = {site for each in joined if not each.is_ambiguous for site in each.sites}
        yield from untold(cmp, calls, known)


def _verified(pairs: Sequence[Pair], agreements: Sequence[Mapping[str, Agreement]]) -> tuple[Verified, ...]:
    agreed = [
        one for run, each in zip("ab", agreements, strict=True) for one in verified_agreement(each, run)
    ]
    return (*verified_choices(pairs), *agreed)


def _not_told(told: Sequence[Choices]) -> list[tuple[str, str]]:
    runs = zip("ab", told, strict=True)
    return [(f"{what} of {run}", why) for run, each in runs for what, why in each.not_told]


def _findings_at(cmp: Comparison | None, sites: Sequence[str]) -> list[int]:
    """Give the numbers of a comparison's findings that name one of some sites."""
    roots = cmp.roots if cmp is not None else ()
    return [number for number, root in enumerate(roots) if not set(sites).isdisjoint(root.sites)]


def _unjoined(
    cmp: Comparison | None, entries: Collection[tuple[Entry, int | None]], is_any: bool
) -> list[tuple[str, str]]:
    """Say of which choices no call is known, by source."""
    if not is_any:
        return []
    if cmp is None:
        why = "no comparison was given, which shows where bits differ: detlab compare A B --save FILE"
        return [("what came of the choices", why)]
    counts = Counter(entry.source for entry, _ in entries)
    why = "no call of the comparison computes this: it was not traced, or under other shapes or another name"
    return [
        (f"what came of {num:,} {plural('choice', num)} of {source}", why)
        for source, num in sorted(counts.items())
    ]


def _problems(told: Sequence[Choices]) -> Iterator[Problem]:
    for run, each in zip("ab", told, strict=True):
        yield from (Problem(f"{run}: {where}", what) for where, what in each.problems)


def _silent(frames: Sequence[pl.DataFrame], recorded: Sequence[Pair]) -> Iterator[Problem]:
    """Name the runs of which nothing tells what they chose."""
    for run, frame in zip("ab", frames, strict=True):
        if frame.is_empty() and not any(getattr(pair, run) is not None for pair in recorded):
            yield Problem(
                f"run {run}", "nothing tells what it chose: give a log of cuBLASLt or of an autotuner"
            )


def _same_place(a: Source, b: Source) -> Iterator[Problem]:
    """Say that both runs were given as one place: what is one is equal to itself."""
    if a is b or _files(a) & _files(b):
        yield Problem("a and b", "were given as one place, whose choices are equal to themselves")


def _files(source: Source) -> set[Path]:
    """Give the places of a source, links followed; none of what was read before."""
    if isinstance(source, Choices):
        return set()
    if isinstance(source, Run):
        places: Sequence[str | PathLike[str]] = [source.source]
    else:
        places = [source] if isinstance(source, str | PathLike) else source
    return {Path(each).resolve() for each in places if str(each) and Path(each).exists()}


def _notes(told: Sequence[Choices], cmp: Comparison | None) -> list[str]:
    said = [f"run {run}: {note}" for run, each in zip("ab", told, strict=True) for note in each.notes]
    if cmp is not None:
        whole = "" if cmp.complete else ", and not complete"
        said.append(f"joined to the comparison of {cmp.a.label} and {cmp.b.label}: {cmp.verdict}{whole}")
    return said

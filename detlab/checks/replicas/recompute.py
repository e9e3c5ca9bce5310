"""The forward against its own recomputation: what differs as findings, what is equal as verified."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, Final

import polars as pl

from detlab.checks.replicas.places import places_of, places_text
from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.comparison.text import PROVES
from detlab.comparison.within import Recomputed, compare_recompute
from detlab.errors import NotComparable
from detlab.readers import as_run
from detlab.run import Run, spans
from detlab.schema import Evidence
from detlab.text import plural

RECOMPUTE_FINDING_COLUMNS: Final[dict[str, Any]] = {
    "verdict": pl.String,
    "class": pl.String,
    "scope": pl.String,
    "op": pl.String,
    "ranks": pl.List(pl.Int64),
    "places": pl.List(pl.String),
    "steps": pl.List(pl.Int64),
    "num_calls": pl.Int64,
    "again": pl.String,
    "evidence": pl.String,
}
"""Columns that `check_recompute` adds to those of every finding."""

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
_ORIGIN: Final = "origin"
_NEXT: Final = {
    "kernel": "capture this call with detlab.Recorder and replay it: detlab replay CAPTURE",
    "rng": "save and restore the generator's state around the checkpointed layer",
    "data": "find what makes it without inputs",
}


def check_recompute(run: Run | str | PathLike[str]) -> CheckResult:
    """Check that the calls of the forward give the same bits when they are recomputed in the backward.

    Parameters
    ----------
    run
        A run that recomputes activations, recorded with inputs, or a path that `detlab.load_run` can read.

    Returns
    -------
    A finding of the component ``recomputation`` for each op, kind of module and verdict of calls that were
    made again and differ, those with equal inputs first. Own columns: ``verdict`` and ``class`` (of the
    site rule), ``scope`` (numbers of layers are written ``*``), ``op``, ``ranks``, ``places`` (host and
    device of each rank, where the run recorded them), ``steps``, ``num_calls``, ``again`` (the site of the
    first call made again), ``evidence`` (the least). A run that makes no call again is invalid: nothing
    could be looked at.

    Raises
    ------
    TraceError
        The run cannot be read.
    """
    run = as_run(run)
    problems = [Problem(run.label, each) for each in run.problems]
    try:
        found = compare_recompute(run)
    except NotComparable as error:
        problems.append(Problem(run.label, error.finding))
        return CheckResult(
            "recompute",
            (run.label,),
            findings_frame([], RECOMPUTE_FINDING_COLUMNS),
            problems=tuple(problems),
            notes=(error.hint,),
        )
    return CheckResult(
        "recompute",
        (run.label,),
        findings_frame(list(_findings(run, found.differing)), RECOMPUTE_FINDING_COLUMNS),
        tuple(_verified(run, found)),
        tuple(_not_checked(run, found)),
        tuple(problems),
    )


def _findings(run: Run, differing: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Group the calls that differ by op, kind of module and verdict; origins first, then as they came."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in differing.iter_rows(named=True):
        scope = _NUMBER.sub("*", row["scope"])
        groups[row["verdict"], row["class"], row["op"], scope].append(row)
    for key in sorted(groups, key=lambda key: key[0] != _ORIGIN):
        yield _finding(run, groups[key], key[3])


def _finding(run: Run, rows: Sequence[dict[str, Any]], scope: str) -> dict[str, Any]:
    first, num = rows[0], len(rows)
    ranks, steps = (sorted({row[name] for row in rows}) for name in ("rank", "step"))
    where, places = f" in {scope}" if scope else "", places_of(run, ranks)
    inputs = {"origin": "equal inputs and other bits", "absorbed": "other inputs and equal bits"}
    how = inputs.get(first["verdict"], "other bits")
    return {
        **{name: first[name] for name in ("verdict", "class", "op", "again")},
        "component": "recomputation",
        "severity": "error",
        "found": f"{first['op']}{where}: {how} in {num:,} {plural('call', num)} made again, on "
        f"{plural('rank', len(ranks))} {spans(ranks)}{places_text(places)} in "
        f"{plural('step', len(steps))} {spans(steps)}",
        "expected": "the bits of the forward",
        "where": first["forward"],
        "why": first["why"],
        "next": _NEXT.get(first["class"] or "", ""),
        "scope": scope,
        "ranks": ranks,
        "places": places,
        "steps": steps,
        "num_calls": num,
        "evidence": min((row["evidence"] for row in rows), key=_LEVELS.index),
    }


_LEVELS: Final = [level.name.lower() for level in sorted(PROVES)]


def _verified(run: Run, found: Recomputed) -> Iterator[Verified]:
    totals: Counter[Evidence] = Counter()
    for (_, level), num in found.num_equal.items():
        totals[level] += num
    for level, num in sorted(totals.items(), reverse=True):
        ranks = sorted({rank for rank, its in found.num_equal if its == level})
        yield Verified(
            "recomputation",
            f"{num:,} {plural('call', num)} made again on {plural('rank', len(ranks))} {spans(ranks)} gave "
            f"the bits of the forward (steps {spans(run.steps)})",
            PROVES[level],
        )


def _not_checked(run: Run, found: Recomputed) -> Iterator[NotChecked]:
    if found.num_unseen:
        why = "no evidence of their outputs, or set aside as an observer's artefact"
        yield NotChecked(f"{found.num_unseen:,} {plural('call', found.num_unseen)} made again", why)
    seen = {rank for rank, _ in found.num_equal} | set(found.differing["rank"].to_list())
    silent = sorted({trace.header.rank for trace in run.ranks} - seen)
    if silent:
        yield NotChecked(f"ranks {spans(silent)}", "they make no call of their forward again")
    missing = run.manifest.world_size - len(run.ranks)
    if missing > 0:
        yield NotChecked(
            f"{missing} of {run.manifest.world_size} ranks", "not recorded, or left out by request"
        )

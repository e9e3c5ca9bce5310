"""What could not be compared: steps, metrics and files that one of the runs lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from detlab.run import Run, spans

Problem = tuple[str, str]

_SHOWN: Final = 5
_PIECES: Final = 4


def problems_of(runs: Sequence[Run], judged: pl.DataFrame) -> Iterator[Problem]:
    """Give (run, what it lacks or what is damaged), for the metrics that count.

    Parameters
    ----------
    runs
        Run a and run b.
    judged
        As from `precision.judge`, without measurements.
    """
    for each in runs:
        yield from ((each.label, problem) for problem in each.problems)
    for run, other in (("a", "b"), ("b", "a")):
        label = runs["ab".index(other)].label
        yield from ((label, what) for what in _lacking(judged, run, other))


def _lacking(judged: pl.DataFrame, run: str, other: str) -> Iterator[str]:
    """Say what one run has and the other lacks: whole metrics, whole steps, and numbers beside these."""
    alone = judged.filter(pl.col("outcome") == f"only in {run}")
    if not len(alone):
        return
    there = judged.filter(pl.col(f"state_{other}").is_not_null())
    known = there["name"].unique()
    yield from _capped(
        [f"has no {name}" for name in _names(alone.filter(~pl.col("name").is_in(known.implode())))]
    )
    alone = alone.filter(pl.col("name").is_in(known.implode()))
    steps = alone.filter(~pl.col("step").is_in(there["step"].unique().implode()))
    if len(steps):
        yield f"has no {where(steps['step'])}"
    rest = alone.filter(pl.col("step").is_in(there["step"].unique().implode()))
    lacking = [
        f"has no {name} at {where(rest.filter(pl.col('name') == name)['step'])}"
        for name in _names(rest)[:_SHOWN]
    ]
    yield from _capped(lacking, len(_names(rest)))


def _names(rows: pl.DataFrame) -> list[str]:
    return rows["name"].unique(maintain_order=True).cast(pl.String).to_list()


def _capped(sentences: Sequence[str], num: int = 0) -> list[str]:
    more = max(num, len(sentences)) - _SHOWN
    return [*sentences[:_SHOWN], *([f"lacks {more} more metrics in the same way"] if more > 0 else [])]


def where(steps: pl.Series) -> str:
    """Write steps for people: as spans where these are few, else how many there are between which."""
    found = np.unique(steps.to_numpy())
    pieces = int((np.diff(found) > 1).sum()) + 1
    if pieces > _PIECES:
        return f"{len(found):,} steps from {found[0]} to {found[-1]}"
    return f"step{'' if len(found) == 1 else 's'} {spans(found.tolist())}"

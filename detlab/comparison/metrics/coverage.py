"""What could not be compared: steps, metrics and files that one of the runs lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.pairs import name_of
from detlab.run import Run
from detlab.text import plural

Problem = tuple[str, str]

_SHOWN: Final = 5
_PIECES: Final = 4


def problems_of(runs: Sequence[Run], judged: Sequence[pl.DataFrame]) -> Iterator[Problem]:
    """Give (run, what it lacks or what is damaged), for the metrics that count.

    Parameters
    ----------
    runs
        Run a and run b.
    judged
        As from `precision.judge`, one frame for each metric, without measurements.
    """
    for each in runs:
        yield from ((each.label, problem) for problem in each.problems)
    for run, other in (("a", "b"), ("b", "a")):
        label = runs["ab".index(other)].label
        yield from ((label, what) for what in _lacking(judged, run, other))


def _lacking(judged: Sequence[pl.DataFrame], run: str, other: str) -> Iterator[str]:
    """Say what one run has and the other lacks: whole metrics, whole steps, and numbers beside these."""
    alone = {name_of(part): part.filter(pl.col("outcome") == f"only in {run}")["step"] for part in judged}
    there = {name_of(part): part.filter(pl.col(f"state_{other}").is_not_null())["step"] for part in judged}
    lacking = {name: steps for name, steps in alone.items() if len(steps)}
    if not lacking:
        return
    yield from _capped([f"has no {name}" for name in lacking if not len(there[name])])
    lacking = {name: steps for name, steps in lacking.items() if len(there[name])}
    known = pl.concat(there.values()).unique().implode()
    whole = pl.concat(
        [steps.filter(~steps.is_in(known)) for steps in (pl.Series("step", [], pl.Int64), *lacking.values())]
    )
    if len(whole):
        yield f"has no {where(whole)}"
    rest = {name: steps.filter(steps.is_in(known)) for name, steps in lacking.items()}
    yield from _capped([f"has no {name} at {where(steps)}" for name, steps in rest.items() if len(steps)])


def _capped(sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - _SHOWN
    return [*sentences[:_SHOWN], *([f"lacks {more} more metrics in the same way"] if more > 0 else [])]


def where(steps: pl.Series) -> str:
    """Write steps for people: as spans where these are few, else how many there are between which."""
    found = steps.unique().sort().to_numpy()
    ends = np.flatnonzero(np.diff(found) > 1)
    if len(ends) >= _PIECES:
        return f"{len(found):,} steps from {found[0]} to {found[-1]}"
    firsts, lasts = found[np.r_[0, ends + 1]], found[np.r_[ends, len(found) - 1]]
    told = [
        f"{first}" if first == last else f"{first}-{last}" for first, last in zip(firsts, lasts, strict=True)
    ]
    return f"{plural('step', len(found))} {', '.join(told)}"

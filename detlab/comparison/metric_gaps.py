"""What a run lacks of the metrics of others, or printed too coarsely to say which class it is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.metric_classes import MetricClasses
from detlab.comparison.metrics.coverage import where

_SHOWN: Final = 3


def gaps_of(metrics: MetricClasses, labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give (run, what it lacks) where another run has a class and this one does not.

    Parameters
    ----------
    metrics
        The classes.
    labels
        Names of the runs.
    """
    others = (metrics.numbers > 0).any(axis=1)
    for at, label in enumerate(labels):
        here = metrics.numbers[:, at] == 0
        yield from ((label, what) for what in _lacking(metrics, others & here & ~metrics.present[:, at]))
        vague = metrics.places.filter(_series(here & metrics.present[:, at]))
        if len(vague):
            names = _listed(vague["name"].unique().sort().to_list())
            yield label, f"{names} at {where(vague['step'])} cannot be put into one class"


def _lacking(metrics: MetricClasses, absent: NDArray[np.bool_]) -> Iterator[str]:
    lacking = metrics.places.filter(_series(absent))
    if lacking.is_empty():
        return
    there = metrics.places.filter(_series(~absent))
    whole = sorted(set(lacking["name"].unique()) - set(there["name"].unique()))
    if whole:
        yield f"has no {_listed(whole)}"
    rest = lacking.filter(~pl.col("name").is_in(whole))
    if len(rest):
        yield f"has no {_listed(rest['name'].unique().sort().to_list())} at {where(rest['step'])}"


def _series(chosen: NDArray[np.bool_]) -> pl.Series:
    return pl.Series(chosen, dtype=pl.Boolean)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more metrics" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

"""The step metrics of two runs for the panel: each compared once, those that differ first before others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import polars as pl

from detlab.readers.metrics.names import choose_names, is_loss, is_norm
from detlab.run import Run
from detlab.views.series import (
    MEASURED,
    describe,
    first_difference,
    measurements,
    metric_names,
    metric_pairs,
    shown_rank,
)


class Metrics:
    """The metrics of two runs.

    Parameters
    ----------
    a, b
        The runs.
    """

    def __init__(self, a: Run, b: Run) -> None:
        self.a, self.b = a, b
        self._pairs: dict[str, pl.DataFrame] = {}

    @cached_property
    def names(self) -> list[str]:
        """The metrics of either run: those that differ first before others, losses and norms first."""
        return sorted(metric_names(self.a, self.b), key=self._order)

    def _order(self, name: str) -> tuple[Any, ...]:
        first = first_difference(self._all_ranks(name))
        telling = sum(name in chosen for chosen in self._telling)
        return name in self._measurements, first is None, first or 0, -telling, name

    @cached_property
    def _measurements(self) -> set[str]:
        return measurements(self.a, self.b)

    @cached_property
    def _telling(self) -> list[set[str]]:
        """Names of losses, and names of losses and norms."""
        losses = self._named(is_loss)
        return [losses, losses | self._named(is_norm)]

    def _named(self, holds: Callable[[pl.Expr], pl.Expr]) -> set[str]:
        return {name for run in (self.a, self.b) for name in choose_names(run.metrics, holds)}

    def _all_ranks(self, name: str) -> pl.DataFrame:
        if name not in self._pairs:
            pairs = metric_pairs(self.a, self.b, name)
            if name in self._measurements:  # it differs between any two runs
                pairs = pairs.with_columns(differs=pl.lit(None, pl.Boolean))
            self._pairs[name] = pairs
        return self._pairs[name]

    def shown(self, name: str) -> pl.DataFrame:
        """Give a metric of the rank that differs first; columns as `detlab.views.series.metric_pairs`."""
        return shown_rank(self._all_ranks(name))

    def first(self, name: str) -> int | None:
        """Give the first step at which a metric differs on the rank shown."""
        return first_difference(self.shown(name))

    def says(self, name: str) -> str:
        """Say in one sentence where a metric first differs."""
        if name in self._measurements:
            return MEASURED
        return describe(self.shown(name))

"""The step metrics of two runs for the panel: each compared once, those that differ first before others."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from detlab.run import Run
from detlab.views.series import describe, first_difference, metric_names, metric_pairs, shown_rank


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
        """The metrics of either run: those that differ first before others, losses before others."""
        every = metric_names(self.a, self.b)
        firsts = {name: first_difference(self._all_ranks(name)) for name in every}
        return sorted(
            every, key=lambda name: (firsts[name] is None, firsts[name] or 0, "loss" not in name, name)
        )

    def _all_ranks(self, name: str) -> pl.DataFrame:
        if name not in self._pairs:
            self._pairs[name] = metric_pairs(self.a, self.b, name)
        return self._pairs[name]

    def shown(self, name: str) -> pl.DataFrame:
        """Give a metric of the rank that differs first; columns as `detlab.views.series.metric_pairs`."""
        return shown_rank(self._all_ranks(name))

    def first(self, name: str) -> int | None:
        """Give the first step at which a metric differs on the rank shown."""
        return first_difference(self.shown(name))

    def says(self, name: str) -> str:
        """Say in one sentence where a metric first differs."""
        return describe(self.shown(name))

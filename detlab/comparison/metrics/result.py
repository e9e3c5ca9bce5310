"""The comparison of two runs' step metrics: its verdict, what stands beside it, and the tables behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.precision import COMPARED, DIFFERENT
from detlab.comparison.text import as_html
from detlab.comparison.verdicts import EXIT_CODES
from detlab.readers.metrics.log import SEGMENT_SCHEMA
from detlab.readers.metrics.names import is_loss
from detlab.run import Run
from detlab.schema import Evidence

SCHEMA: Final = "detlab.metrics/1"

VALUE_COLUMNS: Final = (
    "name",
    "rank",
    "step",
    "outcome",
    "value_a",
    "value_b",
    "difference",
    "relative",
    "ulp",
    "resolution",
    "resolution_ulp",
    "exact",
    "state_a",
    "state_b",
    "width_a",
    "width_b",
    "segment_a",
    "segment_b",
)
"""Columns of `MetricsComparison.values`; see `precision.judge`. ``outcome`` is null where not compared."""


@dataclass(frozen=True, eq=False, repr=False)
class MetricsComparison:
    """The step metrics of two runs compared, number by number.

    Attributes
    ----------
    a, b
        The runs.
    values
        One row per step, rank and metric that either run has, with the columns of `VALUE_COLUMNS`, by metric
        and step: ``outcome`` is bit-equal, equal as printed, differs, state differs, unknown, only in a or
        only in b, and null for measurements that were not compared.
    metrics
        One row per metric, with the columns of `detlab.comparison.metrics.summary.METRIC_COLUMNS`.
    replays
        One row per metric and segment of a run that ran steps again, with the columns of
        `detlab.comparison.metrics.replays.REPLAY_COLUMNS`.
    problems
        (run, what) for each thing that is missing or damaged.
    notes
        Patterns in the differences, and what was compared under two names.
    """

    a: Run
    b: Run
    values: pl.DataFrame
    metrics: pl.DataFrame
    replays: pl.DataFrame
    problems: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def compared(self) -> pl.DataFrame:
        """The rows of `metrics` that decide: compared at one step at least, and no measurement."""
        return self.metrics.filter((pl.col("kind") == "compared") & (pl.col("steps_common") > 0))

    @property
    def verdict(self) -> str:
        """``diverged``, ``match`` or ``incomplete``; a refused comparison never gets here."""
        if self.first_step is not None:
            return "diverged"
        return "match" if self.complete else "incomplete"

    @property
    def complete(self) -> bool:
        """Whether every step and metric that either run has was whole and compared."""
        return not self.problems

    @property
    def exit_code(self) -> int:
        """0 match, 1 diverged, 2 incomplete."""
        return EXIT_CODES[self.verdict]

    @property
    def evidence(self) -> Evidence:
        """What equality proves of the least precise metric: `EXACT` (its bits) or `PRINTED` (its digits)."""
        return Evidence.PRINTED if (self.compared["evidence"] == "printed").any() else Evidence.EXACT

    @property
    def first_step(self) -> int | None:
        """The first step at which any metric but measurements differs; None when none does."""
        step: int | None = self.compared["first_step"].min()  # type: ignore[assignment]
        return step

    @cached_property
    def first(self) -> pl.DataFrame:
        """Every number that differs at the first step at which any does; columns as in `values`."""
        decides = pl.col("name").is_in(self.compared["name"].implode())
        differing = self.values.filter(pl.col("outcome").is_in(DIFFERENT) & decides)
        return differing.filter(pl.col("step") == pl.col("step").min())

    @property
    def visible(self) -> pl.DataFrame:
        """The rows of `metrics` whose curves come apart first: of losses, if any of these differs."""
        differing = self.compared.filter(pl.col("steps_different") > 0)
        losses = differing.filter(is_loss(pl.col("name")))
        curves = losses if len(losses) else differing
        return curves.filter(pl.col("visible_step") == pl.col("visible_step").min())

    @property
    def steps(self) -> pl.Series:
        """The steps at which a number that decides was compared, ascending."""
        decides = pl.col("outcome").is_in(COMPARED) & pl.col("name").is_in(self.compared["name"].implode())
        return self.values.filter(decides)["step"].unique().sort()

    @cached_property
    def segments(self) -> pl.DataFrame:
        """The stretches between restarts of each run.

        Returns
        -------
        ``run`` (its label) and the columns of `detlab.readers.metrics.log.SEGMENT_SCHEMA`: ``segment``,
        ``source``, ``first_step``, ``last_step``, ``num_steps``, ``first_line``, ``why`` (what showed that it
        begins there). A run that left no log has one row.
        """
        return pl.concat([segments_of(run) for run in (self.a, self.b)])

    def to_json(self) -> dict[str, Any]:
        """Give the comparison in its JSON form, see ``detlab/schemas/metrics.json``."""
        steps = self.steps
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "evidence": self.evidence.name.lower(),
            "complete": self.complete,
            "coverage": {"steps": len(steps), "first_step": steps.min(), "last_step": steps.max()},
            "first": _step_and_names(self.first_step, self.first["name"]),
            "visible": _step_and_names(self.visible["visible_step"].min(), self.visible["name"]),
            "metrics": finite(self.metrics.to_dicts()),
            "segments": self.segments.to_dicts(),
            "replays": finite(self.replays.to_dicts()),
            "notes": list(self.notes),
            "problems": [{"where": where, "what": what} for where, what in self.problems],
        }

    def __repr__(self) -> str:
        from detlab.comparison.metrics.text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _step_and_names(step: object, names: pl.Series) -> dict[str, Any] | None:
    if step is None:
        return None
    return {"step": step, "metrics": names.cast(pl.String).unique(maintain_order=True).to_list()}


def finite(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give rows for JSON, which has no words for NaN and infinity: null stands for both."""
    return [
        {name: None if isinstance(each, float) and not isfinite(each) else each for name, each in row.items()}
        for row in rows
    ]


def segments_of(run: Run) -> pl.DataFrame:
    """Give the stretches between restarts of one run; columns as in `MetricsComparison.segments`."""
    if run.log:
        rows = run.log.segments
    else:
        step = pl.col("step")
        rows = run.metrics.select(
            segment=pl.lit(0),
            source=pl.lit(run.source),
            first_step=step.min(),
            last_step=step.max(),
            num_steps=step.n_unique(),
            first_line=pl.lit(None),
            why=pl.lit("the first record"),
        )
    told = rows.select(pl.col(name).cast(kind) for name, kind in SEGMENT_SCHEMA.items())
    return told.select(pl.lit(run.label).alias("run"), *SEGMENT_SCHEMA)

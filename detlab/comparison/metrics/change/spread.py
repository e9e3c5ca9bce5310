"""The range of each of two sets of runs at every step, beside the difference between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.pairs import last_points, points_of
from detlab.comparison.metrics.precision import ulp_distance
from detlab.readers.metrics.names import is_measurement
from detlab.run import Run

_OF_SET: Final = {
    "num": pl.Int64, "mean": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "spread": pl.Float64, "spread_ulp": pl.Float64,
}  # fmt: skip

SPREAD_COLUMNS: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "rank": pl.Int64,
    "name": pl.String,
    **{f"baseline_{name}": kind for name, kind in _OF_SET.items()},
    **{f"changed_{name}": kind for name, kind in _OF_SET.items()},
    "difference": pl.Float64,
    "difference_ulp": pl.Float64,
    "overlap": pl.Boolean,
    "resolution": pl.Float64,
}
"""Columns of `ChangeComparison.spread`.

``step``, ``rank`` (null: the number is of no rank), ``name``; of the baseline and of the changed runs the
number ``num`` of runs with a finite number there, their ``mean``, ``low`` and ``high``, the ``spread``
between the last two (null: of one run), and ``spread_ulp``, the same in units in the last place;
``difference`` (mean of the changed runs less that of the baseline) and ``difference_ulp`` (its size);
``overlap`` (whether the ranges do, as far as was printed); ``resolution`` (the coarsest that any of the
numbers was printed with; null: all exact). Units in the last place are those of a float64 where all numbers
of a metric are exact and no float32s, else of a float32.
"""

METRIC_COLUMNS: Final[dict[str, Any]] = {
    "name": pl.String,
    "steps_common": pl.Int64,
    "baseline_spread": pl.Float64,
    "baseline_spread_ulp": pl.Float64,
    "changed_spread": pl.Float64,
    "changed_spread_ulp": pl.Float64,
    "difference": pl.Float64,
    "difference_ulp": pl.Float64,
    "steps_apart": pl.Int64,
    "first_apart": pl.Int64,
}
"""Columns of `ChangeComparison.metrics`: of each metric the number of steps that both sets have, the largest
spreads and the largest difference in size at any step, and at how many steps, and since which, the ranges do
not overlap (null: they always do)."""

_KEY: Final = ["step", "rank", "name"]


def spreads(baseline: Sequence[Run], changed: Sequence[Run]) -> pl.DataFrame:
    """Give the ranges of two sets of runs with the columns of `SPREAD_COLUMNS`, by step and metric.

    Of a step that stands in several segments of a run the last one counts. Numbers that are not finite, and
    measurements of the machine, are left out.
    """
    sides = [_of_set(runs, name) for runs, name in ((baseline, "baseline"), (changed, "changed"))]
    rows = sides[0].join(sides[1], on=_KEY, how="inner", nulls_equal=True).sort(_KEY)
    units = [pl.col(f"{name}_unit") for name in ("baseline", "changed")]
    reach = pl.when(units[0] != units[1]).then((units[0] + units[1]) / 2).otherwise(0)
    gap = pl.max_horizontal("baseline_low", "changed_low") - pl.min_horizontal(
        "baseline_high", "changed_high"
    )
    unit = pl.max_horizontal(units)
    rows = rows.with_columns(
        difference=pl.col("changed_mean") - pl.col("baseline_mean"),
        overlap=gap <= reach,
        resolution=pl.when(unit > 0).then(unit),
    )
    printed = pl.col("baseline_narrow") | pl.col("changed_narrow")
    held = (pl.col("baseline_held") & pl.col("changed_held")).all().over("name")
    narrow = rows.select(printed | held).to_series().to_numpy()
    return rows.with_columns(
        _spread_ulp(rows, "baseline", narrow),
        _spread_ulp(rows, "changed", narrow),
        _ulp(rows, "baseline_mean", "changed_mean", narrow).alias("difference_ulp"),
    ).select(pl.col(name).cast(kind) for name, kind in SPREAD_COLUMNS.items())


def _of_set(runs: Sequence[Run], label: str) -> pl.DataFrame:
    """Give number, mean, least and largest of the runs' finite numbers, with their coarsest resolution."""
    points = pl.concat(_last_numbers(run) for run in runs)
    value = pl.col("value")
    stated = points.group_by(_KEY).agg(
        num=pl.len(), mean=value.mean(), low=value.min(), high=value.max(),
        unit=pl.col("resolution").fill_null(0).max(), narrow=(pl.col("width") < 64).any(),
        held=(value.cast(pl.Float32).cast(pl.Float64) == value).all(),
    )  # fmt: skip
    # The mean of equal numbers is that number, whatever the rounding of their sum.
    mean = pl.when(pl.col("low") == pl.col("high")).then("low").otherwise("mean")
    spread = pl.when(pl.col("num") > 1).then(pl.col("high") - pl.col("low"))
    stated = stated.with_columns(mean=mean, spread=spread)
    return stated.rename({name: f"{label}_{name}" for name in stated.columns if name not in _KEY})


def _last_numbers(run: Run) -> pl.DataFrame:
    rows = last_points(points_of(run).filter(~is_measurement(pl.col("name"))))
    kept = rows.filter(pl.col("value").is_finite()).with_columns(pl.col("name").cast(pl.String))
    return kept.select(*_KEY, "value", "width", "resolution")


def _ulp(rows: pl.DataFrame, low: str, high: str, narrow: np.ndarray[Any, Any]) -> pl.Series:
    ends = [rows[name].to_numpy() for name in (low, high)]
    is_mean = np.full(len(rows), low.endswith("mean"))
    return pl.Series(ulp_distance(ends[0], ends[1], narrow, is_mean), dtype=pl.Float64)


def _spread_ulp(rows: pl.DataFrame, label: str, narrow: np.ndarray[Any, Any]) -> pl.Series:
    ulp = _ulp(rows, f"{label}_low", f"{label}_high", narrow)
    return rows.select(pl.when(pl.col(f"{label}_num") > 1).then(ulp).alias(f"{label}_spread_ulp")).to_series()


def by_metric(spread: pl.DataFrame) -> pl.DataFrame:
    """Sum up the spreads with the columns of `METRIC_COLUMNS`, by the first step whose ranges are apart."""
    apart = pl.col("step").filter(~pl.col("overlap"))
    most = [name for name in METRIC_COLUMNS if "spread" in name or "difference" in name]
    rows = spread.group_by("name").agg(
        *(pl.col(name).abs().max() for name in most),
        steps_common=pl.col("step").n_unique(),
        steps_apart=apart.n_unique(),
        first_apart=apart.min(),
    )
    rows = rows.sort("first_apart", "name", nulls_last=True)
    return rows.select(pl.col(name).cast(kind) for name, kind in METRIC_COLUMNS.items())

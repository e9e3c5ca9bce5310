"""The table of the tax: the step first, then what costs, largest first, and the same as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from detlab.checks.tax.interval import Ratio
from detlab.checks.tax.names import TABLES
from detlab.text import shorten, visible

STEP: Final = "step"

TAX_COLUMNS: Final[dict[str, Any]] = {
    "table": pl.String,
    "name": pl.String,
    "clock": pl.String,
    "default_ms": pl.Float64,
    "deterministic_ms": pl.Float64,
    "delta_ms": pl.Float64,
    "share": pl.Float64,
    "ratio": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "count_default": pl.Int64,
    "count_deterministic": pl.Int64,
    "only_in": pl.String,
}
"""Columns of the table of `check_tax`.

``table``: step, forward (modules), backward (nodes), op, kernel (work of the device) or range; ``name``
without what counts on from call to call; ``clock``: log, host or device; ``default_ms``,
``deterministic_ms`` and ``delta_ms`` of a step, or of the whole profile where its steps are not known;
``share`` of the whole difference; ``ratio`` with the ends ``low`` and ``high`` of its 95 % interval (only of
step times); ``count_default`` and ``count_deterministic``, how often it was counted (for step: how many
steps); ``only_in``: default or deterministic, where one side lacks it. What is not known is null.
"""


def tax_table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Make the table of rows such as that of the step; numbers that are not finite are null."""
    blank = dict.fromkeys(TAX_COLUMNS)
    made = [{name: _finite(value) for name, value in {**blank, **row}.items()} for row in rows]
    return pl.DataFrame(made, TAX_COLUMNS)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def step_row(name: str, clock: str, medians: tuple[float, float], ratio: Ratio, num: int) -> dict[str, Any]:
    """Give the row of the step.

    Parameters
    ----------
    name, clock
        The metric or the mark that it is from.
    medians
        Milliseconds of both sides; NaN where only a rate is known.
    ratio
        Of both sides.
    num
        Common steps.
    """
    return {
        "table": STEP,
        "name": name,
        "clock": clock,
        "default_ms": medians[0],
        "deterministic_ms": medians[1],
        "delta_ms": medians[1] - medians[0],
        "share": 1.0,
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "count_default": num,
        "count_deterministic": num,
        "only_in": "",
    }


def place_table(rows: pl.DataFrame, whole_ms: float | None) -> pl.DataFrame:
    """Give the table of places, as `profiles.join_profiles` has them, with their share of the whole."""
    a, b = pl.col("default_ms"), pl.col("deterministic_ms")
    lacks_a, lacks_b = pl.col("count_default") == 0, pl.col("count_deterministic") == 0
    only = (
        pl.when(lacks_a & ~lacks_b)
        .then(pl.lit("deterministic"))
        .when(lacks_b & ~lacks_a)
        .then(pl.lit("default"))
    )
    made = rows.with_columns(
        delta_ms=b - a,
        share=(b - a) / whole_ms if whole_ms else pl.lit(None, pl.Float64),
        ratio=pl.when(a > 0).then(b / a),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
        only_in=only.otherwise(pl.lit("")),
    )
    floats = pl.col(pl.Float64)
    finite = made.with_columns(pl.when(floats.is_finite()).then(floats))
    return finite.select(pl.col(name).cast(kind) for name, kind in TAX_COLUMNS.items())


def table_lines(table: pl.DataFrame, most: int = 10) -> Iterator[str]:
    """Write the largest differences of each table of places for a terminal."""
    for name in TABLES:
        rows = table.filter(pl.col("table") == name)
        if rows.is_empty():
            continue
        yield ""
        yield (
            f"{name:<44} {'default ms':>12} {'determ. ms':>12} {'delta ms':>12} {'share':>8} {'count':>15}"
        )
        yield from map(_line, rows.head(most).iter_rows(named=True))
        if len(rows) > most:
            yield f"… and {len(rows) - most} more: see table, or --json"


def _line(row: dict[str, Any]) -> str:
    share = f"{100 * row['share']:+.1f} %" if row["share"] is not None else ""
    times = f"{row['default_ms']:>12,.3f} {row['deterministic_ms']:>12,.3f} {row['delta_ms']:>+12,.3f}"
    counts = f"{row['count_default']:,}/{row['count_deterministic']:,}"
    return f"{visible(shorten(row['name'], 44)):<44} {times} {share:>8} {counts:>15}"

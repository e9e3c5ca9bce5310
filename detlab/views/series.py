"""One metric of two runs side by side, by what the numbers can prove."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.metrics.pairs import pair_runs, points_of
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, judge
from detlab.comparison.metrics.summary import visible_step
from detlab.run import Run

METRIC_COLUMNS: Final = {
    "step": pl.Int64,
    "rank": pl.Int64,
    "a": pl.Float64,
    "b": pl.Float64,
    "differs": pl.Boolean,
    "exact": pl.Boolean,
    "difference": pl.Float64,
    "ulp": pl.Float64,
}
"""Columns of `metric_pairs`."""


def metric_names(a: Run, b: Run) -> list[str]:
    """List the metrics that either run has, in order."""
    return sorted({str(name) for run in (a, b) for name in run.metrics["name"].unique()})


def metric_pairs(a: Run, b: Run, name: str) -> pl.DataFrame:
    """Put one metric of two runs side by side.

    Returns
    -------
    One row per step and rank that either run has, by rank and step: ``step``, ``rank`` (null: the number is
    not of one rank), the values ``a`` and ``b`` (null where a run has none; of a step that a run ran twice
    the last), ``differs`` (by what both can prove: see `detlab.compare_metrics`; null unless both are there),
    ``exact`` (whether that is proven by bits), ``difference`` (its magnitude) and ``ulp`` (the same in units
    in the last place, of a float32 where the numbers are printed ones).
    """
    mine, theirs = (points_of(run).filter(pl.col("name") == name) for run in (a, b))
    judged = judge(pair_runs(mine, theirs))
    printed = pl.Series(_printed_ulp(judged), nan_to_null=True)
    return judged.select(
        "step",
        "rank",
        a="value_a",
        b="value_b",
        differs=pl.when(pl.col("outcome").is_in(COMPARED)).then(pl.col("outcome").is_in(DIFFERENT)),
        exact="exact",
        difference=pl.col("difference").abs(),
        ulp=pl.when(pl.col("difference") == 0).then(0.0).otherwise(pl.coalesce("ulp", printed)),
    ).sort("rank", "step", maintain_order=True)


def _printed_ulp(judged: pl.DataFrame) -> NDArray[np.float64]:
    sides = [judged[f"value_{run}"].cast(pl.Float32).to_numpy() for run in "ab"]
    larger = np.maximum(np.abs(sides[0]), np.abs(sides[1]))
    with np.errstate(over="ignore"):  # beyond the largest float32 there is no next one
        spacing: NDArray[np.float64] = np.spacing(larger).astype(np.float64)
    return judged["difference"].abs().to_numpy() / spacing


def first_difference(pairs: pl.DataFrame) -> int | None:
    """Give the first step at which a metric differs; None when it never does."""
    step: int | None = pairs.filter("differs")["step"].min()  # type: ignore[assignment]
    return step


def first_visible(pairs: pl.DataFrame) -> int | None:
    """Give the first step at which two curves can be told apart by eye; None when they cannot."""
    common = pairs.filter(pl.col("differs").is_not_null()).rename({"a": "value_a", "b": "value_b"})
    return visible_step(common, common.filter("differs"))


def shown_rank(pairs: pl.DataFrame) -> pl.DataFrame:
    """Choose the rank to draw: the one that differs first, else the lowest."""
    differing = pairs.filter("differs").sort("step", maintain_order=True)
    chosen = differing if len(differing) else pairs
    return pairs.filter(pl.col("rank").eq_missing(chosen["rank"][0])) if len(pairs) else pairs


def describe(pairs: pl.DataFrame) -> str:
    """Say in one sentence where a metric first differs, and what is absent or not a number."""
    first = first_difference(pairs)
    rank = pairs["rank"][0] if len(pairs) else None
    differing, common = int(pairs["differs"].sum()), int(pairs["differs"].count())
    exact = bool(pairs.filter(pl.col("differs").is_not_null())["exact"].all())
    what = "the same bits" if exact else "no difference as printed"
    text = f"{what} in all {common} common steps"
    if first is not None:
        what = "bits first differ" if exact else "first differs, as printed,"
        text = f"{what} at step {first}, then in {differing} of {common} common steps"
    for side in ("a", "b"):
        absent = int(pairs[side].null_count())
        odd = int((~pairs[side].is_finite()).sum())
        text += f"; {side} lacks {absent} step{'s' if absent > 1 else ''}" if absent else ""
        text += f"; {side} is NaN or infinite in {odd}" if odd else ""
    return text if rank is None else f"rank {rank}: {text}"

"""One metric of two runs side by side, by what the numbers can prove."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.metrics.pairs import pair_runs, points_of
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, judge
from detlab.comparison.metrics.summary import visible_step
from detlab.readers.metrics.names import choose_names, is_measurement
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


MEASURED: Final = "a measurement of the machine, which proves nothing about the bits"
"""What is said of a metric that differs between any two runs."""


def measurements(a: Run, b: Run) -> set[str]:
    """Give the metrics of either run that measure the machine, such as timings."""
    return {name for run in (a, b) for name in choose_names(run.metrics, is_measurement)}


def differing_metrics(a: Run, b: Run) -> dict[str, int]:
    """Give the first step at which each metric differs, by name, without measurements and what is equal."""
    measured = measurements(a, b)
    names = [name for name in metric_names(a, b) if name not in measured]
    found = {name: first_difference(metric_pairs(a, b, name)) for name in names}
    return {name: step for name, step in found.items() if step is not None}


def metrics_line(a: Run, b: Run) -> str:
    """Say which step metrics differ, beside a verdict that speaks of calls alone; empty where none does."""
    found = sorted(differing_metrics(a, b).items(), key=lambda item: (item[1], item[0]))
    if not found:
        return ""
    named = ", ".join(f"{name} from step {step}" for name, step in found[:_MAX_NAMED])
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return f"This is about calls alone. The step metrics differ: {named}{more}."


_MAX_NAMED: Final = 3


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
    text = f"{what} in all {common} common steps" if common else "no step has a number in both runs"
    if first is not None:
        what = "bits first differ" if exact else "first differs, as printed,"
        text = f"{what} at step {first}, then in {differing} of {common} common steps"
    for side in ("a", "b"):
        absent = int(pairs[side].null_count())
        odd = int((~pairs[side].is_finite()).sum())
        text += f"; {side} lacks {absent} step{'s' if absent > 1 else ''}" if absent else ""
        text += f"; {side} is NaN or infinite in {odd}" if odd else ""
    return text if rank is None else f"rank {rank}: {text}"

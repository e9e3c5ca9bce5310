"""Numbers over steps: metrics of both runs by their bits, and diverging calls by verdict."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.run import Run
from detlab.schema import Mask, Verdict
from detlab.views.timeline import timeline

METRIC_COLUMNS: Final = {
    "step": pl.Int64,
    "rank": pl.Int64,
    "a": pl.Float64,
    "b": pl.Float64,
    "bits_differ": pl.Boolean,
    "difference": pl.Float64,
}
"""Columns of `metric_pairs`."""


def metric_names(a: Run, b: Run) -> list[str]:
    """List the metrics that either run has, in order."""
    return sorted({*a.metrics["name"].to_list(), *b.metrics["name"].to_list()})


def metric_pairs(a: Run, b: Run, name: str) -> pl.DataFrame:
    """Put one metric of two runs side by side.

    Returns
    -------
    One row per step and rank that either run has, in order: ``step``, ``rank``, the values ``a`` and
    ``b`` (null where a run has none), ``bits_differ`` (of the 64 bits of the numbers, so 0.0 and -0.0
    differ and a NaN equals itself; null unless both are there) and ``difference`` (its magnitude).
    A step logged twice counts as logged last.
    """
    keys = ["step", "rank"]
    sides = [_last_values(run, name).rename({"value": side}) for run, side in ((a, "a"), (b, "b"))]
    both = sides[0].join(sides[1], on=keys, how="full", coalesce=True).sort(keys)
    bits = [both[side].fill_null(0.0).to_numpy().view(np.uint64) for side in ("a", "b")]
    known = both["a"].is_not_null() & both["b"].is_not_null()
    differ = pl.Series("bits_differ", bits[0] != bits[1])
    return both.with_columns(
        pl.when(known).then(differ).alias("bits_differ"),
        (pl.col("a") - pl.col("b")).abs().alias("difference"),
    ).select(*METRIC_COLUMNS)


def _last_values(run: Run, name: str) -> pl.DataFrame:
    rows = run.metrics.filter(pl.col("name") == name).select("step", "rank", "value")
    return rows.unique(["step", "rank"], keep="last", maintain_order=True)


def first_difference(pairs: pl.DataFrame) -> int | None:
    """Give the first step at which the bits of a metric differ; None when they never do."""
    steps = pairs.filter(pl.col("bits_differ"))["step"]
    return int(steps[0]) if len(steps) else None


def shown_rank(pairs: pl.DataFrame) -> pl.DataFrame:
    """Choose the rank to draw: the one whose bits differ first, else the lowest."""
    differing = pairs.filter(pl.col("bits_differ"))
    ranks = differing["rank"] if len(differing) else pairs["rank"].sort()
    return pairs.filter(pl.col("rank") == ranks[0]) if len(ranks) else pairs


def describe(pairs: pl.DataFrame) -> str:
    """Say in one sentence where the bits of a metric first differ, and what is absent or not a number."""
    first = first_difference(pairs)
    rank = f"rank {pairs['rank'][0]}: " if len(pairs) else ""
    differing, common = int(pairs["bits_differ"].sum()), int(pairs["bits_differ"].count())
    text = f"the same bits in all {common} common steps"
    if first is not None:
        text = f"bits first differ at step {first}, then in {differing} of {common} common steps"
    for side in ("a", "b"):
        absent = int(pairs[side].null_count())
        odd = int((~pairs[side].is_finite()).sum())
        text += f"; {side} lacks {absent} step{'s' if absent > 1 else ''}" if absent else ""
        text += f"; {side} is NaN or infinite in {odd}" if odd else ""
    return rank + text


def divergence_counts(cmp: Comparison) -> pl.DataFrame:
    """Count the calls of each step by verdict, without what was set aside.

    Returns
    -------
    One row per compared step and verdict, in order: ``step``, ``verdict``, ``num_calls``.
    """
    counts = np.zeros((len(cmp.steps), len(Verdict)), np.int64)
    row_of = {step: row for row, step in enumerate(cmp.steps)}
    for rank in cmp.ranks:
        for part in timeline(rank):
            here = slice(int(part["position"]), int(part["position"] + part["num_rows"]))
            counts[row_of[int(part["step"])]] += _count(rank.verdicts[here], rank.masks[here])
    return pl.DataFrame(
        {
            "step": [step for step in cmp.steps for _ in Verdict],
            "verdict": [verdict.name.lower() for _ in cmp.steps for verdict in Verdict],
            "num_calls": counts.ravel(),
        },
        {"step": pl.Int64, "verdict": pl.String, "num_calls": pl.Int64},
    )


def _count(verdicts: NDArray[np.uint8], masks: NDArray[np.uint8]) -> NDArray[np.int64]:
    if masks.any():
        verdicts = verdicts[(masks & (Mask.SET_ASIDE | Mask.UNTRACED)) == 0]
    odd = verdicts[verdicts != Verdict.MATCH]
    counts = np.bincount(odd, minlength=len(Verdict))
    counts[Verdict.MATCH] = len(verdicts) - len(odd)
    return counts

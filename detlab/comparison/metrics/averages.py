"""Losses that are means over the steps since the last record: how many steps each one stands for."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.comparison.metrics.spike_series import log_interval, record_steps
from detlab.readers.metrics.names import choose_names, is_loss
from detlab.run import Run

AVERAGING: Final = ("Megatron-LM", "Hugging Face Trainer", "trainer_state.json", "fairseq")
"""Formats of logs that print the mean of the loss since the last record; others print that of the step."""


def means_of_other_steps(pairs: pl.DataFrame, a: Run, b: Run) -> pl.Series:
    """Say of pairs of numbers whether both are losses that are means over other steps.

    Two runs of the same numbers print other losses when one prints every step and the other every tenth, and
    when the first record after a resume averages over fewer steps. Grad norms are those of the last step.

    Parameters
    ----------
    pairs
        As from `pairs.pair_runs`.
    a, b
        The runs that they are of.

    Returns
    -------
    Boolean; also true where it is not known over how many steps one of the two is a mean.
    """
    losses = choose_names(pairs.select(pl.col("name").unique()), is_loss)
    if not losses or not (_averages(a) or _averages(b)):
        return pl.repeat(False, len(pairs), eager=True)
    spans = [_spans(pairs, run, side) for run, side in ((a, "a"), (b, "b"))]
    alike = (spans[0] == spans[1]).fill_null(False)
    both = pairs["state_a"].is_not_null() & pairs["state_b"].is_not_null()
    return pairs["name"].cast(pl.String).is_in(losses) & both & ~alike


def _averages(run: Run) -> bool:
    return run.log is not None and bool(run.log.files["format"].is_in(AVERAGING).any())


def _spans(pairs: pl.DataFrame, run: Run, side: str) -> pl.Series:
    """Give how many steps the number of one side is a mean over; null: not known."""
    width = pairs[f"width_{side}"]
    if not _averages(run):
        return pl.repeat(1, len(pairs), dtype=pl.Int64, eager=True)
    every = log_interval(record_steps(run.metrics))
    step = pl.col("step")
    known = (
        run.metrics.select("segment", "step")
        .unique()
        .sort("segment", "step")
        .with_columns(span=step.diff().over("segment"))
        .with_columns(pl.col("span").fill_null(pl.when((step == every) | (every == 1)).then(every)))
    )
    keys = pairs.select("step", segment=pl.col(f"segment_{side}"))
    spans = keys.join(known, on=["segment", "step"], how="left", maintain_order="left")["span"]
    return pl.select(pl.when(width == 0).then(spans).otherwise(1)).to_series()

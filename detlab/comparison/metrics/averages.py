"""Losses that are means over the steps since the last record: how many steps each one stands for.

Two runs of the same numbers print other losses when one prints every step and the other every tenth, and when
the first record after a resume averages over fewer steps. Grad norms are those of the last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.spikes.series import log_interval, named, record_steps
from detlab.readers.metrics.names import choose_names, is_loss
from detlab.run import Run

AVERAGING: Final = ("Megatron-LM", "Hugging Face Trainer", "trainer_state.json", "fairseq")
"""Formats of logs that print the mean of the loss since the last record; others print that of the step."""

SPAN_COLUMNS: Final[dict[str, Any]] = {"segment": pl.UInt16, "step": pl.Int64, "span": pl.Int64}

_UNKNOWN: Final = -1


def spans_of(run: Run) -> pl.DataFrame | None:
    """Say over how many steps the losses of each record of a run are means; None: each is of its own step.

    Returns
    -------
    ``segment``, ``step``, ``span`` (null: of the first record after a start it is not known).
    """
    if run.log is None or not run.log.files["format"].is_in(AVERAGING).any():
        return None
    every = log_interval(record_steps(run.metrics))
    step, kind = pl.col("step"), pl.col("kind").cast(pl.String)
    loaded = run.log.messages.filter(kind == "checkpoint loaded", step.is_not_null()).select(loaded=step)
    records = run.metrics.select("segment", "step").unique().sort("step")
    records = records.join_asof(
        loaded.sort("loaded"), left_on="step", right_on="loaded", allow_exact_matches=False
    )
    since = pl.when(step - pl.col("loaded") <= every).then(step - pl.col("loaded"))
    is_regular = (step == every) | (every == 1) | bool(run.left_out_steps)
    first = pl.coalesce(since, pl.when(is_regular).then(every))
    spans = records.sort("segment", "step").with_columns(span=step.diff().over("segment"))
    known = spans.with_columns(pl.col("span").fill_null(first))
    return known.select(pl.col(name).cast(kind) for name, kind in SPAN_COLUMNS.items())


def means_of_other_steps(
    pairs: pl.DataFrame, a: pl.DataFrame | None, b: pl.DataFrame | None, offset: int = 0
) -> pl.Series:
    """Say of pairs of numbers whether both are losses that are means over other steps.

    Parameters
    ----------
    pairs
        As from `pairs.pair_runs`.
    a, b
        As from `spans_of`, of the runs that they are of.
    offset
        What was added to the steps of run b.

    Returns
    -------
    Boolean; also true where it is known of one of the two alone over how many steps it is a mean.
    """
    losses = choose_names(pairs, is_loss)
    if not losses or (a is None and b is None):
        return pl.repeat(False, len(pairs), eager=True)
    spans = [_spans(pairs, known, side, moved) for known, side, moved in ((a, "a", 0), (b, "b", offset))]
    both = pairs["state_a"].is_not_null() & pairs["state_b"].is_not_null()
    return pairs["name"].cast(pl.String).is_in(losses) & both & spans[0].ne_missing(spans[1])


def _spans(pairs: pl.DataFrame, known: pl.DataFrame | None, side: str, moved: int) -> pl.Series:
    """Give how many steps the number of one side is a mean over; null: not known."""
    if known is None:
        return pl.repeat(1, len(pairs), dtype=pl.Int64, eager=True)
    keys = pairs.select(
        pl.col("step") - moved, segment=pl.col(f"segment_{side}").cast(pl.UInt16), width=f"width_{side}"
    )
    rows = keys.join(known, on=["segment", "step"], how="left", maintain_order="left")
    return rows.select(pl.when(pl.col("width") == 0).then("span").otherwise(1)).to_series()


def without_other_means(
    runs: Sequence[Run], labels: Sequence[str]
) -> tuple[list[Run], list[tuple[str, str]]]:
    """Leave out of runs the losses of steps at which they are means over other steps.

    Returns
    -------
    The runs, and (label, what was left out) for each metric: the label of the run that prints least often.
    """
    spans = [spans_of(run) for run in runs]
    if all(each is None for each in spans):
        return list(runs), []
    losses = pl.concat(_losses(run, known) for run, known in zip(runs, spans, strict=True))
    unlike = losses.group_by("name", "step").agg(num=pl.col("span").n_unique()).filter(pl.col("num") > 1)
    if unlike.is_empty():
        return list(runs), []
    intervals = [log_interval(record_steps(run.metrics)) for run in runs]
    seldom = labels[intervals.index(max(intervals))]
    told = [
        (
            seldom,
            f"averages {part['name'][0]} over other steps than others at {where(part['step'])}: not compared",
        )
        for part in unlike.sort("name", "step").partition_by("name", maintain_order=True)
    ]
    return [replace(run, metrics=_without(run.metrics, unlike)) for run in runs], told


def _losses(run: Run, known: pl.DataFrame | None) -> pl.DataFrame:
    rows = run.metrics.filter(named(choose_names(run.metrics, is_loss)))
    rows = rows.filter(pl.col("value").is_not_null()).sort("segment", maintain_order=True)
    rows = rows.select(pl.col("name").cast(pl.String), "step", "segment", "width")
    rows = rows.unique(["name", "step"], keep="last", maintain_order=True)
    if known is None:
        return rows.select("name", "step", span=pl.lit(1, pl.Int64))
    found = rows.join(known, on=["segment", "step"], how="left", maintain_order="left")
    span = pl.when(pl.col("width") == 0).then(pl.col("span").fill_null(_UNKNOWN)).otherwise(1)
    return found.select("name", "step", span=span.cast(pl.Int64))


def _without(metrics: pl.DataFrame, unlike: pl.DataFrame) -> pl.DataFrame:
    text = metrics.with_columns(text=pl.col("name").cast(pl.String))
    left = unlike.select("step", text="name")
    return text.join(left, on=["text", "step"], how="anti", maintain_order="left").drop("text")

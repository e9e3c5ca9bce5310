"""Megatron-LM and its forks: ``iteration 10/ 500 | lm loss: 2.1E+00 | grad norm: 1.000 | … |``."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import FIELD_SCHEMA, Dialect, Memory
from detlab.readers.metrics.frame import join_metrics, missing_metrics
from detlab.readers.metrics.names import is_loss
from detlab.readers.metrics.restarts import starts_record

_HEAD: Final = r"(?:^|[^, ]) *iteration +\d+ */ *\d+ *$"
"""What a record begins with, up to the first bar; a comma before it is NeMo's."""
_STEP: Final = r"iteration +(\d+) */ *\d+ *$"

_UNIT: Final = r"\(([^()]*)\) *$"

SKIPPED: Final = "number of skipped iterations"
NANS: Final = "number of nan iterations"
GRAD_NORM: Final = "grad norm"
MAIN_LOSSES: Final = ("lm loss", "loss")


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take records apart at their bars: a number that no bar ends was cut, or is not of this record."""
    bars = lines.select("line", pl.col("text").str.split("|"))
    ended = bars.with_columns(pl.col("text").list.head(pl.col("text").list.len() - 1))
    parts = _of_records(ended.explode("text", empty_as_null=True).drop_nulls())
    pairs = (
        parts.with_columns(pl.col("text").str.splitn(":", 2).struct.rename_fields(["name", "text"]))
        .unnest("text")
        .with_columns(pl.col("name", "text").str.strip_chars(" "))
    )
    fields = _own_parts(pairs).with_columns(pl.col("name").cast(pl.Categorical))
    units = fields.select(pl.col("name").unique()).with_columns(
        unit=pl.col("name").cast(pl.String).str.extract(_UNIT).cast(pl.Categorical)
    )
    return (
        fields.join(units, on="name", how="left", maintain_order="left")
        .with_columns(rank=pl.lit(None, pl.Int64))
        .select(*FIELD_SCHEMA)
    )


def _of_records(parts: pl.DataFrame) -> pl.DataFrame:
    """Give the parts after the head of a record in its line, with its step and its number, from 0.

    Other prints may stand before the head, and another record after the parts: ranks share a line.
    """
    is_head = parts["text"].str.contains(_HEAD)
    heads = parts.filter(is_head).select("line", pl.col("text").str.extract(_STEP).cast(pl.Int64))
    record = is_head.cast(pl.Int64).cum_sum() - 1
    after = parts.with_columns(record=record).filter(~is_head & (record >= 0))
    own = after["line"] == heads["line"].gather(after["record"])
    found = after.filter(own)
    return found.with_columns(step=heads["text"].gather(found["record"]))


def _own_parts(pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the parts of a record up to the first that is no ``name: number``: another print glued to it."""
    odd = pl.col("text").is_null() | ~pl.col("name").str.contains(r"^[A-Za-z]")
    if not pairs.select(odd.any()).item():
        return pairs
    return pairs.filter(~odd.cum_max().over("record"))


def conclude(metrics: pl.DataFrame) -> pl.DataFrame:
    """Say why a loss or a grad norm that other records have is not there.

    The loss is printed only when its average is above zero (since 2026-03: not below), so that it vanishes
    when it is NaN: Megatron-LM, ``training_log``. Both vanish when every iteration since the last record
    was skipped, which is how fp16 training starts.
    """
    heads = metrics.select(*_RECORD_KEY, "source").filter(metrics.select(starts_record()).to_series())
    names = metrics["name"].unique(maintain_order=True).cast(pl.String).to_list()
    losses = _main_losses(metrics)
    missing = _conclusions(metrics, heads, losses, _why_no_loss(ends_with_counters=SKIPPED in names))
    if GRAD_NORM in names:
        missing += _conclusions(metrics, heads, [GRAD_NORM], _why_no_norm())
    return join_metrics([metrics, *missing]).sort("line", "step", maintain_order=True) if missing else metrics


_RECORD_KEY: Final = ["line", "step"]


def _main_losses(metrics: pl.DataFrame) -> list[str]:
    """Give the names of the loss of the model; those of experts are printed beside it, and without it."""
    counts = metrics["name"].value_counts(sort=True).filter(is_loss(pl.col("name")))
    main = [name for name in MAIN_LOSSES if name in counts["name"].cast(pl.String)]
    return main or [str(counts["name"][0]) if len(counts) else MAIN_LOSSES[0]]


def _conclusions(
    metrics: pl.DataFrame, heads: pl.DataFrame, names: list[str], why: pl.Expr
) -> list[pl.DataFrame]:
    """Give rows of one metric, by the first of its names, for the records that lack it, if there are any."""
    named = pl.col("name").is_in(pl.Series(names, dtype=pl.Categorical).implode())
    there = metrics.filter(named).select(_RECORD_KEY)
    lacking = heads.join(there, on=_RECORD_KEY, how="anti", maintain_order="left")
    if lacking.is_empty():
        return []
    for key, other in {"skipped": SKIPPED, "nans": NANS, "norm": GRAD_NORM}.items():
        values = metrics.filter(pl.col("name") == other).select(*_RECORD_KEY, pl.col("value").alias(key))
        values = values.unique(_RECORD_KEY, keep="first", maintain_order=True)
        lacking = lacking.join(values, on=_RECORD_KEY, how="left", maintain_order="left")
    told = lacking.with_columns(why.struct.rename_fields(["state", "note"]).alias("why")).unnest("why")
    return [missing_metrics(told.select(*heads.columns, "state", "note", name=pl.lit(names[0])))]


def _because(state: str, note: str) -> pl.Expr:
    return pl.struct(pl.lit(state), pl.lit(note).alias("note"))


def _why_no_loss(*, ends_with_counters: bool) -> pl.Expr:
    norm = pl.col("norm")
    return (
        pl.when(pl.lit(ends_with_counters) & pl.col("skipped").is_null() & pl.col("nans").is_null())
        .then(_because("absent", "the record is cut before its end"))
        .when(pl.col("nans") > 0)
        .then(_because("nan", "not printed; the record counts NaN iterations"))
        .when(norm.is_nan() | norm.is_infinite())
        .then(_because("nan", "not printed while the grad norm is not finite and nothing was skipped"))
        .when(pl.col("skipped") > 0)
        .then(_because("skipped", "not printed; the record counts skipped iterations"))
        .otherwise(_because("absent", "not printed: zero, negative or NaN"))
    )


def _why_no_norm() -> pl.Expr:
    return (
        pl.when(pl.col("skipped") > 0)
        .then(_because("skipped", "not printed: the last iteration was skipped"))
        .otherwise(_because("absent", "not printed"))
    )


MEGATRON: Final = Dialect("Megatron-LM", ("iteration",), _HEAD.replace("$", r"\|"), parse, conclude)

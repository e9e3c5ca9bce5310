"""torchtitan: ``step: 20  loss:  8.9196  grad_norm:  3.6855  memory: 30.99GiB(32.62%)  tps: 7,022``."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import (
    NUMBER,
    WORD_START,
    Dialect,
    Memory,
    find_records,
    rounded_where,
    take_apart,
)
from detlab.readers.metrics.frame import METRIC_SCHEMA, printed_metrics

_RECORD: Final = WORD_START + r"(?:validate )?step: *\d+ +loss: "
_VALIDATION: Final = r"validate step: *\d+ "

_HEAD: Final = r"step: *(?<step>\d+)(?<fields>  .*)"
_FIELD: Final = rf"  (?<name>[A-Za-z]\w*(?: percent)?): *(?<text>{NUMBER})(?<unit>[KMGT]?i?B|s|%)?"

_SHARE: Final = rf"(\w+): *({NUMBER})(\w+)\(({NUMBER})%"
"""A memory with its share of all there is: two numbers under one name."""

_PLACEHOLDER: Final = "-1 is what a rank without the last pipeline stage prints in place of the loss"


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take records apart at their double blanks."""
    records = find_records(lines, _RECORD, _VALIDATION)
    shares = pl.col("text").str.replace_all(_SHARE, "${1}: ${2}${3}  ${1} percent: ${4}%")
    return take_apart(records.with_columns(shares), _HEAD, _FIELD)


def numbers(fields: pl.DataFrame) -> pl.DataFrame:
    """Take the tokens per second as rounded to an integer, which the others are not."""
    return rounded_where(printed_metrics(fields), pl.col("name") == "tps", 1.0)


def conclude(metrics: pl.DataFrame) -> pl.DataFrame:
    """Take a loss of -1 for the placeholder that it is; where another rank printed the loss, that is it.

    Ranks that do not hold the last pipeline stage have no loss: torchtitan's ``trainer.py`` returns -1.
    """
    held = (pl.col("name") == "loss") & (pl.col("value") == -1)
    if not metrics.select(held.any()).item():
        return metrics
    others = metrics.filter((pl.col("name") == "loss") & ~held)["step"].unique()
    kept = metrics.filter(~held | ~pl.col("step").is_in(others.implode()))
    nothing = {name: pl.lit(None, METRIC_SCHEMA[name]) for name in ("value", "bits", "resolution")}
    told = {"state": pl.lit("absent", METRIC_SCHEMA["state"]), "note": pl.lit(_PLACEHOLDER, pl.Categorical)}
    return kept.with_columns(
        pl.when(held).then(expr).otherwise(name).alias(name) for name, expr in (nothing | told).items()
    )


TORCHTITAN: Final = Dialect("torchtitan", ("step: ",), _RECORD, parse, conclude, numbers, _VALIDATION)

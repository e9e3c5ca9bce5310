"""DeepSpeed: ``steps: 200 loss: 5.5508 iter time (s): 0.936`` and ``step=200, skipped=0, lr=[0.0001]``."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import (
    NUMBER,
    WORD_START,
    Dialect,
    Memory,
    as_fields,
    exact_where,
    find_records,
    take_apart,
)
from detlab.readers.metrics.frame import printed_metrics

_LOSSES: Final = WORD_START + r"steps: \d+ loss: "
_RATES: Final = WORD_START + r"step=\d+, skipped=\d+, lr=\["
_RECORD: Final = rf"{WORD_START}(?:steps: \d+ loss: |step=\d+, skipped=\d+, lr=\[)"

_FIELD: Final = rf" (?<name>[A-Za-z][^:]*): (?<text>{NUMBER})"
_HEAD: Final = rf"steps: (?<step>\d+)(?<fields>(?: [A-Za-z][^:]*: {NUMBER})*)"
_RATE_HEAD: Final = (
    r"step=(?<step>\d+), skipped=(?<skipped>\d+), lr=\[(?<lr>[^\[\]]*)\](?:, mom=\[(?<mom>[^\[\]]*)\])?"
)
_CALL: Final = r"[A-Za-z_][\w.]*\(([^()]*)\)"
"""A number in a constructor (``np.float64(0.1)``), whose name has digits too."""

_LISTS: Final = r"^(?:lr|mom)\["


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take both kinds of records apart; those of the pipeline engine have the losses."""
    records = find_records(lines, _RECORD)
    losses = take_apart(records.filter(pl.col("text").str.contains(_LOSSES)), _HEAD, _FIELD)
    unit = pl.col("name").cast(pl.String).str.extract(r"\(([^()]*)\)$").cast(pl.Categorical)
    rates = _rates(records.filter(pl.col("text").str.contains(_RATES)))
    return pl.concat([losses.with_columns(unit=unit), *rates]).sort("line", "step", maintain_order=True)


def _rates(records: pl.DataFrame) -> list[pl.DataFrame]:
    """Take the skipped steps and the lists of learning rates and momenta, one for each group, apart."""
    plain = pl.col("text").str.replace_all(_CALL, "${1}")
    parts = records.with_columns(plain.str.extract_groups(_RATE_HEAD)).unnest("text").drop_nulls("step")
    skipped = parts.with_columns(pl.lit("skipped").alias("name"), pl.col("skipped").alias("text"))
    return [as_fields(skipped), *(_listed(parts, name) for name in ("lr", "mom"))]


def _listed(parts: pl.DataFrame, name: str) -> pl.DataFrame:
    """Give each number of a list its place; a group has two momenta in a tuple, or one."""
    pairs = pl.col(name).str.contains("(", literal=True)
    rows = (
        parts.with_columns(pairs=pairs, text=pl.col(name).str.extract_all(NUMBER))
        .with_columns(at=pl.int_ranges(pl.col("text").list.len()))
        .explode("text", "at")
        .drop_nulls("text")
    )
    paired = pl.format("{}[{}][{}]", pl.lit(name), pl.col("at") // 2, pl.col("at") % 2)
    place = pl.when("pairs").then(paired).otherwise(pl.format("{}[{}]", pl.lit(name), "at"))
    return as_fields(rows.with_columns(place.alias("name")))


def numbers(fields: pl.DataFrame) -> pl.DataFrame:
    """Take the lists as exact: Python prints all digits that a float of 64 bits needs."""
    return exact_where(printed_metrics(fields), pl.col("name").cast(pl.String).str.contains(_LISTS))


DEEPSPEED: Final = Dialect("DeepSpeed", ("steps: ", "skipped="), _RECORD, parse, numbers=numbers)

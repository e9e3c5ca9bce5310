"""fairseq: ``train_inner | epoch 001:      1 / 39 loss=0.932, ppl=1.91, num_updates=1, lr=1.25e-07``."""

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
    rounded_where,
    significant_metrics,
    take_apart,
)
from detlab.readers.metrics.frame import METRIC_SCHEMA

_RECORD: Final = WORD_START + r"train_inner \| (?:epoch \d+: +\d+ / \d+ \w+=|\{.epoch.: \d+, )"
_JSON: Final = rf'"(\w+)": "?({NUMBER})"?'

_HEAD: Final = r"train_inner \| .*?(?<fields>[ {].*[ ,]num_updates=(?<step>\d+)(?:[,}\s].*|$))"
"""The counter of the epoch goes on over updates that overflowed; ``num_updates`` does not."""

_FIELD: Final = rf"[ {{](?<name>[A-Za-z]\w*)=(?<text>{NUMBER})"

_MANY: Final = r"\bnum_updates=(\d(?:\.\d+)?e\+\d\d)\b"

_PLACE: Final = r"epoch (?<epoch>\d+): +(?<at>\d+) / (?<of>\d+) |\bupdate=(?<update>[\d.]+)"
"""How many epochs are done, in the two forms of a record."""

_OVERFLOW: Final = "the record has no num_updates: each of its updates overflowed"

_DIGITS: Final = 6
_COUNT: Final = r"^(?:num_updates|epoch)$"
_DECIMALS: Final = {
    3: r"^(?:.*_)?loss$|^gnorm$|^update$",
    2: r"^ppl$",
    1: r"^(?:wpb|bsz|wps|clip|gb_free)$",
    0: r"wall$",
}
"""To how many decimals fairseq rounds before it prints six significant digits, without trailing zeros."""


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take records apart at their commas; a record whose updates all overflowed has one row that says so.

    Its step is the one that it tried, which is the one after the last.
    """
    plain = pl.col("text").str.replace_all(_JSON, "${1}=${2}")
    records = find_records(lines, _RECORD).with_columns(plain).with_columns(_whole_updates())
    fields = take_apart(records, _HEAD, _FIELD).with_columns(note=pl.lit(None, pl.String))
    lost = _tried(records, memory).filter("overflowed").drop_nulls("tried")
    rows = lost.select("line", step="tried", name=pl.lit("loss"), text=pl.lit("nan"))
    overflows = as_fields(rows).with_columns(note=pl.lit(_OVERFLOW))
    return pl.concat([fields, overflows]).sort("line", maintain_order=True)


def _whole_updates() -> pl.Expr:
    """Write ``1.5e+06`` updates as an integer; from a million on, fairseq prints six of their digits."""
    updates = pl.col("text").str.extract(_MANY).cast(pl.Float64, strict=False).cast(pl.Int64, strict=False)
    return pl.coalesce(pl.col("text").str.replace(_MANY, pl.format("num_updates={}", updates)), "text")


def _tried(records: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Say which records ``overflowed`` (Boolean), and give the step that they ``tried`` after the last one.

    After a restart, which goes back in its epoch, the last one is not known before a record has it.
    """
    place = pl.col("text").str.extract_groups(_PLACE)
    steps = records.select(
        "line", "whole", place, step=pl.col("text").str.extract(r"[ ,]num_updates=(\d+)(?:[,}\s]|$)")
    ).unnest("text")
    done = (
        pl.col("epoch").cast(pl.Float64) - 1 + pl.col("at").cast(pl.Float64) / pl.col("of").cast(pl.Float64)
    )
    found = steps.select(
        "line",
        "whole",
        pl.col("step").cast(pl.Int64, strict=False),
        done=pl.coalesce(done, pl.col("update").cast(pl.Float64, strict=False)),
    )
    before = pl.DataFrame([memory.get("last", (0, True, None, 0.0))], found.schema, orient="row")
    both = pl.concat([before, found]).with_columns(part=(pl.col("done") < pl.col("done").shift()).cum_sum())
    known = both.with_columns(last=pl.col("step").forward_fill().over(pl.col("part").fill_null(0)))
    memory["last"] = known.select("line", "whole", "last", "done").row(-1)
    overflowed = records["whole"] & ~records["text"].str.contains("num_updates=", literal=True)
    return known.slice(1).with_columns(overflowed.alias("overflowed"), tried=pl.col("last") + 1)


def numbers(fields: pl.DataFrame) -> pl.DataFrame:
    """Give the numbers the resolution with which fairseq rounds them; the updates are counted."""
    metrics = significant_metrics(fields, _DIGITS)
    name = pl.col("name").cast(pl.String)
    for decimals, form in _DECIMALS.items():
        coarse = pl.max_horizontal("resolution", pl.lit(10.0**-decimals))
        metrics = rounded_where(metrics, name.str.contains(form), coarse)
    return exact_where(metrics, name.str.contains(_COUNT) & (pl.col("value") < 10**_DIGITS))


def conclude(metrics: pl.DataFrame) -> pl.DataFrame:
    """Say that the loss of a step was skipped where no later record has that step."""
    lost = pl.col("note").cast(pl.String) == _OVERFLOW
    skipped = metrics.filter(lost.fill_null(False)).unique("step", keep="first", maintain_order=True)
    done = metrics.filter(~lost.fill_null(False))
    if skipped.is_empty():
        return metrics
    skipped = skipped.join(done.select("step").unique(), on="step", how="anti", maintain_order="left")
    state = pl.lit("skipped").cast(METRIC_SCHEMA["state"])
    skipped = skipped.with_columns(value=pl.lit(None, pl.Float64), state=state)
    return pl.concat([done, skipped]).sort("line", maintain_order=True)


FAIRSEQ: Final = Dialect("fairseq", ("train_inner | ",), _RECORD, parse, conclude, numbers)

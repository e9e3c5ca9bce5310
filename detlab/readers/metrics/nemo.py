"""NeMo 2 (Lightning): ``Training epoch 0, iteration 3/99 | global_step: 3 | reduced_train_loss: 11.03``."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import (
    NUMBER,
    WORD_START,
    Dialect,
    Memory,
    exact_where,
    find_records,
    significant_metrics,
    take_apart,
)

_RECORD: Final = WORD_START + r"Training epoch \d+, iteration \d+/\d+ \|"
"""The iteration counts anew in each epoch and after a resume: the step is ``global_step``."""

_HEAD: Final = (
    r"Training epoch \d+, iteration \d+/\d+ (?<fields>(?:\| .*?)?\| global_step: (?<step>\d+)(?:\s.*|$))"
)
_FIELD: Final = rf"\| (?<name>[A-Za-z][^|:]*): (?<text>{NUMBER})"

_DIGITS: Final = 4
_COUNT: Final = r"^(?:global_step|epoch|(?:.*_)?(?:samples|batch_size|tokens))$"


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take records apart at their bars; a record without its ``global_step`` is of no known step."""
    fields = take_apart(find_records(lines, _RECORD), _HEAD, _FIELD)
    unit = pl.col("name").cast(pl.String).str.extract(r" in (\w+)$").cast(pl.Categorical)
    return fields.with_columns(unit=unit)


def numbers(fields: pl.DataFrame) -> pl.DataFrame:
    """Give all numbers four significant digits but the counts, which are printed whole."""
    whole = pl.col("name").cast(pl.String).str.contains(_COUNT)
    count = fields.select(whole & pl.col("text").str.contains(r"^\d+$")).to_series()
    return exact_where(significant_metrics(fields, _DIGITS), count)


NEMO: Final = Dialect("NeMo", ("Training epoch",), _RECORD, parse, numbers=numbers)

"""The one frame of step metrics, whatever they were read from: a row per number, with what it can prove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import polars as pl

METRIC_STATES: Final = ("value", "zero", "nan", "inf", "skipped", "absent")
"""A number of its own; a zero; not a number; infinite; its step was skipped; not there for another reason."""

METRIC_SCHEMA: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "rank": pl.Int64,
    "name": pl.Categorical,
    "value": pl.Float64,
    "unit": pl.Categorical,
    "width": pl.UInt8,
    "bits": pl.UInt64,
    "resolution": pl.Float64,
    "state": pl.Enum(METRIC_STATES),
    "note": pl.Categorical,
    "segment": pl.UInt16,
    "source": pl.Categorical,
    "line": pl.Int64,
}
"""Columns of `Run.metrics`.

``step``; ``rank`` (null: the number is not of one rank); ``name`` as it was logged; ``value`` (null when
skipped or absent); ``unit`` (null: none was printed); ``width`` of the native number (64, 32; 0: a printed
text, whose bits are unknown) and its ``bits``; ``resolution`` (distance of two neighbouring printed numbers;
null: exact); ``state``, and in ``note`` why, where it was concluded and not read; ``segment`` (counts the
stretches between restarts, from 0); ``source`` (file) and ``line`` (from 1; null: the file has no lines).
"""

_OPTIONAL: Final = ("rank", "unit", "note", "segment", "source", "line")
"""Columns that a reader may leave out; `segment` is then 0 and the others null."""


_LEAST_POWER: Final = -400  # far below the least float, which is then zero
_POWERS: Final = pl.Series([float(f"1e{power}") for power in range(_LEAST_POWER, 1 - _LEAST_POWER)])


def printed_metrics(fields: pl.DataFrame) -> pl.DataFrame:
    """Make metrics of printed numbers: their bits are unknown, their resolution is that of the text.

    Parameters
    ----------
    fields
        ``step``, ``name``, ``text`` (the number as printed) and any of the optional columns of the frame.
        A row whose text is no number is left out; an integer is exact.

    Returns
    -------
    The columns of `METRIC_SCHEMA`.
    """
    read = _with_values(fields).filter(pl.col("value").is_not_null())
    resolved = read.with_columns(resolution=_resolution())
    exact = pl.col("resolution").is_null() & pl.col("value").is_finite()
    return _complete(resolved.with_columns(width=pl.when(exact).then(64).otherwise(0)))


def _with_values(fields: pl.DataFrame) -> pl.DataFrame:
    """Add the value of each text; the few with commas between thousands are read a second time."""
    read = fields.with_columns(value=pl.col("text").cast(pl.Float64, strict=False))
    if not read["value"].has_nulls():
        return read
    plain = pl.col("text").str.replace_all(",", "", literal=True).cast(pl.Float64, strict=False)
    return read.with_columns(pl.col("value").fill_null(plain))


def exact_metrics(rows: pl.DataFrame, *, width: int = 64) -> pl.DataFrame:
    """Make metrics of numbers that are known to their last bit.

    Parameters
    ----------
    rows
        ``step``, ``name``, ``value`` (null: absent) and any of the optional columns of the frame.
    width
        32 or 64: the width that the number was written with.
    """
    return _complete(rows.with_columns(resolution=pl.lit(None, pl.Float64), width=pl.lit(width)))


def recorded_metrics(rows: Sequence[tuple[int, int, str, float]]) -> pl.DataFrame:
    """Make metrics of (step, rank, name, value) that a recorder wrote down in 64 bits."""
    schema = {"step": pl.Int64, "rank": pl.Int64, "name": pl.String, "value": pl.Float64}
    return exact_metrics(pl.DataFrame(rows, schema, orient="row"))


def missing_metrics(rows: pl.DataFrame) -> pl.DataFrame:
    """Make rows for numbers that are not there.

    Parameters
    ----------
    rows
        ``step``, ``name``, ``state``, ``note`` and any of the optional columns of the frame.
    """
    return _in_order(
        rows.with_columns(
            value=pl.lit(None, pl.Float64),
            width=pl.lit(0, pl.UInt8),
            bits=pl.lit(None, pl.UInt64),
            resolution=pl.lit(None, pl.Float64),
        )
    )


def join_metrics(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Put frames of metrics one below the other; none at all give an empty frame."""
    return pl.concat([pl.DataFrame(schema=METRIC_SCHEMA), *parts], rechunk=True)


def _complete(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the bits, as far as the width says that they are known, and the state."""
    wide = pl.col("value").reinterpret(dtype=pl.UInt64)
    narrow = pl.col("value").cast(pl.Float32).reinterpret(dtype=pl.UInt32).cast(pl.UInt64)
    bits = pl.when(pl.col("width") == 64).then(wide).when(pl.col("width") == 32).then(narrow)
    return _in_order(rows.with_columns(bits=bits, state=_state()))


def _state() -> pl.Expr:
    value = pl.col("value")
    return (
        pl.when(value.is_null())
        .then(pl.lit("absent"))
        .when(value.is_nan())
        .then(pl.lit("nan"))
        .when(value.is_infinite())
        .then(pl.lit("inf"))
        .when(value == 0)
        .then(pl.lit("zero"))
        .otherwise(pl.lit("value"))
        .cast(METRIC_SCHEMA["state"])
    )


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    lacking = [name for name in _OPTIONAL if name not in rows.columns]
    empty = [
        pl.lit(0 if name == "segment" else None).cast(METRIC_SCHEMA[name]).alias(name) for name in lacking
    ]
    return rows.with_columns(empty).select(pl.col(name).cast(kind) for name, kind in METRIC_SCHEMA.items())


def _resolution() -> pl.Expr:
    """Give one unit of the last printed digit; null for an integer, NaN and infinity."""
    text = pl.col("text")  # looked through for single characters: three times as fast as an expression
    point = text.str.find(".", literal=True).cast(pl.Int32)
    mark = pl.coalesce(text.str.find(letter, literal=True) for letter in "Ee").cast(pl.Int32)
    exponent = text.str.slice(mark + 1).cast(pl.Float64, strict=False).cast(pl.Int32, strict=False)
    decimals = pl.coalesce(mark, text.str.len_bytes()) - point - 1
    power = exponent.fill_null(0) - decimals.fill_null(0)
    return pl.when((point.is_not_null() | mark.is_not_null()) & pl.col("value").is_finite()).then(
        ten_to(power)
    )


def ten_to(power: pl.Expr) -> pl.Expr:
    """Give a power of ten as the nearest float, which repeated multiplication would miss."""
    return pl.lit(_POWERS).gather(power.clip(_LEAST_POWER, -_LEAST_POWER) - _LEAST_POWER)

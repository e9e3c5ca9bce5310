"""From records in the order of a log to segments between restarts, without the copies of other ranks."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.readers.metrics.names import is_measurement

_JITTER_INTERVALS: Final = 2
"""How many log intervals a rank may print behind another, where several ranks print every step."""

_SHOWN: Final = 5


def starts_record() -> pl.Expr:
    """Say of each row whether it is the first of its record, in the order of a log."""
    changes = [pl.col(name).ne_missing(pl.col(name).shift()) for name in ("step", "rank", "line")]
    return pl.any_horizontal(*changes, pl.int_range(pl.len()) == 0)


def split_at_restarts(metrics: pl.DataFrame, starts: pl.Series) -> pl.DataFrame:
    """Count the segments of one log.

    A segment begins where steps go back, and at the first record after a line that says that training
    starts or a checkpoint was loaded. Where ranks print copies of every step, one that is late by two
    intervals goes back nothing.

    Parameters
    ----------
    metrics
        Metrics of one file in the order of its lines.
    starts
        Numbers of the lines that announce a start, ascending.

    Returns
    -------
    The metrics with their ``segment``, from 0.
    """
    if not len(metrics):
        return metrics
    begin = metrics.select(starts_record()).to_series().to_numpy()
    heads = metrics.select("line", "step").filter(begin)
    lines, steps = heads["line"].to_numpy(), heads["step"].to_numpy()
    segments = np.cumsum(_going_back(steps) | _announced(lines, starts.to_numpy()))
    return metrics.with_columns(segment=pl.Series(segments[np.cumsum(begin) - 1], dtype=pl.UInt16))


def _going_back(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which records begin a segment because an earlier record had a later step."""
    gaps = np.diff(steps)
    ascending = gaps[gaps > 0]
    copies = bool((gaps == 0).any()) and len(ascending) > 0
    allowed = _JITTER_INTERVALS * int(np.median(ascending)) if copies else 0
    begins = np.zeros(len(steps), bool)
    start = 0
    while start < len(steps):
        behind = np.maximum.accumulate(steps[start:]) - steps[start:] > allowed
        if not behind.any():
            break
        start += int(behind.argmax())
        begins[start] = True
    return begins


def _announced(lines: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which records are the first after an announced start, with a record before it."""
    begins = np.zeros(len(lines), bool)
    at = np.searchsorted(lines, starts)
    begins[at[(at > 0) & (at < len(lines))]] = True
    return begins


def without_copies(metrics: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Keep one of the equal records that several ranks printed.

    Parameters
    ----------
    metrics
        Metrics of a whole run, with their segments.

    Returns
    -------
    metrics
        One row per segment, step, rank and name: the first.
    conflicts
        One sentence for each step whose metric was printed with two values in one segment; timings and
        other measurements of the machine may differ.
    """
    key = ["segment", "step", "rank", "name"]
    if _all_differ(metrics):
        return metrics, ()
    kept = _without_gaps(metrics, key).unique(key, keep="first", maintain_order=True)
    numbers = metrics.filter(pl.col("value").is_not_null() & ~is_measurement(pl.col("name")))
    first = pl.col("value").is_first_distinct()
    clashing = (
        numbers.group_by(key, maintain_order=True)
        .agg(pl.col("source", "value", "line").filter(first))
        .filter(pl.col("value").list.len() > 1)
        .sort("segment", "step", maintain_order=True)
    )
    told = tuple(_conflict(row) for row in clashing.head(_SHOWN).iter_rows(named=True))
    more = len(clashing) - _SHOWN
    return kept, (*told, f"and {more} more numbers that were printed with two values") if more > 0 else told


def _without_gaps(metrics: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Leave out that a number is not there where another rank printed it."""
    there = pl.col("value").is_not_null()
    if metrics["value"].null_count() == 0:
        return metrics
    known = metrics.filter(there).select(key).unique()
    gaps = metrics.with_row_index("at").filter(~there)
    idle = gaps.join(known, on=key, how="semi", nulls_equal=True)["at"]
    return metrics.with_row_index("at").filter(~pl.col("at").is_in(idle.implode())).drop("at")


def _all_differ(metrics: pl.DataFrame) -> bool:
    """Say whether no record and no number in one is there twice, by the heads of the records alone."""
    begin = metrics.select(starts_record()).to_series()
    heads = metrics.select("segment", "step", "rank").filter(begin)
    if heads.n_unique() < len(heads):
        return False
    names = metrics["name"].to_physical().cast(pl.UInt64)
    record = begin.cast(pl.UInt64).cum_sum()
    return (record * (names.max() or 0) + record + names).n_unique() == len(metrics)


def _conflict(row: dict[str, object]) -> str:
    values, lines, sources = row["value"], row["line"], row["source"]
    assert isinstance(values, list)
    assert isinstance(lines, list)
    assert isinstance(sources, list)
    places = [
        source if line is None else f"{source}, line {line}"
        for source, line in zip(sources, lines, strict=True)
    ]
    if sources[0] != sources[1]:
        where = f"{places[0]}, and {places[1]}"
    else:
        where = sources[0] if None in lines else f"{sources[0]}, lines {lines[0]} and {lines[1]}"
    return f"{where}: {row['name']} of step {row['step']} is both {values[0]} and {values[1]}"

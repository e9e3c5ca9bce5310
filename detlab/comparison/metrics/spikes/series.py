"""From the metrics of a run to the series that spikes are looked for in: one per loss or norm and rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.readers.metrics.names import choose_names, is_loss, is_norm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CONSTANT: Final = 8
"""From so many equal values on a metric is called constant; zeros are called so from three on."""
_ZEROS: Final = 3
_RECORD: Final = ["segment", "step"]


class Series(NamedTuple):
    """The values of one metric in one segment, after those of earlier segments that it went on from.

    Attributes
    ----------
    name, rank, segment
        Whose values they are; rank None: not of one rank.
    is_log
        Whether ``values`` are logarithms: norms are judged by ratio, losses by distance.
    steps, values
        Of every record with a finite value; a zero is none in a norm, nor in a loss that has others.
    start
        Index of the first record of this segment: what stands before is history.
    resolution
        The coarsest distance of two neighbouring printed values; 0 for exact ones.
    """

    name: str
    rank: int | None
    segment: int
    is_log: bool
    steps: Ints
    values: Floats
    start: int
    resolution: float


def names_in(metrics: pl.DataFrame) -> pl.DataFrame:
    """Give the ``name`` of every metric once: a small frame to choose names from."""
    return metrics.select(pl.col("name").unique(maintain_order=True))


def named(names: Sequence[str]) -> pl.Expr:
    """Say whether a row is of one of some metrics."""
    return pl.col("name").is_in(pl.Series(names, dtype=pl.Categorical).implode())


def kinds_of_names(metrics: pl.DataFrame) -> dict[str, bool]:
    """Give the losses and norms by name, and whether it is a norm."""
    names = names_in(metrics)
    return {
        **dict.fromkeys(choose_names(names, is_loss), False),
        **dict.fromkeys(choose_names(names, is_norm), True),
    }


def series_of(metrics: pl.DataFrame, history: int) -> Iterator[Series]:
    """Make the series of every loss and norm.

    Parameters
    ----------
    metrics
        Columns of `METRIC_SCHEMA`.
    history
        How many records of earlier segments stand at most before those of a segment.
    """
    for name, is_log in kinds_of_names(metrics).items():
        usable = (pl.col("name") == name) & (pl.col("state") == "value")
        rows = metrics.filter(usable & ((pl.col("value") > 0) if is_log else True))
        if rows.is_empty():
            continue
        for part in rows.partition_by("rank", maintain_order=True):
            yield from _by_segment(in_order(part), name, is_log, history)


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort the rows of one metric by segment and step; most stand so already."""
    if rows["step"].is_sorted() and rows["segment"].is_sorted():
        return rows
    return rows.sort(_RECORD, maintain_order=True)


def _by_segment(rows: pl.DataFrame, name: str, is_log: bool, history: int) -> Iterator[Series]:
    rank = rows["rank"][0]
    resolution = float(rows["resolution"].max() or 0.0)  # type: ignore[arg-type]
    past = rows.clear()
    for own in rows.partition_by("segment", maintain_order=True):
        past = past.filter(pl.col("step") < int(own["step"][0]))
        whole = pl.concat([past.tail(history), own])
        values = whole["value"].to_numpy()
        yield Series(
            name,
            rank,
            int(own["segment"][0]),
            is_log,
            whole["step"].to_numpy(),
            np.log(values) if is_log else values,
            min(len(past), history),
            0.0 if is_log else resolution,
        )
        past = pl.concat([past, own])


def record_steps(metrics: pl.DataFrame, segment: int | None = None) -> Ints:
    """Give the steps of which a segment, or the whole run, has a record of any kind, ascending."""
    rows = metrics if segment is None else metrics.filter(pl.col("segment") == segment)
    steps = rows["step"].to_numpy()
    heads = np.flatnonzero(np.diff(steps, prepend=-1 if len(steps) and steps[0] >= 0 else 0))
    once = pl.Series(steps[heads])  # a record has many rows, next to each other
    return (once if once.is_sorted() else once.sort()).unique(maintain_order=True).to_numpy()


def log_interval(steps: Ints) -> int:
    """Give the distance of two records: the most frequent one, the smallest of several; 1 for one record."""
    gaps = np.diff(steps)
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return 1
    values, counts = np.unique(gaps, return_counts=True)
    return int(values[counts.argmax()])


def trunk(metrics: pl.DataFrame, segment: int) -> pl.DataFrame:
    """Keep what a segment went on from and the segment itself: of each step the last record up to it."""
    if not len(metrics) or metrics["segment"].max() == 0:
        return metrics
    upto = metrics.filter(pl.col("segment") <= segment)
    starts = (
        upto.group_by("segment")
        .agg(start=pl.col("step").min())
        .sort("segment")
        .with_columns(until=pl.col("start").shift(-1).reverse().cum_min().reverse())
    )
    kept = upto.join(starts.select("segment", "until"), on="segment", how="left", maintain_order="left")
    kept = kept.filter(pl.col("until").is_null() | (pl.col("step") < pl.col("until")))
    return kept.drop("until")


def uninformative(metrics: pl.DataFrame) -> pl.DataFrame:
    """Find losses and norms that never change: they were not logged rightly, and prove nothing.

    Returns
    -------
    One row per metric: ``name``, ``value``, ``num_records``, ``resolution`` of its print (null: exact).
    """
    names = list(kinds_of_names(metrics))
    return (
        metrics.filter(named(names), pl.col("value").is_finite())
        .group_by("name", maintain_order=True)
        .agg(
            span=pl.col("value").max() - pl.col("value").min(),
            value=pl.col("value").first(),
            num_records=pl.len(),
            resolution=pl.col("resolution").max(),
        )
        .filter(
            pl.col("span") == 0,
            pl.col("num_records") >= pl.when(pl.col("value") == 0).then(_ZEROS).otherwise(_CONSTANT),
        )
        .select(pl.col("name").cast(pl.String), "value", "num_records", "resolution")
    )


def zero_stretches(metrics: pl.DataFrame) -> pl.DataFrame:
    """Find norms that are exactly zero for many records in a row, in a run where they are not always.

    Returns
    -------
    One row per stretch: ``name``, ``first_step``, ``last_step``, ``num_records``.
    """
    norms = [name for name, is_log in kinds_of_names(metrics).items() if is_log]
    zero = pl.col("value") == 0
    zeros = metrics.filter(named(norms) & zero)["name"].value_counts().filter(pl.col("count") >= _CONSTANT)
    constant = uninformative(metrics)["name"].to_list()
    names = [name for name in zeros["name"].cast(pl.String) if name not in constant]
    rows = metrics.filter(named(names), pl.col("value").is_not_null())
    rows = rows.sort("name", "rank", *_RECORD, maintain_order=True)
    return (
        rows.with_columns(run=pl.struct("name", "rank", "segment", zero=zero).rle_id())
        .filter(zero)
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("name").first().cast(pl.String),
            first_step=pl.col("step").min(),
            last_step=pl.col("step").max(),
            num_records=pl.len(),
        )
        .filter(pl.col("num_records") >= _CONSTANT)
        .drop("run")
    )

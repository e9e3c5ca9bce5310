"""Put the numbers of two runs side by side: the same metric, rank and step, after every restart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.precision import significant_digits
from detlab.run import Run

KEY: Final = ("name", "rank", "step")

_READ: Final = ("value", "bits", "width", "resolution", "state", "segment", "vague")
_KEPT: Final = (*_READ, "finest")

_SIGNED_AWAY: Final = "not printed: zero, negative or NaN"
"""The note of a number that may be any of these: a state of its own against a number above zero alone."""


def points_of(run: Run) -> pl.DataFrame:
    """Give the numbers of a run that say something, from all its segments.

    A number that is absent says something only where its record is there and would have shown it
    (``not printed``); otherwise the step was not run, or its record was cut: nobody knows.

    Returns
    -------
    ``name``, ``rank``, ``step``, ``value``, ``bits``, ``width``, ``resolution`` (0: a zero printed with
    significant digits, which is exactly zero), ``state``, ``segment``, ``vague`` (absent, and may be zero,
    negative or NaN), ``finest`` (the finest resolution of the metric; null where it is printed with a
    number of significant digits, or not at all).
    """
    metrics = run.metrics
    notes = metrics["note"].unique().drop_nulls().cast(pl.String)
    told = [note for note in notes if note.startswith("not printed")]
    note = pl.col("note")
    points = metrics.with_columns(
        vague=(pl.col("state") == "absent") & (note == _SIGNED_AWAY).fill_null(False)
    )
    says = (pl.col("state") != "absent") | note.is_in(
        pl.Series(told, dtype=pl.Categorical).implode()
    ).fill_null(False)
    return _with_formats(points.filter(says).select(*KEY, *_READ))


def _with_formats(points: pl.DataFrame) -> pl.DataFrame:
    """Add what the printed numbers of a metric, all together, show about the format of each.

    Where the resolution changes and the number of digits does not, no number but zero is printed as zero.
    Where both change, the format drops trailing zeros, and its resolution is the finest one.
    """
    digits = significant_digits("value", "resolution").drop_nulls()
    printed = points.filter((pl.col("width") == 0) & pl.col("resolution").is_not_null())
    formats = printed.group_by("name").agg(
        finest=pl.col("resolution").min(),
        significant=(digits.n_unique() == 1) & (pl.col("resolution").min() < pl.col("resolution").max()),
    )
    significant = formats.filter("significant")["name"].implode()
    zero = (pl.col("state") == "zero") & (pl.col("width") == 0) & pl.col("name").is_in(significant)
    exact = points.with_columns(resolution=pl.when(zero).then(0.0).otherwise("resolution"))
    finest = formats.filter(~pl.col("significant")).select("name", "finest")
    return exact.join(finest, on="name", how="left", maintain_order="left")


def pair_runs(
    a: pl.DataFrame, b: pl.DataFrame, names: Mapping[str, str] | None = None, offset: int = 0
) -> pl.DataFrame:
    """Join the points of two runs, each as its last segment that has it: what training went on from.

    Parameters
    ----------
    a, b
        As from `points_of`.
    names
        Names of metrics of run a with the names that run b has for them.
    offset
        Added to the steps of run b.

    Returns
    -------
    One row per number that either run has, by name in the order of run a, then by step: ``name``, ``rank``,
    ``step``, and every other column of `points_of` for each run, as ``value_a``, ``value_b`` and so on (null
    where a run lacks it).
    """
    if offset:
        b = b.with_columns(pl.col("step") + offset)
    ours, theirs = (_by_name(points) for points in (a, b))
    for name, other in (names or {}).items():
        if other in theirs:
            theirs[name] = theirs.pop(other).with_columns(name=pl.lit(name, pl.Categorical))
    joined = [
        _join(ours.get(name, a[:0]), theirs.get(name, b[:0])) for name in dict.fromkeys([*ours, *theirs])
    ]
    return pl.concat(joined) if joined else _join(a, b)


def last_points(points: pl.DataFrame) -> pl.DataFrame:
    """Keep of each number the one of the last segment that has it; by name, then by step."""
    return pl.concat([points[:0], *_by_name(points).values()])


def _by_name(points: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Take metrics apart: one join for each is several times as fast as one over all of them."""
    parts = points.partition_by("name", maintain_order=True)
    return {str(part["name"][0]): _last(part) for part in parts}


def _last(points: pl.DataFrame) -> pl.DataFrame:
    """Keep the last point of each step and rank, by step."""
    steps = points["step"].to_numpy()
    if len(steps) < 2 or bool(np.all(steps[1:] > steps[:-1])):
        return points
    by_segment = points.sort("segment", maintain_order=True)
    return by_segment.unique(["rank", "step"], keep="last", maintain_order=True).sort("step", "rank")


def _join(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    a, b = _with_ranks_alike(a, b)
    left, right = (
        each.rename({name: f"{name}_{run}" for name in _KEPT}) for each, run in ((a, "a"), (b, "b"))
    )
    if left.select(KEY).equals(right.select(KEY)):
        return left.hstack(right.drop(KEY).get_columns())
    joined = left.join(right, on=KEY, how="full", coalesce=True, nulls_equal=True)
    return joined.sort("step", "rank")


def _with_ranks_alike(a: pl.DataFrame, b: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Let numbers of no rank meet those of the one rank that the other run has of that metric."""
    ranks = [set(each["rank"].unique()) for each in (a, b)]
    if sorted(map(len, ranks)) == [1, 1] and ranks[0] != ranks[1] and {None} in ranks:
        none = pl.lit(None, pl.Int64)
        return a.with_columns(rank=none), b.with_columns(rank=none)
    return a, b


def pair_segments(points: pl.DataFrame) -> pl.DataFrame:
    """Join the numbers of steps that a run ran again with those of the segment that ran them before.

    Returns
    -------
    The columns of `pair_runs`, where a is the earlier and b the later segment, by name and step.
    """
    steps = points.select("segment", "step").unique() if points["segment"].n_unique() > 1 else points[:0]
    twice = steps.filter(pl.col("step").is_duplicated())["step"].unique()
    again = points.filter(pl.col("step").is_in(twice.implode()))
    ordered = again.sort("step", "segment", maintain_order=True)
    earlier = [pl.col(name).shift().over(KEY).alias(f"{name}_a") for name in _KEPT]
    later = [pl.col(name).alias(f"{name}_b") for name in _KEPT]
    pairs = ordered.select(*KEY, *earlier, *later).filter(pl.col("segment_a") < pl.col("segment_b"))
    return pairs.sort(pl.col("name").cast(pl.String), "step", "rank", "segment_b")

"""Put the numbers of two runs side by side: the same metric, rank and step, after every restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.precision import changes_format, significant_digits
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
    negative or NaN).
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
    return _exact_zeros(points.filter(says).select(*KEY, *_READ))


def _exact_zeros(points: pl.DataFrame) -> pl.DataFrame:
    """Mark zeros that are exact: with significant digits, no other number is printed as zero."""
    zero = (pl.col("state") == "zero") & (pl.col("width") == 0)
    names = points.filter(zero)["name"].unique()
    parts = points.filter(pl.col("name").is_in(names.implode())).partition_by("name") if len(names) else []
    exact = [part["name"][0] for part in parts if finest_resolution(part) is None]
    if not exact:
        return points
    marked = zero & pl.col("name").is_in(exact)
    return points.with_columns(resolution=pl.when(~marked).then("resolution").otherwise(0.0))


def finest_resolution(points: pl.DataFrame) -> float | None:
    """Give the finest resolution that one metric of one run was printed with.

    Where the resolution changes and the number of digits does not, these are significant digits, and there
    is no finest one. Where both change, the format drops trailing zeros: one resolution, now and then hidden.
    """
    printed = points.filter((pl.col("width") == 0) & (pl.col("resolution") > 0))
    finest: float | None = printed["resolution"].min()  # type: ignore[assignment]
    if finest == printed["resolution"].max():
        return finest
    digits = printed.select(significant_digits("value", "resolution")).to_series().drop_nulls()
    return None if digits.n_unique() == 1 else finest


def _format_of(points: pl.DataFrame) -> pl.Expr:
    """Give the finest resolution of the one format of a metric, or each number its own where that changed."""
    if points.select(changes_format()).item() if len(points) else False:
        return pl.col("resolution")
    return pl.lit(finest_resolution(points), pl.Float64)


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
    ``step``, and for each run, as ``value_a``, ``value_b`` and so on (null where a run lacks it), every other
    column of `points_of` and ``finest`` (see `finest_resolution`).
    """
    return pl.concat([_join(a[:0], b[:0]), *pair_metrics(a, b, names, offset)])


def pair_metrics(
    a: pl.DataFrame, b: pl.DataFrame, names: Mapping[str, str] | None = None, offset: int = 0
) -> Iterator[pl.DataFrame]:
    """Do as `pair_runs`, metric by metric."""
    if offset:
        b = b.with_columns(pl.col("step") + offset)
    ours, theirs = (_by_name(points) for points in (a, b))
    for name, other in (names or {}).items():
        if other in theirs:
            theirs[name] = theirs.pop(other).with_columns(name=pl.lit(name, pl.Categorical))
    for name in dict.fromkeys([*ours, *theirs]):
        yield _join(ours.get(name, a[:0]), theirs.get(name, b[:0]))


def last_points(points: pl.DataFrame) -> pl.DataFrame:
    """Keep of each number the one of the last segment that has it; by name, then by step."""
    return pl.concat([points[:0], *_by_name(points).values()])


def name_of(part: pl.DataFrame) -> str:
    """Give the name of the one metric whose rows these are."""
    return str(part["name"][0])


def _by_name(points: pl.DataFrame, *, last: bool = True) -> dict[str, pl.DataFrame]:
    """Take metrics apart: one join for each is several times as fast as one over all of them."""
    parts = points.partition_by("name", maintain_order=True)
    return {name_of(part): _last(part) if last else part for part in parts}


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
        each.with_columns(finest=_format_of(each)).rename({name: f"{name}_{run}" for name in _KEPT})
        for each, run in ((a, "a"), (b, "b"))
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
    parts = _by_name(again, last=False)
    finest = {
        name: None if part.select(changes_format()).item() else finest_resolution(part)
        for name, part in parts.items()
    }
    of_name = pl.col("name").cast(pl.String).replace_strict(finest, default=None, return_dtype=pl.Float64)
    ordered = again.with_columns(finest=of_name).sort("step", "segment", maintain_order=True)
    earlier = [pl.col(name).shift().over(KEY).alias(f"{name}_a") for name in _KEPT]
    later = [pl.col(name).alias(f"{name}_b") for name in _KEPT]
    pairs = ordered.select(*KEY, *earlier, *later).filter(pl.col("segment_a") < pl.col("segment_b"))
    return pairs.sort(pl.col("name").cast(pl.String), "step", "rank", "segment_b")

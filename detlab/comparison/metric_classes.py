"""Partition runs by the step metrics of their logs, as far as bits or printed digits can tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.metric_numbers import (
    CELL,
    NOT_RUN,
    PRINTED,
    cells_of,
    drop_unknown,
    fit,
    groups_of,
    of_several_formats,
    same,
)
from detlab.comparison.metrics.pairs import points_of
from detlab.readers.metrics.names import choose_names, is_measurement
from detlab.run import Run
from detlab.schema import Evidence

METRIC_COLUMNS: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "name": pl.String,
    "run": pl.String,
    "class": pl.Int64,
    "num_classes": pl.Int64,
    "resolution": pl.Float64,
}
"""Columns of `MetricClasses.frame`."""

_KEY: Final = ["step", "name", "rank"]
_NO_RANK: Final = -1
_CHUNK: Final = 1 << 22
"""How many pairs of runs are looked at together where numbers are of several precisions."""


@dataclass(frozen=True, eq=False, repr=False)
class MetricClasses:
    """The classes of runs at every step and metric.

    Attributes
    ----------
    places
        One row per step and metric, in order: ``step``, ``name``, ``resolution`` (the coarsest that any
        run printed the number with; null where it is exact in all).
    numbers
        Class of each run at each place, from 1 in the order of the runs; 0 where it has none.
    present
        Whether each run has a number or a state at each place.
    evidence
        PRINTED as soon as one number is known by its printed digits alone; NONE where there is nothing.
    """

    places: pl.DataFrame
    numbers: NDArray[np.int32]
    present: NDArray[np.bool_]
    evidence: Evidence

    def frame(self, labels: Sequence[str]) -> pl.DataFrame:
        """Give the classes with the columns of `METRIC_COLUMNS`: one row per step, metric and run."""
        num_runs = self.numbers.shape[1]
        at = np.repeat(np.arange(len(self.places)), num_runs)
        classes = pl.Series(self.numbers.ravel(), dtype=pl.Int64)
        rows = self.places[at].with_columns(
            run=pl.Series(list(labels) * len(self.places), dtype=pl.String),
            num_classes=pl.Series(np.repeat(self.numbers.max(axis=1, initial=0), num_runs), dtype=pl.Int64),
            **{"class": pl.select(pl.when(classes > 0).then(classes)).to_series()},
        )
        return rows.select(*METRIC_COLUMNS)

    @property
    def names(self) -> list[str]:
        """Every metric, in alphabetical order."""
        return self.places["name"].unique().sort().to_list()

    def differing(self, runs: Sequence[int] | None = None) -> pl.DataFrame:
        """Give the places at which some of the runs are in different classes.

        Parameters
        ----------
        runs
            Positions of the runs to look at; all of them by default.
        """
        numbers = self.numbers if runs is None else self.numbers[:, list(runs)]
        several = numbers.max(axis=1, initial=0) > _least(numbers)
        return self.places.filter(pl.Series(several, dtype=pl.Boolean))

    def first(self, runs: Sequence[int] | None = None) -> tuple[int | None, list[str]]:
        """Give the first step at which some of the runs are in different classes, and its metrics."""
        places = self.differing(runs)
        if places.is_empty():
            return None, []
        step = int(places["step"][0])
        return step, places.filter(pl.col("step") == step)["name"].to_list()


def _least(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    top = np.iinfo(np.int32).max
    return np.asarray(np.where(numbers > 0, numbers, top).min(axis=1, initial=top))


def partition_metrics(runs: Sequence[Run]) -> MetricClasses:
    """Put runs into classes at every step and metric, on the ranks that all runs with the metric have.

    Numbers that are known exactly are equal when their bits are, printed ones when what was printed is.
    Where runs printed a different number of digits, two numbers fit when one number can have been rounded
    to both. That is no equivalence: 2.3451 and 2.3452 both fit 2.345. So a number that fits two others
    which are proven different belongs to neither, and its run has no class there. What is left are classes
    in which all numbers fit each other; numbers of two classes are proven different, and wherever two
    numbers are, there are two classes. A NaN, an infinity, a skipped and an absent number are values of
    their own; a run that did not log the step or the metric has no class. Of a step that stands in several
    segments the last one counts: training went on from there. Measurements of the machine (times,
    throughput, memory, energy) are left out.
    """
    frames = _alike([_numbers(run) for run in runs])
    keys, rows = _positions([frame.select(_KEY) for frame in frames])
    cells = np.zeros((len(keys), len(runs)), CELL)
    for column, (frame, at) in enumerate(zip(frames, rows, strict=True)):
        cells[at, column] = cells_of(frame)  # of a row that comes twice the last one stays
    present = cells["kind"] != NOT_RUN
    drop_unknown(cells)
    places, heads = _places(keys)
    return MetricClasses(
        places.with_columns(resolution=_coarsest(cells, heads)),
        _over_ranks(_classes(cells), cells["kind"] != NOT_RUN, heads),
        np.logical_or.reduceat(present, heads) if len(heads) else present,
        _evidence(cells),
    )


def _numbers(run: Run) -> pl.DataFrame:
    """Give the numbers of one run that are evidence, those of later segments last."""
    names = choose_names(run.metrics, lambda name: ~is_measurement(name))
    points = points_of(run).filter(pl.col("name").is_in(names))
    points = points.with_columns(pl.col("name").cast(pl.String), pl.col("rank").fill_null(_NO_RANK))
    return points if points["segment"].is_sorted() else points.sort("segment", maintain_order=True)


def _positions(keys: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, list[NDArray[np.uint32]]]:
    """Give every key that any run has, in order, and where the rows of each run are among them."""
    unlike = [each for each in keys[1:] if not each.equals(keys[0])]  # most runs log the same steps
    every = pl.concat([keys[0], *unlike]).unique().sort(_KEY).with_row_index("at")

    def found(run: pl.DataFrame) -> NDArray[np.uint32]:
        return run.join(every, on=_KEY, how="left", maintain_order="left")["at"].to_numpy()

    first = found(keys[0])
    return every, [first if each.equals(keys[0]) else found(each) for each in keys]


def _alike(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Let numbers of no rank meet those of the one rank that other runs have of that metric; sort names."""
    ranks = pl.concat(
        frame.select("name", "rank").unique().with_columns(run=at) for at, frame in enumerate(frames)
    )
    ranks = ranks.group_by("name").agg(
        one_each=pl.len() == pl.col("run").n_unique(), rankless=(pl.col("rank") == _NO_RANK).any()
    )
    met = ranks.filter(pl.col("one_each") & pl.col("rankless"))["name"].to_list()
    names = pl.Enum(sorted(ranks["name"]))
    rank = pl.when(pl.col("name").is_in(met)).then(_NO_RANK).otherwise("rank")
    return [frame.with_columns(pl.col("name").cast(names), rank=rank) for frame in frames]


def _classes(cells: NDArray[np.void]) -> NDArray[np.int32]:
    """Give the classes at each place of each rank."""
    columns = [cells[:, run].copy() for run in range(cells.shape[1])]
    classes = _numbered(lambda a, b: same(columns[a], columns[b]), *cells.shape)
    mixed = np.flatnonzero(of_several_formats(cells))
    for part in np.array_split(mixed, 1 + len(mixed) * cells.shape[1] ** 2 // _CHUNK):
        classes[part] = _of_groups(groups_of(fit(cells[part])))
    return classes


def _of_groups(groups: NDArray[np.bool_]) -> NDArray[np.int32]:
    return _numbered(lambda a, b: groups[:, a, b], *groups.shape[:2])


def _numbered(
    together: Callable[[int, int], NDArray[np.bool_]], num_places: int, num_runs: int
) -> NDArray[np.int32]:
    """Count classes from 1 in the order of the runs; a run that is not together with itself has none."""
    numbers = np.zeros((num_places, num_runs), np.int32)
    following = np.ones(num_places, np.int32)
    for run in range(num_runs):
        has_class = together(run, run)
        for earlier in range(run):
            numbers[:, run] = np.where(together(earlier, run), numbers[:, earlier], numbers[:, run])
        is_new = has_class & (numbers[:, run] == 0)
        numbers[is_new, run] = following[is_new]
        following += is_new
    return numbers


def _places(keys: pl.DataFrame) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Give the steps and metrics, and the first row of each among all ranks."""
    if keys["rank"].n_unique() == 1:
        return keys.select("step", pl.col("name").cast(pl.String)), np.arange(len(keys))
    places = keys.group_by("step", "name", maintain_order=True).agg(pl.col("at").first())
    heads = places["at"].to_numpy().astype(np.int64)
    return places.select("step", pl.col("name").cast(pl.String)), heads


def _over_ranks(
    classes: NDArray[np.int32], present: NDArray[np.bool_], heads: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Put the classes of all ranks at one step and metric together."""
    if len(heads) == len(classes):
        return classes
    sizes = np.diff(heads, append=len(classes))
    anywhere = np.logical_or.reduceat(present, heads)
    common = (present | ~np.repeat(anywhere, sizes, axis=0)).all(axis=1)
    usable = np.logical_or.reduceat(common, heads)[:, None] & anywhere
    usable &= np.logical_and.reduceat((classes > 0) | ~common[:, None], heads)

    def together(a: int, b: int) -> NDArray[np.bool_]:
        equal = np.logical_and.reduceat((classes[:, a] == classes[:, b]) | ~common, heads)
        return np.asarray(equal & usable[:, a] & usable[:, b])

    return _numbered(together, len(heads), classes.shape[1])


def _coarsest(cells: NDArray[np.void], heads: NDArray[np.int64]) -> pl.Series:
    printed = np.where(cells["kind"] == PRINTED, cells["apart"], 0).max(axis=1, initial=0)
    coarsest = np.maximum.reduceat(printed, heads) if len(heads) else printed
    return pl.Series(np.where(coarsest > 0, coarsest, np.nan), dtype=pl.Float64, nan_to_null=True)


def _evidence(cells: NDArray[np.void]) -> Evidence:
    """Give what equality of the numbers proves."""
    if not len(cells):
        return Evidence.NONE
    return Evidence.PRINTED if (cells["kind"] == PRINTED).any() else Evidence.EXACT

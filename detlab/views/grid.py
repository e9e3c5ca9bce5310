"""A map of verdicts as a still picture: its pooled cells, and what stands behind each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.comparison.places import site_at
from detlab.schema import Verdict
from detlab.views.cells import MapSource
from detlab.views.pooling import MATCH, ORIGIN, UNTRACED, Codes

MAX_MARKERS: Final = 2000
"""A map marks at most this many cells that hold an origin; it counts all of them."""


@dataclass(frozen=True, slots=True)
class Band:
    """A phase of the step, from one column up to another."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A map of verdicts.

    Attributes
    ----------
    source
        Answers what stands behind a cell.
    meta
        What `MapSource.window` says of the picture: its state and size, labels, bands and counts.
    codes
        The pooled cells; see `detlab.views.pooling`.
    steps
        The steps shown; the worst of them where columns are calls.
    """

    source: MapSource
    meta: dict[str, Any]
    codes: Codes
    steps: tuple[int, ...]

    @property
    def rows(self) -> str:
        """What rows are: ``rank`` or ``op``."""
        return str(self.meta["state"]["rows"])

    @property
    def columns(self) -> str:
        """What columns are: ``call`` or ``step``."""
        return str(self.meta["state"]["columns"])

    @property
    def num_rows(self) -> int:
        """Number of rows before pooling."""
        return int(self.meta["num_rows"])

    @property
    def num_columns(self) -> int:
        """Number of columns before pooling."""
        return int(self.meta["num_columns"])

    @property
    def row_factor(self) -> int:
        """Number of rows that are pooled into one."""
        return int(self.meta["row_factor"])

    @property
    def column_factor(self) -> int:
        """Number of columns that are pooled into one."""
        return int(self.meta["column_factor"])

    @property
    def row_labels(self) -> tuple[str, ...]:
        """A name for each pooled row."""
        return tuple(self.meta["row_labels"])

    @property
    def bands(self) -> tuple[Band, ...]:
        """Where the phases of the step begin and end, as the rank `bands_of` runs them."""
        return tuple(Band(*band) for band in self.meta["bands"])

    @property
    def bands_of(self) -> int:
        """The rank whose phases are shown; -1 for none."""
        return int(self.meta["bands_of"])

    @property
    def counts(self) -> dict[Verdict, int]:
        """Calls by verdict."""
        return {verdict: self.meta["counts"][verdict.name.lower()] for verdict in Verdict}

    @property
    def num_aside(self) -> int:
        """Number of calls that were set aside."""
        return int(self.meta["aside"])

    @property
    def has_untraced(self) -> bool:
        """Whether any rank has no call where others do; a row of an op is empty wherever others run."""
        return bool(self.meta["has_untraced"])

    @property
    def differing(self) -> NDArray[np.int64]:
        """Number of calls of a map of ranks by pooled row and code, without matches."""
        by_row = self.source.row_counts(self.meta["state"])[:, : 1 + len(Verdict)]
        by_row[:, : MATCH + 1] = 0
        starts = np.arange(0, self.num_rows, self.row_factor)
        pooled: NDArray[np.int64] = np.add.reduceat(by_row, starts, axis=0)
        return pooled

    def origins(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give rows and columns of the cells that hold an origin, at most `MAX_MARKERS` of them."""
        rows, columns = np.nonzero(self.codes == ORIGIN)
        return rows[:MAX_MARKERS], columns[:MAX_MARKERS]

    def columns_of(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.intp]:
        """Give the unpooled column of the first of the worst calls in each of some cells."""
        return self.source.first_cells(self.meta, self.codes, np.stack([rows, columns], axis=1))[1]

    def untraced_runs(self) -> Iterator[tuple[int, int, int]]:
        """Give each run of cells without a call: pooled row, first unpooled column, and one past its last."""
        empty = np.pad(self.codes == UNTRACED, ((0, 0), (1, 1)))
        edges = empty[:, 1:] != empty[:, :-1]
        for row in np.flatnonzero(edges.any(axis=1)).tolist():
            bounds = np.minimum(np.flatnonzero(edges[row]) * self.column_factor, self.num_columns)
            for start, stop in bounds.reshape(-1, 2).tolist():
                yield row, start, stop

    def site_of(self, cmp: Comparison, row: int, column: int) -> str:
        """Give the site of the worst and first call of one pooled cell; empty where nothing differs."""
        if self.codes[row, column] <= MATCH:
            return ""
        down, right = self.row_factor, self.column_factor
        block = row * down, (row + 1) * down, column * right, (column + 1) * right
        called = self.source.call_in(self.meta["state"], block)
        return "" if called is None else str(site_at(cmp.ranks[called.number], called.position))

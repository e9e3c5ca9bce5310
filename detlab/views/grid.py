"""A map of verdicts: what its cells, rows, columns and phases are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.comparison.places import site_at
from detlab.schema import Verdict
from detlab.views.pooling import ORIGIN, UNTRACED, Codes

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
    codes
        The pooled cells, at most 500 x 1500; see `detlab.views.pooling`.
    row, column, rank, position
        For each cell its worst and first call: unpooled row and column, number of the rank in the
        comparison, position there. -1 in cells without a divergence.
    differing
        Number of calls by pooled row and code, without matches.
    num_rows, num_columns
        Size before pooling.
    row_factor, column_factor
        Number of rows and columns that are pooled into one.
    row_labels
        A name for each pooled row.
    rows, columns
        What they are: ``rank`` or ``op``, and ``call`` or ``step``.
    steps
        The steps shown; the worst of them where columns are calls.
    bands
        Where the phases of the step begin and end, as the rank ``bands_of`` runs them.
    counts, num_aside
        Calls by verdict, and how many were set aside.
    """

    codes: Codes
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    rank: NDArray[np.int64]
    position: NDArray[np.int64]
    differing: NDArray[np.int64]
    num_rows: int
    num_columns: int
    row_factor: int
    column_factor: int
    row_labels: tuple[str, ...]
    rows: str
    columns: str
    steps: tuple[int, ...]
    bands: tuple[Band, ...] = ()
    bands_of: int = -1
    counts: dict[Verdict, int] = field(default_factory=dict)
    num_aside: int = 0

    @property
    def has_untraced(self) -> bool:
        """Whether any rank has no call where others do; a row of an op is empty wherever others run."""
        return self.rows == "rank" and bool((self.codes == UNTRACED).any())

    def origins(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give rows and columns of the cells that hold an origin, at most `MAX_MARKERS` of them."""
        rows, columns = np.nonzero(self.codes == ORIGIN)
        return rows[:MAX_MARKERS], columns[:MAX_MARKERS]

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
        if self.rank[row, column] < 0:
            return ""
        return str(site_at(cmp.ranks[self.rank[row, column]], int(self.position[row, column])))

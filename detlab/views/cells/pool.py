"""Shrink a window of cells to a tile: the worst of whole neighbours, and what differs in rows and columns."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.views.cells.presence import shown_as
from detlab.views.pooling import MATCH, ORIGIN, Codes

_CHUNK_BYTES: Final = 1 << 20
"""So many cells are worked on at a time: they stay in the processor's cache."""

_FEW: Final = 24
"""Up to so many neighbouring columns are pooled one strided pass each."""


class Pooled(NamedTuple):
    """A tile and its margins.

    Attributes
    ----------
    tile
        The worst code of each block of cells.
    origins, differing
        Number of cells by tile row.
    column_rows
        For each tile column the number of rows that differ, the most of its columns.
    """

    tile: Codes
    origins: NDArray[np.int64]
    differing: NDArray[np.int64]
    column_rows: NDArray[np.int64]


def pool(
    cells: Codes,
    rows: NDArray[np.intp],
    columns: slice,
    factors: tuple[int, int],
    table: bytes | None = None,
) -> Pooled:
    """Pool a window of cells.

    Parameters
    ----------
    cells
        All cells.
    rows, columns
        The window: rows of ``cells`` in the order of display, and a range of columns.
    factors
        Number of rows and of columns that become one; the last ones may be fewer.
    table
        The code that each value of a cell is shown as; None: cells hold their codes.
    """
    down, right = factors
    num_columns = columns.stop - columns.start
    shape = -(-len(rows) // down), -(-num_columns // right)
    tile = np.zeros(shape, np.uint8)
    counts = np.zeros((2, shape[0]), np.int64)
    by_column = np.zeros(num_columns, np.int64)
    at_once = max(1, _CHUNK_BYTES // max(1, down * num_columns))
    for first in range(0, shape[0], at_once):
        here = slice(first, min(first + at_once, shape[0]))
        chunk = shown_as(_take(cells, rows[here.start * down : here.stop * down], columns), table)
        tall = _whole(chunk, down).reshape(here.stop - here.start, down, num_columns)
        tile[here] = _pool_columns(tall.max(axis=1) if down > 1 else tall[:, 0], right)
        worst = int(tile[here].max(initial=0))
        if worst > MATCH:
            counts[1, here] = _count_differing(tall, by_column)
        if worst == ORIGIN:
            counts[0, here] = [np.count_nonzero(block == ORIGIN) for block in tall]
    return Pooled(tile, counts[0], counts[1], _pool_columns(by_column[None], right)[0])


def _take(cells: Codes, rows: NDArray[np.intp], columns: slice) -> Codes:
    """Take a window; rows that follow each other are not copied."""
    if len(rows) and (np.diff(rows) == 1).all():
        return cells[rows[0] : rows[-1] + 1, columns]
    return cells[rows, columns]


def _whole(cells: Codes, down: int) -> Codes:
    """Fill up the last rows with untraced ones, which are never the worst."""
    missing = -len(cells) % down
    return np.pad(cells, ((0, missing), (0, 0))) if missing else cells


def _pool_columns(cells: NDArray[Any], right: int) -> NDArray[Any]:
    missing = -cells.shape[1] % right
    if missing:
        cells = np.pad(cells, ((0, 0), (0, missing)))
    if right > _FEW:
        wide: NDArray[Any] = cells.reshape(len(cells), -1, right).max(axis=2)
        return wide
    pooled = cells[:, ::right].copy()
    for first in range(1, right):
        np.maximum(pooled, cells[:, first::right], out=pooled)
    return pooled


def _count_differing(tall: Codes, by_column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the cells that differ by tile row, and add them up by column."""
    differs = (tall > MATCH).view(np.uint8)
    wide_enough = np.uint8 if tall.shape[1] < 256 else np.uint32
    per_row: NDArray[Any] = np.add.reduce(differs, axis=1, dtype=wide_enough)
    by_column += per_row.sum(axis=0, dtype=np.int64)
    counts: NDArray[np.int64] = per_row.sum(axis=1, dtype=np.int64)
    return counts

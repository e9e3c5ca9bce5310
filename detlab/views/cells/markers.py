"""Single cells of a map: what deserves a mark of its own size, and the worst one of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.schema import Verdict
from detlab.views.cells.pool import hide
from detlab.views.pooling import ORIGIN, UNTRACED, Codes

MAX_MARKERS: Final = 2_000
"""A map marks at most so many cells."""

RARE: Final = 150
"""A verdict that fills at most so many cells of a tile is marked: a lone pixel is not seen."""


class Cell(NamedTuple):
    """A cell of a block and its code."""

    row: int
    column: int
    code: int


def worst_cell(
    cells: Codes, rows: NDArray[np.intp], columns: tuple[int, int], hidden: Sequence[int]
) -> Cell | None:
    """Find the first of the worst cells of a block, row by row; None where no call was recorded.

    Returns
    -------
    The row counted within the block, the column within all cells.
    """
    block = hide(cells[rows, slice(*columns)], hidden)
    if not block.max(initial=UNTRACED):
        return None
    row, column = np.unravel_index(np.argmax(block), block.shape)
    return Cell(int(row), columns[0] + int(column), int(block[row, column]))


def find_markers(
    cells: Codes, index: NDArray[np.intp], window: Sequence[int], factors: tuple[int, int], tile: Codes
) -> list[list[int]]:
    """Give displayed row, column and code of the cells to mark: rare verdicts, then origins.

    Each is the first cell of a block that has the verdict which the block shows.
    """
    found: list[list[int]] = []
    for code in range(1 + Verdict.ABSORBED, ORIGIN + 1):
        places = np.argwhere(tile == code)
        if code == ORIGIN or len(places) <= RARE:
            places = places[: MAX_MARKERS - len(found)]
            rows, columns = first_cells(cells, index, window, factors, (places, code))
            found += [[*cell, code] for cell in zip(rows.tolist(), columns.tolist(), strict=True)]
    return found


def first_cells(
    cells: Codes,
    index: NDArray[np.intp],
    window: Sequence[int],
    factors: tuple[int, int],
    wanted: tuple[NDArray[np.intp], NDArray[np.uint8] | int],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give displayed row and column of the first cell with a code in each of some blocks.

    Parameters
    ----------
    cells, index, window, factors
        All cells, the row of each displayed one, the window, and how many cells a block has.
    wanted
        Rows and columns of the tile, and the code of each block.
    """
    (places, codes), (r0, r1, c0, c1) = wanted, window
    # what overhangs repeats the last row or column, which is never the first of equal ones
    rows = np.minimum(r0 + places[:, :1] * factors[0] + np.arange(factors[0]), r1 - 1)
    columns = np.minimum(c0 + places[:, 1:] * factors[1] + np.arange(factors[1]), c1 - 1)
    blocks = cells[index[rows][:, :, None], columns[:, None, :]].reshape(len(places), factors[0] * factors[1])
    first = (blocks == np.reshape(codes, (-1, 1))).argmax(axis=1)
    at = np.arange(len(places))
    return rows[at, first // factors[1]], columns[at, first % factors[1]]

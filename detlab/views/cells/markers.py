"""Single cells of a map: what deserves a mark of its own size, and the worst one of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.schema import Verdict
from detlab.views.cells.presence import shown_as
from detlab.views.pooling import ORIGIN, UNTRACED, Codes

MAX_MARKERS: Final = 2_000
"""A map marks at most so many cells."""

RARE: Final = 150
"""A verdict that fills at most so many cells of a tile is marked: a lone pixel is not seen."""


class Cell(NamedTuple):
    """A displayed cell and its code."""

    row: int
    column: int
    code: int


class View(NamedTuple):
    """A window of cells and how it is pooled.

    Attributes
    ----------
    cells, rows
        All cells, and the row of each displayed one.
    table
        The code that each value of a cell is shown as; None: cells hold their codes.
    window, factors
        First row and one past the last, the same of columns, and the rows and columns of a block.
    """

    cells: NDArray[np.uint8]
    rows: NDArray[np.intp]
    table: bytes | None
    window: Sequence[int]
    factors: tuple[int, int]


def worst_cell(view: View) -> Cell | None:
    """Find the first of the worst cells of a window, row by row; None where no call was recorded.

    Returns
    -------
    Displayed row and column, and the code.
    """
    r0, r1, c0, c1 = view.window
    block = shown_as(view.cells[view.rows[r0:r1], c0:c1], view.table)
    if not block.max(initial=UNTRACED):
        return None
    row, column = np.unravel_index(np.argmax(block), block.shape)
    return Cell(r0 + int(row), c0 + int(column), int(block[row, column]))


def find_markers(view: View, tile: Codes) -> list[list[int]]:
    """Give displayed row, column and code of the cells to mark: rare verdicts, then origins.

    Each is the first cell of a block that has the verdict which the block shows.
    """
    found: list[list[int]] = []
    for code in range(1 + Verdict.ABSORBED, ORIGIN + 1):
        places = np.argwhere(tile == code)
        if code == ORIGIN or len(places) <= RARE:
            places = places[: MAX_MARKERS - len(found)]
            rows, columns = first_cells(view, tile, places)
            found += [[*cell, code] for cell in zip(rows.tolist(), columns.tolist(), strict=True)]
    return found


def first_cells(
    view: View, tile: Codes, places: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give displayed row and column of the first cell that gave some cells of a tile their code."""
    r0, r1, c0, c1 = view.window
    down, right = view.factors
    # what overhangs repeats the last row or column, which is never the first of equal ones
    rows = np.minimum(r0 + places[:, :1] * down + np.arange(down), r1 - 1)
    columns = np.minimum(c0 + places[:, 1:] * right + np.arange(right), c1 - 1)
    blocks = shown_as(view.cells[view.rows[rows][:, :, None], columns[:, None, :]], view.table)
    codes = tile[places[:, 0], places[:, 1]]
    first = (blocks == codes[:, None, None]).reshape(len(places), down * right).argmax(axis=1)
    at = np.arange(len(places))
    return rows[at, first // right], columns[at, first % right]

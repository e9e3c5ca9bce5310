"""Which call stands behind a cell: the first one with the verdict that the cell shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.views.cells.fill import codes_at
from detlab.views.cells.planes import PlaneKey, Planes
from detlab.views.cells.presence import hide
from detlab.views.cells.programs import Program


class Called(NamedTuple):
    """A compared call: the number of its rank in the comparison, and its position there."""

    number: int
    position: int


def first_call(
    planes: Planes, key: PlaneKey, cell: tuple[int, int], code: int, hidden: Sequence[int]
) -> Called | None:
    """Find the first call with a code in one cell, by rank and then by position.

    Parameters
    ----------
    planes, key, cell
        The cell, its row as in the cells, and what they are cells of.
    code, hidden
        What the cell shows, and the codes that it shows as matches.
    """
    row, by_op = cell[0], key[0] == "op"
    of_program: dict[int, NDArray[np.intp]] = {}
    for number in range(len(planes.cmp.ranks)) if by_op else [row]:
        program = planes.programs[planes.program_of[number]]
        if program.number not in of_program:
            of_program[program.number] = _positions(planes, program, key, cell)
        positions = of_program[program.number]
        found = hide(codes_at(planes.cmp.ranks[number], positions), hidden) == code
        if found.any():
            return Called(number, int(positions[np.argmax(found)]))
    return None


def _positions(planes: Planes, program: Program, key: PlaneKey, cell: tuple[int, int]) -> NDArray[np.intp]:
    """Give the positions of a program that fall into one cell, ascending."""
    (rows, columns, steps), (row, column) = key, cell
    if columns == "step":
        ranges = [np.arange(*run) for run in program.runs([steps[column]])]
        positions = np.concatenate([np.empty(0, np.intp), *ranges])
    else:
        at = (program.position_at(step, column) for step in steps)
        positions = np.sort(np.array([each for each in at if each is not None], np.intp))
    return positions[planes.op_rows(program)[positions] == row] if rows == "op" else positions

"""Cells at full resolution: a row for each rank or op, a column for each call or step, the latest kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.comparison.ranks import RankComparison
from detlab.views.cells.callees import Callees
from detlab.views.cells.counts import count_calls
from detlab.views.cells.fill import CODES, PRESENCE, Cells, Filler, codes_at
from detlab.views.cells.presence import table_of
from detlab.views.cells.programs import Program, find_programs
from detlab.views.pooling import MATCH, Codes

_MAX_KEPT_BYTES: Final = 400_000_000

PlaneKey = tuple[str, str, tuple[int, ...]]
"""Rows, columns and steps."""


class Plane(NamedTuple):
    """All cells of a picture: the worst code of each, or which verdicts there are, see `table_of`."""

    cells: Cells
    is_presence: bool

    def table(self, hidden: Sequence[int] = ()) -> bytes | None:
        """Give the code that each value of a cell is shown as; None where that is the value."""
        return table_of(tuple(hidden), self.is_presence)


class Planes:
    """The cells of one comparison.

    Attributes
    ----------
    programs, program_of
        See `find_programs`.
    callees
        The names of what is called.
    """

    def __init__(self, cmp: Comparison) -> None:
        self.cmp = cmp
        self.programs, self.program_of = find_programs(cmp.ranks)
        self.callees = Callees()
        self._kept: dict[tuple[PlaneKey, bool], Plane] = {}
        self._counts: dict[tuple[int, ...], NDArray[np.int64]] = {}

    @cached_property
    def ops(self) -> tuple[str, ...]:
        """Every op by its first appearance in the name tables."""
        self.read_names()
        return tuple(dict.fromkeys(callee.op for callee in self.callees.names))

    @cached_property
    def _op_of(self) -> NDArray[np.int32]:
        rows = {op: row for row, op in enumerate(self.ops)}
        return np.array([rows[callee.op] for callee in self.callees.names], np.int32)

    def read_names(self) -> None:
        """Give every callee its number; ranks that run one program call the same ones."""
        for program in self.programs:
            self.callees.add(self.cmp.ranks[program.members[0]])

    def op_rows(self, program: Program) -> NDArray[np.int32]:
        """Give the row of the op at each position of a program."""
        of_callee = self._op_of
        rows: NDArray[np.int32] = of_callee[self.callees_of(program)]
        return rows

    def callees_of(self, program: Program) -> NDArray[np.int32]:
        """Give the number of the callee at each position of a program, see `Callees.names`."""
        return self.callees.of_program(program, self.cmp.ranks[program.members[0]])

    def plane(self, rows: str, columns: str, steps: tuple[int, ...], hidden: Sequence[int] = ()) -> Plane:
        """Give all cells of a picture, not to be written to.

        Where verdicts are hidden and cells are many calls each, they hold which verdicts there are.
        """
        is_presence = bool(hidden) and not (rows == "rank" and columns == "call" and len(steps) == 1)
        key = (rows, columns, steps), is_presence
        plane = self._kept.pop(key, None) or Plane(self._fill(*key), is_presence)
        plane.cells.flags.writeable = False
        self._kept[key] = plane
        while (
            len(self._kept) > 1 and sum(each.cells.nbytes for each in self._kept.values()) > _MAX_KEPT_BYTES
        ):
            del self._kept[next(iter(self._kept))]
        return plane

    def cells(self, rows: str, columns: str, steps: tuple[int, ...]) -> Codes:
        """Give the worst code of every cell of a picture, not to be written to."""
        return self.plane(rows, columns, steps).cells

    def _fill(self, key: PlaneKey, is_presence: bool) -> Cells:
        rows, columns, steps = key
        filler = Filler(self.cmp.ranks, self.programs, steps, PRESENCE if is_presence else CODES)
        if rows == "op":
            shape = len(self.ops), self.num_columns(columns, steps)
            return filler.of_ops(self.op_rows, columns == "step", shape)
        return filler.of_ranks_by_step() if columns == "step" else filler.of_ranks()

    def num_columns(self, columns: str, steps: Sequence[int]) -> int:
        """Count the steps, or the calls of the longest of some steps."""
        if columns == "step":
            return len(steps)
        return max((program.width(steps) for program in self.programs), default=0)

    def counts(self, steps: Sequence[int]) -> NDArray[np.int64]:
        """Count the calls of some steps by rank, see `count_calls`."""
        key = tuple(steps)
        if key not in self._counts:
            self._counts[key] = count_calls(self.cmp.ranks, self.programs, key)
        return self._counts[key]

    def first_differing_step(self) -> int | None:
        """Give the least step in which a call differs that was not set aside; None without one."""
        first: int | None = None
        for program in self.programs:
            for number in program.members.tolist():
                slices = program.slices if first is None else program.slices[program.slices["step"] < first]
                found = _steps_that_differ(self.cmp.ranks[number], slices)
                first = min(found, default=first)
        return first


def _steps_that_differ(rank: RankComparison, slices: NDArray[np.void]) -> list[int]:
    """Give the steps of those slices in which a call differs that was not set aside."""
    bounds = slices["position"], slices["position"] + slices["num_rows"]
    first, stop = np.searchsorted(rank.differing, bounds)
    return [
        int(slices["step"][at])
        for at in np.flatnonzero(first < stop).tolist()
        if not rank.any_aside or codes_at(rank, rank.differing[first[at] : stop[at]]).max() > MATCH
    ]

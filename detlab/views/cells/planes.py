"""Cells at full resolution: one code per row and column, the worst of the calls that fall into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.comparison.ranks import RankComparison
from detlab.views.cells.callees import Callees
from detlab.views.cells.counts import count_calls
from detlab.views.cells.programs import Program, find_programs
from detlab.views.pooling import MATCH, UNTRACED, Codes, codes_of

_MAX_KEPT_BYTES: Final = 400_000_000

PlaneKey = tuple[str, str, tuple[int, ...]]
"""Rows, columns and steps."""


class Planes:
    """The cells of one comparison; the latest ones are kept.

    Cells of ranks have one row per rank in the order of the comparison, and a last row without calls
    for the places that were not compared.
    """

    def __init__(self, cmp: Comparison) -> None:
        self.cmp = cmp
        self.programs, self.program_of = find_programs(cmp.ranks)
        self.callees = Callees()
        self._kept: dict[PlaneKey, Codes] = {}
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

    def cells(self, rows: str, columns: str, steps: tuple[int, ...]) -> Codes:
        """Give all cells of a picture, see `detlab.views.pooling` for the codes; not to be written to."""
        key = rows, columns, steps
        cells = self._kept.pop(key, None)
        if cells is None:
            fill = self._of_ops if rows == "op" else self._of_ranks
            cells = fill(columns == "step", steps)
            cells.flags.writeable = False
        self._kept[key] = cells
        while len(self._kept) > 1 and sum(each.nbytes for each in self._kept.values()) > _MAX_KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        return cells

    def num_columns(self, columns: str, steps: Sequence[int]) -> int:
        """Count the steps, or the calls of the longest of some steps."""
        if columns == "step":
            return len(steps)
        return max((program.width(steps) for program in self.programs), default=0)

    def _of_ranks(self, by_step: bool, steps: tuple[int, ...]) -> Codes:
        width = self.num_columns("step" if by_step else "call", steps)
        cells = np.zeros((len(self.cmp.ranks) + 1, width), np.uint8)
        for program in self.programs:
            slices = program.slices_in(steps)
            if by_step:
                cells[np.ix_(program.members, np.searchsorted(steps, slices["step"]))] = MATCH
            else:  # the calls of a step fill its columns without a gap
                cells[_range(program.members), : program.width(steps)] = MATCH
            for number in program.members.tolist():
                if self.cmp.ranks[number].any_aside:  # some calls may be masked as untraced
                    cells[number] = UNTRACED
                for part, codes in self._odd_slices(number, slices):
                    column = np.searchsorted(steps, part["step"]) if by_step else int(part["column"])
                    size = 1 if by_step else len(codes)
                    found = codes.max(keepdims=True) if by_step else codes
                    into = cells[number, column : column + size]
                    np.maximum(into, found, out=into)
        return cells

    def _of_ops(self, by_step: bool, steps: tuple[int, ...]) -> Codes:
        cells = np.zeros((len(self.ops), self.num_columns("step" if by_step else "call", steps)), np.uint8)
        for program in self.programs:
            slices = program.slices_in(steps)
            worst = self._worst_of(program, slices)
            rows = self.op_rows(program)
            for part in slices:
                here = slice(int(part["position"]), int(part["position"] + part["num_rows"]))
                if by_step:
                    column = int(np.searchsorted(steps, part["step"]))
                    np.maximum.at(cells[:, column], rows[here], worst[here])
                else:
                    at = rows[here], np.arange(part["num_rows"]) + part["column"]
                    cells[at] = np.maximum(cells[at], worst[here])
        return cells

    def _worst_of(self, program: Program, slices: NDArray[np.void]) -> Codes:
        """Give the worst code at each position over the ranks that run a program."""
        ranks = [self.cmp.ranks[number] for number in program.members.tolist()]
        recorded = any(not rank.any_aside for rank in ranks)
        worst = np.full(len(ranks[0].verdicts), MATCH if recorded else 0, np.uint8)
        for number in program.members.tolist():
            for part, codes in self._odd_slices(number, slices):
                into = worst[int(part["position"]) :][: len(codes)]
                np.maximum(into, codes, out=into)
        return worst

    def _odd_slices(self, number: int, slices: NDArray[np.void]) -> Iterator[tuple[np.void, Codes]]:
        """Give the codes of those slices of a rank that hold anything but matches, or any mask."""
        rank = self.cmp.ranks[number]
        if not (len(rank.differing) or rank.any_aside):
            return
        first, stop = slices["position"], slices["position"] + slices["num_rows"]
        edges = np.searchsorted(rank.differing, [first, stop])
        for at in np.flatnonzero((edges[0] < edges[1]) | rank.any_aside).tolist():
            yield slices[at], codes_between(rank, int(first[at]), int(stop[at]))

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
                rank = self.cmp.ranks[number]
                slices = program.slices if first is None else program.slices[program.slices["step"] < first]
                found = self._odd_slices(number, slices)
                if rank.any_aside:
                    found = ((part, codes) for part, codes in found if codes.max() > MATCH)
                first = min((int(part["step"]) for part, _ in found), default=first)
        return first


def codes_between(rank: RankComparison, first: int, stop: int) -> Codes:
    """Give the codes of a range of positions."""
    if not rank.any_aside:
        return rank.verdicts[first:stop] + np.uint8(1)
    return codes_of(rank.verdicts[first:stop], rank.masks[first:stop])


def codes_at(rank: RankComparison, positions: NDArray[np.intp]) -> Codes:
    """Give the codes at some positions."""
    return codes_of(rank.verdicts[positions], rank.masks[positions])


def _range(numbers: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """Give numbers that follow each other as a slice, which is filled without a look-up."""
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers

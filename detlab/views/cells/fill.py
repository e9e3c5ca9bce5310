"""Fill the cells of a map from the verdicts of ranks, many steps at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.views.cells.presence import presence_of
from detlab.views.cells.programs import Program, Stack
from detlab.views.pooling import MATCH, UNTRACED, Codes, codes_of

Cells = NDArray[np.uint8]


class Form(NamedTuple):
    """What cells hold: how it is made from codes, and how that of several calls becomes one."""

    made_from: Callable[[Codes], Cells]
    merge: np.ufunc


CODES: Final = Form(lambda codes: codes, np.maximum)
"""The worst code."""

PRESENCE: Final = Form(presence_of, np.bitwise_or)
"""Which verdicts there are, see `detlab.views.cells.presence`."""


class Filler:
    """Fills cells; those of ranks have a last row without calls, for places that were not compared.

    Parameters
    ----------
    ranks, programs
        What the comparison holds, and who runs what.
    steps
        The steps that are shown.
    form
        What cells hold.
    """

    def __init__(
        self,
        ranks: Sequence[RankComparison],
        programs: Sequence[Program],
        steps: tuple[int, ...],
        form: Form,
    ) -> None:
        self._ranks, self._programs, self._steps, self._form = ranks, programs, steps, form

    def of_ranks(self) -> Cells:
        """Fill cells of ranks by calls."""
        width = max((program.width(self._steps) for program in self._programs), default=0)
        cells = np.zeros((len(self._ranks) + 1, width), np.uint8)
        for program in self._programs:  # the calls of a step fill its columns without a gap
            cells[_range(program.members), : program.width(self._steps)] = MATCH
            for number, odd in self._odd(program, cells):
                into = cells[number, odd.stack.column :][: odd.stack.size]
                self._form.merge(into, self._form.merge.reduce(odd.found, axis=0), out=into)
        return cells

    def of_ranks_by_step(self) -> Cells:
        """Fill cells of ranks by steps."""
        cells = np.zeros((len(self._ranks) + 1, len(self._steps)), np.uint8)
        for program in self._programs:
            here = np.searchsorted(self._steps, program.slices_in(self._steps)["step"])
            cells[np.ix_(program.members, here)] = MATCH
            for number, odd in self._odd(program, cells):
                at = np.searchsorted(self._steps, odd.steps)
                cells[number, at] = self._form.merge(
                    cells[number, at], self._form.merge.reduce(odd.found, axis=1)
                )
        return cells

    def of_ops(
        self, op_rows: Callable[[Program], NDArray[np.int32]], by_step: bool, shape: tuple[int, int]
    ) -> Cells:
        """Fill cells of ops by steps or calls; ``op_rows`` gives the row of each call of a program."""
        cells = np.zeros(shape, np.uint8)
        for program in self._programs:
            found, rows = self._over_ranks(program), op_rows(program)
            for part in program.slices_in(self._steps):
                here = slice(int(part["position"]), int(part["position"] + part["num_rows"]))
                if by_step:
                    into = cells[:, int(np.searchsorted(self._steps, part["step"]))]
                    self._form.merge.at(into, rows[here], found[here])
                else:
                    at = rows[here], np.arange(part["num_rows"]) + part["column"]
                    cells[at] = self._form.merge(cells[at], found[here])
        return cells

    def _over_ranks(self, program: Program) -> Cells:
        """Merge the calls at each position over the ranks that run a program."""
        members = [self._ranks[number] for number in program.members.tolist()]
        plain = any(not rank.any_aside for rank in members)
        merged = np.full(len(members[0].verdicts), MATCH if plain else UNTRACED, np.uint8)
        for _, odd in self._odd(program):
            into = merged[odd.position :][: odd.found.size]
            self._form.merge(into, odd.found.ravel(), out=into)
        return merged

    def _odd(self, program: Program, cells: Cells | None = None) -> Iterator[tuple[int, _Odd]]:
        """Give rank and calls of everything but steps of matches before and after those that differ.

        Calls of a rank with masks may be untraced, so that nothing is known of its row of ``cells`` before.
        """
        stacks = [(stack, _bounds(stack)) for stack in program.stacks(self._steps)]
        for number in program.members.tolist():
            rank = self._ranks[number]
            if cells is not None and rank.any_aside:
                cells[number] = UNTRACED
            for stack, bounds in stacks if len(rank.differing) or rank.any_aside else ():
                edges = np.searchsorted(rank.differing, bounds)
                odd = np.flatnonzero((edges[:-1] < edges[1:]) | rank.any_aside)
                if len(odd):
                    yield number, self._take(rank, stack, int(odd[0]), int(odd[-1]) + 1)

    def _take(self, rank: RankComparison, stack: Stack, first: int, stop: int) -> _Odd:
        """Take the calls of some steps of a stack."""
        position = stack.position + first * stack.size
        codes = codes_at(rank, slice(position, stack.position + stop * stack.size))
        found = self._form.made_from(codes).reshape(stop - first, stack.size)
        return _Odd(stack, position, stack.steps[first:stop], found)


class _Odd(NamedTuple):
    """Some steps of a stack: position of the first call, the steps, and what their cells hold, a row each."""

    stack: Stack
    position: int
    steps: NDArray[np.int32]
    found: Cells


def _bounds(stack: Stack) -> NDArray[np.int64]:
    """Give the positions where the steps of a stack begin, and where the last one ends."""
    bounds: NDArray[np.int64] = stack.position + stack.size * np.arange(len(stack.steps) + 1)
    return bounds


def codes_at(rank: RankComparison, positions: slice | NDArray[np.intp]) -> Codes:
    """Give the codes at some positions."""
    if not rank.any_aside:
        return rank.verdicts[positions] + np.uint8(1)
    return codes_of(rank.verdicts[positions], rank.masks[positions])


def _range(numbers: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """Give numbers that follow each other as a slice, which is filled without a look-up."""
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers

"""Which ranks run the same program: their calls stand at the same places, so that one look serves all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.store import RankTrace
from detlab.views.timeline import timeline

SLICE_DTYPE: Final = np.dtype(
    [
        ("position", "<i8"),  # of its first call among the verdicts of the rank
        ("num_rows", "<i8"),
        ("column", "<i8"),  # of its first call among the calls of its step
        ("step", "<i4"),
    ]
)
"""Calls of one step that follow each other."""

_LAYOUT: Final = ("step", "microbatch", "phase", "num_rows")


class Stack(NamedTuple):
    """Calls of several steps that follow each other, equally many of each.

    Attributes
    ----------
    position
        Of the first call.
    size, column
        Calls of each step, and the column of the first one.
    steps
        The steps, in the rank's order.
    """

    position: int
    size: int
    column: int
    steps: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Program:
    """The calls of some ranks, alike in step, phase, callee and order.

    Attributes
    ----------
    number
        Its place among the programs.
    parts
        `detlab.views.timeline.PART_DTYPE` rows of every position.
    members
        The ranks that run it, as numbers in the comparison, ascending.
    """

    number: int
    parts: NDArray[np.void]
    members: NDArray[np.intp]

    @cached_property
    def slices(self) -> NDArray[np.void]:
        """Join the parts of each step that follow each other: `SLICE_DTYPE` rows."""
        steps = self.parts["step"]
        first = np.flatnonzero(np.concatenate([[True], steps[1:] != steps[:-1]])[: len(steps)])
        slices = np.zeros(len(first), SLICE_DTYPE)
        for name in ("position", "column", "step"):
            slices[name] = self.parts[name][first]
        if len(first):
            slices["num_rows"] = np.add.reduceat(self.parts["num_rows"], first)
        return slices

    def slices_in(self, steps: Sequence[int]) -> NDArray[np.void]:
        """Give the slices of some steps."""
        chosen: NDArray[np.void] = self.slices[np.isin(self.slices["step"], steps)]
        return chosen

    def stacks(self, steps: Sequence[int]) -> list[Stack]:
        """Put the slices of some steps into as few stacks as they make."""
        slices = self.slices_in(steps)
        before, after = slices[:-1], slices[1:]
        joins = before["position"] + before["num_rows"] == after["position"]
        for name in ("num_rows", "column"):
            joins &= before[name] == after[name]
        firsts = np.flatnonzero(np.append(True, ~joins)[: len(slices)]).tolist()
        return [_stack(slices[first:stop]) for first, stop in pairwise([*firsts, len(slices)])]

    def runs(self, steps: Sequence[int]) -> list[tuple[int, int]]:
        """Give first and one past the last position of the calls of some steps, neighbours joined."""
        slices = self.slices_in(steps)
        first, stop = slices["position"], slices["position"] + slices["num_rows"]
        apart = first[1:] != stop[:-1]
        starts = first[np.append(True, apart)[: len(first)]]
        return list(zip(starts.tolist(), stop[np.append(apart, True)[: len(stop)]].tolist(), strict=True))

    def width(self, steps: Sequence[int]) -> int:
        """Count the calls of the longest of some steps."""
        slices = self.slices_in(steps)
        return int((slices["column"] + slices["num_rows"]).max(initial=0))

    def place_of(self, position: int) -> tuple[int, int]:
        """Give step and column of the call at a position."""
        part = self.slices[np.searchsorted(self.slices["position"], position, side="right") - 1]
        return int(part["step"]), int(part["column"] + position - part["position"])

    def position_at(self, step: int, column: int) -> int | None:
        """Give the position of the call at a column of a step; None where it makes none."""
        here = self.slices[self.slices["step"] == step]
        inside = column - here["column"]
        found = np.flatnonzero((inside >= 0) & (inside < here["num_rows"]))
        return int(here["position"][found[0]] + inside[found[0]]) if len(found) else None


def _stack(slices: NDArray[np.void]) -> Stack:
    position, size, column, _ = slices[0].item()
    return Stack(position, size, column, slices["step"])


def find_programs(ranks: Sequence[RankComparison]) -> tuple[list[Program], NDArray[np.intp]]:
    """Gather the ranks that run the same program, from the segment indexes alone.

    Returns
    -------
    programs
        By their first rank.
    program_of
        Number of the program of each rank.
    """
    seen: dict[tuple[int, int, int], int] = {}  # ranks that share their arrays need no second look
    numbers: dict[tuple[bytes, bytes], int] = {}
    members: list[list[int]] = []
    for number, rank in enumerate(ranks):
        shared = id(rank.a.index), id(rank.b.index), id(rank.blocks)
        if shared not in seen:
            seen[shared] = numbers.setdefault(_content(rank), len(numbers))
        if seen[shared] == len(members):
            members.append([])
        members[seen[shared]].append(number)
    layouts: dict[bytes, NDArray[np.void]] = {}
    for (layout, _), program in numbers.items():
        if layout not in layouts:
            layouts[layout] = timeline(ranks[members[program][0]])
    of_program = [layouts[layout] for layout, _ in numbers]
    program_of = np.zeros(len(ranks), np.intp)
    for program, each in enumerate(members):
        program_of[each] = program
    pairs = zip(of_program, members, strict=True)
    return [Program(n, parts, np.array(each)) for n, (parts, each) in enumerate(pairs)], program_of


def _content(rank: RankComparison) -> tuple[bytes, bytes]:
    """Give what decides where the calls of a rank stand, and what decides which calls they are."""
    traces = [rank.a] if (rank.blocks["a"] >= 0).all() else [rank.a, rank.b]
    layout = [rank.blocks[name].tobytes() for name in ("a", "b", "num_rows")]
    layout += [_column(trace, name) for trace in traces for name in _LAYOUT]
    return b"|".join(layout), b"|".join(_column(trace, "identity") for trace in traces)


def _column(trace: RankTrace, name: str) -> bytes:
    return bytes(trace.index[name].tobytes())

"""Maps in words: what stands under the pointer, and where a name is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison, read_rows
from detlab.schema import Callee, Mask, Phase, Verdict
from detlab.views.cells.bands import call_name, layer_of
from detlab.views.cells.planes import Planes
from detlab.views.cells.programs import Program

Found = tuple[int | None, int, int]
"""A displayed row (None: every row), the first column, and one past the last."""


class Moment(NamedTuple):
    """When a call was made, and what was called."""

    step: int
    microbatch: int
    phase: Phase
    callee: Callee


def moment_of(rank: RankComparison, position: int) -> Moment:
    """Read when a call was made and what was called."""
    at_a, at_b = rank.rows_at(position)
    trace, row = (rank.a, at_a) if at_a >= 0 else (rank.b, at_b)
    event = read_rows(trace, np.array([row]), ("step", "microbatch", "phase", "callee"))
    step, microbatch, phase, callee = (int(column[0]) for column in event.values())
    return Moment(step, microbatch, Phase(phase), trace.names.callees[callee])


def describe_call(rank: RankComparison, position: int, column: int) -> str:
    """Say when a call was made and what it was; ``column`` is its number in its step."""
    step, _, phase, callee = moment_of(rank, position)
    layer = layer_of(callee.scope)
    parts = [f"step {step}", phase.name.lower().replace("_", " ")]
    parts += [f"layer {layer}"] if layer >= 0 else []
    return " · ".join([*parts, f"call {column:,}", call_name(callee)])


def verdict_words(rank: RankComparison, position: int, hidden: Sequence[str]) -> str:
    """Name the verdict of a call, and say where the map shows it as a match."""
    verdict = Verdict(int(rank.verdicts[position]))
    name = verdict.name.lower()
    if verdict != Verdict.MATCH and rank.masks[position] & Mask.SET_ASIDE:
        return f"{name}, set aside"
    return f"{name}, hidden" if name in hidden else name


def runs_of(found: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Give first and one past last of each run of True."""
    edges = np.flatnonzero(np.diff(found, prepend=False, append=False))
    return [(int(first), int(stop)) for first, stop in edges.reshape(-1, 2)]


def columns_with(
    planes: Planes, program: Program, steps: Sequence[int], wanted: NDArray[np.bool_], width: int
) -> NDArray[np.bool_]:
    """Say for each column whether a program makes a wanted call there in any of some steps."""
    matched = wanted[planes.callees_of(program)]
    columns = np.zeros(width, bool)
    for part in program.slices_in(steps):
        first, start, size = (int(part[name]) for name in ("position", "column", "num_rows"))
        columns[start : start + size] |= matched[first : first + size]
    return columns


def find_calls(
    planes: Planes, reference: Program, steps: Sequence[int], text: str, rows: NDArray[np.intp]
) -> list[Found]:
    """Find calls by scope or op.

    Parameters
    ----------
    planes, steps
        Where to look.
    reference
        The program whose finds hold for the whole map; those that only other programs have name the first
        displayed row that runs them.
    text
        What to find, in small letters.
    rows
        Number of the rank on each displayed row.
    """
    planes.read_names()
    width = planes.num_columns("call", steps)
    wanted = np.array([text in f"{each.scope}\n{each.op}".lower() for each in planes.callees.names], bool)
    known = columns_with(planes, reference, steps, wanted, width)
    found: list[Found] = [(None, *run) for run in runs_of(known)]
    for program in planes.programs:
        if program is not reference:
            own = columns_with(planes, program, steps, wanted, width) & ~known
            row = int(np.flatnonzero(np.isin(rows, program.members))[0])
            found += [(row, *run) for run in runs_of(own)]
    return sorted(found, key=lambda each: (each[1], -1 if each[0] is None else each[0]))


def find_labels(labels: Sequence[str], text: str, width: int) -> list[Found]:
    """Find rows by their label."""
    return [(row, 0, width) for row, label in enumerate(labels) if text in label.lower()]

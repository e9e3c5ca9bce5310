"""What a map says along its columns: phases, layers and names of calls, as one rank runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.views.cells.bands import call_name, layer_bands, phase_bands
from detlab.views.cells.planes import Planes
from detlab.views.cells.programs import Program

_MAX_LABELS: Final = 200
_MAX_LAYERS: Final = 2_000

NOTHING: Final[dict[str, Any]] = {"bands": [], "layers": [], "column_labels": [], "bands_of": -1}


def widest_program(planes: Planes, steps: Sequence[int]) -> Program | None:
    """Give the program with the most calls in one of some steps; the first of equal ones."""
    return max(planes.programs, key=lambda each: each.width(steps), default=None)


def along_steps(steps: Sequence[int], columns: tuple[int, int], factor: int) -> dict[str, Any]:
    """Name steps by their numbers, where each has a column."""
    return {**NOTHING, "column_labels": [str(step) for step in steps[slice(*columns)]] if factor == 1 else []}


def along_calls(
    planes: Planes, steps: Sequence[int], columns: tuple[int, int], factor: int
) -> dict[str, Any]:
    """Name calls and what they are parts of, as the rank with the most calls runs them.

    Returns
    -------
    ``bands``: the phases; ``layers``: those of the columns given; both as label, first column and one past
    the last. ``column_labels``: what each column calls, where there are few and none is pooled.
    ``bands_of``: the rank.
    """
    program, (first, stop) = widest_program(planes, steps), columns
    if program is None or not stop:
        return NOTHING
    parts = _widest_parts(program, steps)
    callees = planes.callees_of(program)[_positions_of(parts)]
    names, phases = planes.callees.names, phase_bands(parts)
    layers = [band for band in layer_bands(callees, names, phases) if band[1] < stop and band[2] > first]
    labelled = factor == 1 and stop - first <= _MAX_LABELS
    return {
        "bands": [list(band) for band in phases],
        "layers": [list(band) for band in layers] if len(layers) <= _MAX_LAYERS else [],
        "column_labels": [call_name(names[callee]) for callee in callees[first:stop]] if labelled else [],
        "bands_of": planes.cmp.ranks[program.members[0]].rank,
    }


def _widest_parts(program: Program, steps: Sequence[int]) -> NDArray[np.void]:
    """Give the parts of the first of the steps in which a program has the most calls."""
    step = max(steps, key=lambda each: program.width([each]))
    parts: NDArray[np.void] = program.parts[program.parts["step"] == step]
    return parts


def _positions_of(parts: NDArray[np.void]) -> NDArray[np.int64]:
    """Give the position of every call of some parts, in order."""
    ranges = [np.arange(part["position"], part["position"] + part["num_rows"]) for part in parts]
    return np.concatenate([np.empty(0, np.int64), *ranges])

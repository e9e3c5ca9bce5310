"""What stands along the columns of a map: phases, layers and the names of calls, as one rank runs them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.schema import Callee, Phase
from detlab.views.text import visible

Band = tuple[str, int, int]
"""A label, the first column, and one past the last."""

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|blocks|layer|block|h)\.(\d+)(?:\.|$)")


def phase_bands(parts: NDArray[np.void]) -> list[Band]:
    """Join parts of one step, in order, wherever the phase stays the same."""
    if not len(parts):
        return []
    first = np.flatnonzero(np.diff(parts["phase"].astype(int), prepend=-1))
    starts = parts["column"][first].tolist()
    stops = [*starts[1:], int((parts["column"] + parts["num_rows"]).max())]
    names = [Phase(int(phase)).name.lower().replace("_", " ") for phase in parts["phase"][first]]
    return list(zip(names, starts, stops, strict=True))


def layer_of(scope: str) -> int:
    """Give the number of the layer that a scope stands in; -1 for none."""
    found = _LAYER.search(scope)
    return int(found[1]) if found else -1


def layer_bands(
    callees: NDArray[np.int32], names: Sequence[Callee], phases: Sequence[Band] = ()
) -> list[Band]:
    """Find the layers in the calls of one step, in the order of its columns.

    Calls outside of any layer between two of the same one belong to it: a residual's addition is
    recorded in the module around the layers. No layer reaches from one of the phases into the next.
    """
    used, member = np.unique(callees, return_inverse=True)
    layers = np.array([layer_of(names[number].scope) for number in used.tolist()], np.int64)[member]
    inside = np.flatnonzero(layers >= 0)
    if not len(inside):
        return []
    phase = np.searchsorted([start for _, start, _ in phases], inside, side="right")
    begins = (np.diff(layers[inside], prepend=-1) != 0) | (np.diff(phase, prepend=-1) != 0)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(inside)) - 1
    return [
        (f"layer {layers[start]}", start, stop + 1)
        for start, stop in zip(inside[first].tolist(), inside[last].tolist(), strict=True)
    ]


def call_name(callee: Callee) -> str:
    """Write what was called and where in the model."""
    return visible(f"{callee.op} in {callee.scope}" if callee.scope else callee.op)

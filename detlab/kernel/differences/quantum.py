"""The power of two that divides all differences of one output, and what it implies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from detlab.kernel.differences.bits import finest_spacing_log2, float_component, precision, quantum_log2
from detlab.kernel.differences.measured import Pairs

_FEW: Final = 10
"""With so many differences a quantum that is finer by a factor of two hides once in a thousand."""


@dataclass(slots=True)
class Quantum:
    """The quantum so far, from how many differences, and the finest spacing of the numbers that differ."""

    _log2: int | None = None
    _is_exact: bool = True
    _num: int = 0
    _spacing: int | None = None

    @property
    def log2(self) -> int | None:
        """Its exponent; None without a difference, or where one was not exact."""
        return self._log2 if self._is_exact else None

    def add(self, pairs: Pairs) -> None:
        """Take in more differences."""
        finite = np.isfinite(pairs.first) & np.isfinite(pairs.other) & (pairs.first != pairs.other)
        x, y = pairs.first[finite], pairs.other[finite]
        found, is_exact = quantum_log2(x, y)
        self._is_exact &= is_exact
        self._num += x.size
        self._log2 = _least(self._log2, found)
        for values in (x, y):
            self._spacing = _least(self._spacing, finest_spacing_log2(values, pairs.dtype))

    def text(self, dtype: torch.dtype) -> str:
        """Say what the quantum implies for an output of a dtype; empty without one.

        A sum that runs in another order differs by multiples of the unit in the last place that its partial
        sums had. Where that is no coarser than the unit of the output itself, every difference of two such
        numbers is a multiple of it, and it says nothing of what was added.
        """
        component = float_component(dtype)
        if self.log2 is None or self._spacing is None or component is None:
            return ""
        name = str(component).removeprefix("torch.")
        few = f"; from only {self._num} differences, the true one may be finer" if self._num < _FEW else ""
        if self.log2 <= self._spacing:
            why = f"no coarser than the spacing of the {name} numbers that differ"
            return f"2^{self.log2}: {why}, so it says nothing of what was added up{few}"
        kinds = list(dict.fromkeys([component, torch.float32]))
        places = " or ".join(_accumulator(self.log2, kind) for kind in kinds)
        return f"2^{self.log2}: one unit in the last place of {places}{few}"


def _accumulator(exponent: int, dtype: torch.dtype) -> str:
    low = exponent + precision(dtype) - 1
    name = str(dtype).removeprefix("torch.")
    return f"a {name} accumulator of magnitude 2^{low}..2^{low + 1}"


def _least(known: int | None, found: int | None) -> int | None:
    return min((value for value in (known, found) if value is not None), default=None)

"""How far the results of one output lie apart: which elements differ, how many ULP, in multiples of what.

All of it is bits: floats are compared as the integers that order them, so 0.0 and -0.0 are different bits at
a distance of 0 ULP, and a NaN is different bits at no distance at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.digest import plain_cpu_bytes, tensor_digest
from detlab.kernel.differences.bits import differing, float_component
from detlab.kernel.differences.bits import quantum_log2 as quantum_log2
from detlab.kernel.differences.bits import ulp_distance as ulp_distance
from detlab.kernel.differences.elements import Element, Elements
from detlab.kernel.differences.first import FirstResult
from detlab.kernel.differences.measured import Measured, pairs_of
from detlab.kernel.differences.quantum import Quantum
from detlab.kernel.patterns import pattern

_MAX_PAIRS: Final = 1 << 24
"""After so many differing elements no more results are measured: it costs more than most calls."""


@dataclass(frozen=True, slots=True)
class OutputResult:
    """One output over all trials; all but the first five may be left out in JSON.

    Each different result is measured against the first one; what is counted over them counts an element once
    for each of them, and of a complex element both parts. Where many large results differ, only the first
    of them are measured: `num_measured` says how many.

    Attributes
    ----------
    distinct
        Number of different results of this output.
    elements_different
        Number of elements that were not the same in every trial.
    max_ulp
        Largest distance from the first result in units in the last place; None when no two numbers differ,
        or for a dtype that is no float.
    quantum_log2
        All differences are integer multiples of two to this power, and of no larger power of two; None when
        no two finite numbers differ or a difference is not exact in float64.
    modal_share
        Share of the trials that gave this output's most frequent result, above 0 and up to 1.
    num_elements
        Number of elements of the output.
    pattern, pattern_kind
        Which elements differ, in words; and the kind of it, see `detlab.kernel.patterns.Pattern`.
    ulp_histogram
        How many numbers differ by 2**i up to 2**(i+1) - 1 ULP, for i from 0 on; numbers only.
    num_nan
        How often the bits differ where one of the two is a NaN.
    num_signed_zero
        How often one is 0.0 and the other -0.0.
    max_abs, max_rel
        Largest difference of two finite numbers, and largest one as a share of the first; None when there
        is none. A first of 0.0 has no share.
    quantum_text
        What the quantum implies, in words; empty without one.
    elements
        Some of the elements that differ most, those with a NaN first.
    num_measured
        How many of the different results, beside the first, the numbers are of; None: all. Number and pattern
        of the elements that differ are always of all.
    """

    index: int
    distinct: int
    elements_different: int
    max_ulp: int | None
    quantum_log2: int | None
    modal_share: float = 1.0
    num_elements: int = 0
    pattern: str = ""
    pattern_kind: str = ""
    ulp_histogram: tuple[int, ...] = ()
    num_nan: int = 0
    num_signed_zero: int = 0
    max_abs: float | None = None
    max_rel: float | None = None
    quantum_text: str = ""
    elements: tuple[Element, ...] = ()
    num_measured: int | None = None


class OutputWatch:
    """Keeps the first result of one output and measures every new one against it."""

    def __init__(self, first: torch.Tensor) -> None:
        plain = plain_cpu_bytes(first)
        self._first, self._first_digest = FirstResult(plain), tensor_digest(plain)
        self._counts: Counter[int] = Counter()
        self._differs: NDArray[np.bool_] | None = None  # made when the first element differs
        self._has_other_form = False
        self._num_pairs, self._num_measured, self._num_left_out = 0, 0, 0
        self._measured = Measured()
        self._quantum = Quantum()
        self._elements = Elements()

    def add(self, result: torch.Tensor) -> int:
        """Give the digest of a result and measure it unless one like it was measured before."""
        digest = tensor_digest(result)
        self._counts[digest] += 1
        if self._counts[digest] == 1 and digest != self._first_digest:
            self._measure(plain_cpu_bytes(result))
        return digest

    def result(self, index: int) -> OutputResult:
        """Sum up all that was measured."""
        size = self._first.shape.numel()
        mask = np.zeros(size, dtype=bool) if self._differs is None else self._differs
        found = pattern(mask.reshape(tuple(self._first.shape)))
        different = size if self._has_other_form else int(np.count_nonzero(mask))
        return OutputResult(
            index=index,
            distinct=len(self._counts),
            elements_different=different,
            modal_share=self._modal_share(),
            num_elements=size,
            pattern="another shape or dtype" if self._has_other_form else found.text,
            pattern_kind="all" if self._has_other_form else found.kind,
            quantum_log2=self._quantum.log2,
            quantum_text=self._quantum.text(self._first.dtype),
            elements=self._elements.of_shape(tuple(self._first.shape)),
            num_measured=self._num_measured if self._num_left_out else None,
            **self._measured.fields(),
        )

    def _modal_share(self) -> float:
        trials = self._counts.total()
        return self._counts.most_common(1)[0][1] / trials if trials else 1.0

    def _measure(self, plain: torch.Tensor) -> None:
        if plain.shape != self._first.shape or plain.dtype != self._first.dtype:
            self._has_other_form = True  # no element stands where it stood
            return
        is_measured = self._num_pairs < _MAX_PAIRS
        self._num_measured += is_measured
        self._num_left_out += not is_measured
        for start, first, other in self._first.beside(plain):
            differs = differing(first, other)
            if differs.any():
                self._mark(differs, start)
                if is_measured:
                    self._measure_piece(first, other, np.flatnonzero(differs), start)

    def _mark(self, differs: NDArray[np.bool_], start: int) -> None:
        if self._differs is None:
            self._differs = np.zeros(self._first.shape.numel(), dtype=bool)
        self._differs[start : start + differs.size] |= differs

    def _measure_piece(
        self, first: torch.Tensor, other: torch.Tensor, at: NDArray[np.intp], start: int
    ) -> None:
        self._num_pairs += at.size
        component = float_component(other.dtype)
        if component is None:
            self._elements.add(first, other, at, start)
            return
        pairs = pairs_of(first, other, at, component)
        self._measured.add(pairs)
        self._quantum.add(pairs)
        self._elements.add(first, other, at, start, pairs)

"""How far the results of one output lie apart: which elements differ, how many ULP, in multiples of what.

All of it is bits: floats are compared as the integers that order them, so 0.0 and -0.0 are different bits at
a distance of 0 ULP, and a NaN is different bits at no distance at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.digest import plain_cpu_bytes, tensor_digest

_COMPONENT: Final = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
_NO_SIGN: Final = (torch.float8_e8m0fnu,)
_PACKED: Final = (torch.float4_e2m1fn_x2,)  # two values a byte; their bits are compared, no distance is told


@dataclass(frozen=True, slots=True)
class OutputResult:
    """One output over all trials.

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
    """

    index: int
    distinct: int
    elements_different: int
    max_ulp: int | None
    quantum_log2: int | None


class OutputWatch:
    """Keeps the first result of one output and measures every new one against it."""

    def __init__(self, first: torch.Tensor) -> None:
        self._first = plain_cpu_bytes(first).clone()
        self._known: set[int] = set()
        self._differs = np.zeros(first.numel(), dtype=bool)
        self._max_ulp: int | None = None
        self._quantum: int | None = None
        self._is_exact = True

    def add(self, result: torch.Tensor) -> int:
        """Give the digest of a result and measure it unless one like it was measured before."""
        digest = tensor_digest(result)
        if digest not in self._known:
            self._known.add(digest)
            self._measure(result)
        return digest

    def result(self, index: int) -> OutputResult:
        """Sum up all that was measured."""
        quantum = self._quantum if self._is_exact else None
        return OutputResult(index, len(self._known), int(self._differs.sum()), self._max_ulp, quantum)

    def _measure(self, result: torch.Tensor) -> None:
        plain = plain_cpu_bytes(result)
        if plain.shape != self._first.shape or plain.dtype != self._first.dtype:
            self._differs[:] = True  # no element stands where it stood
            return
        differs = _differing(self._first, plain)
        self._differs |= differs
        component = _COMPONENT.get(plain.dtype, plain.dtype)
        if differs.any() and component.is_floating_point and component not in _PACKED:
            self._measure_numbers(*(_numbers(tensor, differs, component) for tensor in (self._first, plain)))

    def _measure_numbers(self, a: torch.Tensor, b: torch.Tensor) -> None:
        x, y = a.double().numpy(), b.double().numpy()  # exact for every float dtype
        numbers = ~(np.isnan(x) | np.isnan(y))
        if numbers.any():
            farthest = int(ulp_distance(a, b)[numbers].max())
            self._max_ulp = max(farthest, self._max_ulp or 0)
        finite = np.isfinite(x) & np.isfinite(y)
        quantum, is_exact = quantum_log2(x[finite], y[finite])
        self._is_exact &= is_exact
        known = [q for q in (quantum, self._quantum) if q is not None]
        self._quantum = min(known, default=None)


def ulp_distance(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.uint64]:
    """Count the steps from one representable number to the next between each two; of a NaN it means nothing.

    Parameters
    ----------
    a, b
        Contiguous float tensors on the CPU of one dtype and shape.
    """
    x, y = _ordered(a), _ordered(b)
    distance: NDArray[np.uint64] = np.maximum(x, y) - np.minimum(x, y)
    return distance


def quantum_log2(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[int | None, bool]:
    """Find the largest power of two of which every ``b - a`` is an integer multiple.

    Returns
    -------
    Its exponent, None when nothing differs; and whether every difference was exact, without which it means
    nothing (the exact difference of two float64 may need more than 53 bits).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        difference = b - a
        # TwoSum (Knuth, The Art of Computer Programming 2, 4.2.2) gives the rounding error, exactly.
        subtracted = difference - b
        error = (b - (difference - subtracted)) - (a + subtracted)
    nonzero = difference[difference != 0.0]
    if error.any() or not np.isfinite(difference).all():
        return None, False
    if not nonzero.size:
        return None, True
    mantissa, exponent = np.frexp(nonzero)
    integer = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest_bit = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    return int((exponent - 53 + lowest_bit).min()), True


def _ordered(tensor: torch.Tensor) -> NDArray[np.uint64]:
    """Map floats to integers in their order, with 0.0 and -0.0 on the same one."""
    bits = _words(tensor)[:, 0].astype(np.uint64)
    if tensor.dtype in _NO_SIGN:
        return bits
    sign = np.uint64(1 << (8 * tensor.element_size() - 1))
    magnitude = bits & (sign - np.uint64(1))
    ordered: NDArray[np.uint64] = np.where(bits & sign, sign - magnitude, sign + magnitude)
    return ordered


def _words(tensor: torch.Tensor) -> NDArray[Any]:
    """View a contiguous CPU tensor as unsigned integers, one row an element; 16 bytes are two of them."""
    size = min(tensor.element_size(), 8)
    raw = tensor.reshape(-1).view(torch.uint8).numpy()
    return raw.view(f"<u{size}").reshape(tensor.numel(), tensor.element_size() // size)


def _differing(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.bool_]:
    differs: NDArray[np.bool_] = (_words(a) != _words(b)).any(axis=1)
    return differs


def _numbers(tensor: torch.Tensor, chosen: NDArray[np.bool_], component: torch.dtype) -> torch.Tensor:
    """Give the chosen elements as floats of one dimension, of a complex one both parts."""
    raw = _words(tensor)[chosen].reshape(-1).view(np.uint8)
    return torch.from_numpy(raw).view(component)

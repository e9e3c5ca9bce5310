"""Sizes of the differences of one output, summed up over any number of results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.kernel.differences.bits import chosen_numbers, ulp_distance

_BUCKETS: Final = 64


class Pairs(NamedTuple):
    """The numbers of those elements whose bits differ; of a complex element both parts, also an equal one.

    Attributes
    ----------
    first, other
        The numbers as float64, which holds those of every float dtype exactly.
    ulp
        Their distance; of a NaN it means nothing.
    is_number
        Where neither is a NaN.
    dtype
        What they were.
    """

    first: NDArray[np.float64]
    other: NDArray[np.float64]
    ulp: NDArray[np.uint64]
    is_number: NDArray[np.bool_]
    dtype: torch.dtype


def pairs_of(first: torch.Tensor, other: torch.Tensor, at: NDArray[np.intp], component: torch.dtype) -> Pairs:
    """Take the elements at some positions of two contiguous CPU tensors as numbers."""
    a, b = (chosen_numbers(tensor, at, component) for tensor in (first, other))
    x, y = a.double().numpy(), b.double().numpy()
    return Pairs(x, y, ulp_distance(a, b), ~(np.isnan(x) | np.isnan(y)), component)


@dataclass(slots=True)
class Measured:
    """The largest differences and their histogram so far, as `OutputResult` describes them."""

    max_ulp: int | None = None
    num_nan: int = 0
    num_signed_zero: int = 0
    max_abs: float | None = None
    max_rel: float | None = None
    _histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BUCKETS, dtype=np.int64))

    def add(self, pairs: Pairs) -> None:
        """Take in more differences."""
        ulp = pairs.ulp[pairs.is_number]
        if ulp.size:
            self.max_ulp = max(int(ulp.max()), self.max_ulp or 0)
            self._histogram += np.bincount(_log2(ulp[ulp > 0]), minlength=_BUCKETS)
        self.num_nan += int(pairs.is_number.size - ulp.size - np.count_nonzero(same_nan(pairs)))
        signs = np.signbit(pairs.first) != np.signbit(pairs.other)
        self.num_signed_zero += int(np.count_nonzero((pairs.ulp == 0) & signs & pairs.is_number))
        self._add_sizes(pairs)

    def fields(self) -> dict[str, Any]:
        """Give the fields of `OutputResult` that come from here."""
        used = np.flatnonzero(self._histogram)
        counts = self._histogram[: used[-1] + 1].tolist() if used.size else []
        return {
            "max_ulp": self.max_ulp,
            "ulp_histogram": tuple(counts),
            "num_nan": self.num_nan,
            "num_signed_zero": self.num_signed_zero,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
        }

    def _add_sizes(self, pairs: Pairs) -> None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            distance = np.abs(pairs.other - pairs.first)
            share = distance / np.abs(pairs.first)
        self.max_abs = _larger(self.max_abs, distance[distance > 0])
        self.max_rel = _larger(self.max_rel, share[share > 0])


def same_nan(pairs: Pairs) -> NDArray[np.bool_]:
    """Say where both are the same NaN, as one part of a complex element can be whose other part differs."""
    found: NDArray[np.bool_] = np.isnan(pairs.first) & np.isnan(pairs.other) & (pairs.ulp == 0)
    return found


def _log2(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Give the exponents of positive integers, exactly also where float64 would round them up."""
    if not values.size or values.max() < np.uint64(1 << 53):
        return np.asarray(np.frexp(values.astype(np.float64))[1], dtype=np.int64) - 1
    high = (values >> np.uint64(32)).astype(np.float64)
    low = (values & np.uint64(0xFFFFFFFF)).astype(np.float64)
    exponent = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1]) - 1
    found: NDArray[np.int64] = exponent.astype(np.int64)
    return found


def _larger(known: float | None, sizes: NDArray[np.float64]) -> float | None:
    finite = sizes[np.isfinite(sizes)]
    return max(float(finite.max()), known or 0.0) if finite.size else known

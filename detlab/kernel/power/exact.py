"""Whether the values of a call add up without rounding, so that no order of the sum shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.kernel.differences.bits import precision, quantum_log2

_CHUNK: Final = 1 << 18
_MAX_UNIT: Final = 1023


def exact_in_any_order(
    floats: Sequence[torch.Tensor], index: torch.Tensor | None = None, *, multiplies: bool = False
) -> int | None:
    """Find the power of two that all values are multiples of, if it makes every sum of them exact.

    Sums of multiples of 2**u that stay below 2**(u + p) need no more than the p bits of a float's
    significand, whatever the order. The sums are bounded from above, so None does not say that they round.

    Parameters
    ----------
    floats
        The float tensors that are added up, or of which pairs are multiplied first.
    index
        Where the values of the largest tensor are added to; its most frequent place bounds the sums.

    Returns
    -------
    The exponent u; None where sums may round.
    """
    bits = min(precision(tensor.dtype) for tensor in floats)
    unit, total, largest = _MAX_UNIT, 0.0, [0.0] * len(floats)
    for place, tensor in enumerate(floats):
        own = _MAX_UNIT
        for values in _chunks(tensor):
            found, is_exact = quantum_log2(np.zeros_like(values), values)
            if not is_exact:
                return None
            own = min(own, _MAX_UNIT if found is None else found)
            largest[place] = max(largest[place], float(np.abs(values).max()))
            total += float(np.abs(values).sum())
            if math.log2(largest[place] or 1.0) >= own + bits:
                return None  # one value alone spans all bits: by far the most common end
        unit = (min(unit, 0) + min(own, 0)) if multiplies else min(unit, own)
    bound = _product(floats, largest) if multiplies else min(total, _at_one_place(index, floats, largest))
    if bound and math.log2(bound) > unit + bits:
        return None
    return 0 if unit >= _MAX_UNIT else unit


def _product(floats: Sequence[torch.Tensor], largest: Sequence[float]) -> float:
    """Bound a sum of products along the longest axis of any tensor."""
    longest = max((size for tensor in floats for size in tensor.shape), default=1)
    return math.prod(largest) * longest if len(floats) > 1 else max(largest) * floats[0].numel()


def _at_one_place(
    index: torch.Tensor | None, floats: Sequence[torch.Tensor], largest: Sequence[float]
) -> float:
    """Bound the sum at the place that is added to most often, what was there before included."""
    if index is None or index.ndim != 1 or not index.numel() or int(index.min()) < 0:
        return math.inf
    most = int(torch.unique(index, return_counts=True)[1].max())
    return (most + len(floats)) * max(largest)


def _chunks(tensor: torch.Tensor) -> Iterator[NDArray[np.float64]]:
    """Give the values in pieces, so that a large tensor needs no second copy; the first one is small."""
    flat = tensor.detach()
    flat = flat.reshape(-1) if flat.is_contiguous() else flat.contiguous().reshape(-1)
    start = 0
    for size in (4096, *[_CHUNK] * (flat.numel() // _CHUNK + 1)):
        piece = flat[start : start + size]
        start += size
        if piece.numel():
            yield piece.double().cpu().numpy()

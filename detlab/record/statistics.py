"""Numbers about a tensor for people: absmax, sum, NaN and Inf counts; they prove nothing about bits."""

from __future__ import annotations

import math
from typing import Final

import torch

Statistics = tuple[int, float, float, int, int]
"""1 when recorded, absmax, sum, number of NaN, number of Inf."""

NO_STATISTICS: Final = (0, 0.0, 0.0, 0, 0)
"""What a detail row says when statistics were not recorded."""


def tensor_statistics(tensor: torch.Tensor) -> Statistics:
    """Summarise a tensor; absmax and sum are taken over its finite elements."""
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if values.is_quantized:
        values = values.int_repr()
    if values.numel() == 0:
        return 1, 0.0, 0.0, 0, 0
    if values.dtype is torch.bool or values.element_size() == 1:  # float8 too
        values = values.to(torch.float32)
    total = float(values.sum(dtype=torch.float64))
    if not math.isfinite(total):
        return _of_unusual(values.to(torch.float64))
    low, high = torch.aminmax(values)
    return 1, max(abs(float(low)), abs(float(high))), total, 0, 0


def _of_unusual(values: torch.Tensor) -> Statistics:
    finite = values[values.isfinite()]
    nans, infs = int(values.isnan().sum()), int(values.isinf().sum())
    absmax = float(finite.abs().max()) if finite.numel() else 0.0
    return 1, absmax, float(finite.sum()), nans, infs

"""Numbers about a tensor for people: absmax, sum, NaN and Inf counts; they prove nothing about bits."""

from __future__ import annotations

from typing import Final

import torch

NO_STATISTICS: Final = (0, 0.0, 0.0, 0, 0)
"""What a detail row says when statistics were not recorded."""


def tensor_statistics(tensor: torch.Tensor) -> tuple[int, float, float, int, int]:
    """Give (1, absmax, sum, NaN count, Inf count); absmax and sum are taken over the finite elements."""
    if tensor.numel() == 0:
        return 1, 0.0, 0.0, 0, 0
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    values = plain.to(torch.float64)
    finite = torch.where(values.isfinite(), values, 0.0)
    nans, infs = int(values.isnan().sum()), int(values.isinf().sum())
    return 1, float(finite.abs().max()), float(finite.sum()), nans, infs

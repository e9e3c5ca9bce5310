"""Rows added into places, in Triton: with atomics, and with one program a place that adds them in order.

Both take what ``aten.index_add_`` takes, by its names, for one dimension, so that a captured call of it can
be made with either. Import this only where Triton is.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def _add_atomically(out, index, values, num_values, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < num_values
    row = tl.load(index + at, mask=inside, other=0)
    tl.atomic_add(out + row, tl.load(values + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def _add_segment(out, values, starts, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    first, stop = tl.load(starts + row), tl.load(starts + row + 1)
    total = tl.zeros([block], tl.float32)
    while first < stop:
        at = first + tl.arange(0, block)
        total += tl.load(values + at, mask=at < stop, other=0.0)
        first += block
    tl.store(out + row, tl.load(out + row) + tl.sum(total, axis=0))


def add_atomically(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """Add with atomics, in the order in which the programs come."""
    _add_atomically[(triton.cdiv(len(source), BLOCK),)](self, index, source, len(source), BLOCK)
    return self


def add_in_order(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """Sort by place, stable; each place has one program, which alone writes it."""
    places, order = torch.sort(index, stable=True)
    edges = torch.arange(len(self) + 1, device=self.device)
    starts = torch.searchsorted(places, edges)
    _add_segment[(len(self),)](self, source[order], starts, BLOCK)
    return self

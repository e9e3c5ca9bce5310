"""The same alternatives as Triton kernels, each beside the kernel with atomics that it replaces.

They need Triton, which is imported when one is called: on a GPU, or on a CPU under ``TRITON_INTERPRET=1``.
The interpreter runs one program after the other, so it shows that a kernel computes what it should, never
whether it races.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from detlab.kernel.fixed.segments import check_within, segments_of

_BLOCK: Final = 64
_TILE: Final = 16


def index_add_atomic_(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    """Add rows with one atomic an element, as the usual kernel does: the order is open.

    Parameters
    ----------
    self, source
        Contiguous float32 matrices on the device, of one width.
    dim
        0.
    index
        The row of `self` to which each row of `source` goes, int64.
    """
    _check_rows(self, dim, index, source)
    if source.numel():
        grid = (len(source), _blocks(self.shape[1], _BLOCK))
        _kernels().add_rows_with_atomics[grid](self, index, source, self.shape[1], block=_BLOCK)
    return self


def index_add_(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Add rows by sorted segments: one program owns a place, and adds its rows first to last.

    Parameters as for `index_add_atomic_`. One place with very many rows takes as long as their number: a
    kernel for skewed data would give such a place a tree of programs with slots of their own.
    """
    _check_rows(self, dim, index, source)
    if source.numel():
        order, places, counts = segments_of(index)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        grid = (len(places), _blocks(self.shape[1], _BLOCK))
        _kernels().add_sorted_rows[grid](self, places, starts, order, source, self.shape[1], block=_BLOCK)
    return self


def split_k_mm_atomic(self: torch.Tensor, mat2: torch.Tensor, *, num_splits: int = 4) -> torch.Tensor:
    """Multiply contiguous float32 matrices in parts that are added with atomics: the order is open."""
    out = self.new_zeros(len(self), mat2.shape[1])
    _multiply_parts(self, mat2, out, num_splits, atomic=True)
    return out


def split_k_mm(self: torch.Tensor, mat2: torch.Tensor, *, num_splits: int = 4) -> torch.Tensor:
    """Multiply contiguous float32 matrices in parts with a slot each, added by their number."""
    out = self.new_zeros(len(self), mat2.shape[1])
    slots = self.new_empty(num_splits, *out.shape)
    if out.numel():
        _multiply_parts(self, mat2, slots, num_splits, atomic=False)
        grid = (_blocks(out.numel(), _BLOCK),)
        _kernels().add_slots[grid](slots, out, out.numel(), num_splits, block=_BLOCK)
    return out


def _multiply_parts(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, num_splits: int, *, atomic: bool
) -> None:
    (m, k), n = a.shape, b.shape[1]
    grid = (_blocks(m, _TILE), _blocks(n, _TILE), num_splits)
    if all(grid):
        part_size = _blocks(k, num_splits)
        _kernels().multiply_part[grid](a, b, out, m, n, k, part_size, atomic=atomic, block=_TILE)


def _kernels() -> Any:
    """Import Triton and what is written in it, now that it is needed."""
    from detlab.kernel.fixed import triton_kernels

    return triton_kernels


def _blocks(size: int, block: int) -> int:
    """Count the blocks that cover a size."""
    return -(-size // block)


def _check_rows(target: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> None:
    """Refuse what the kernels do not address.

    Raises
    ------
    ValueError
        Not along dimension 0, or not contiguous float32 matrices.
    """
    for tensor in (target, source):
        if dim != 0 or tensor.dim() != 2 or tensor.dtype != torch.float32 or not tensor.is_contiguous():
            raise ValueError("the kernel adds rows of contiguous float32 matrices along dimension 0")
    check_within(index, len(target))

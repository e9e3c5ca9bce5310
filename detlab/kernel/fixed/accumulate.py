"""Scatter and index accumulation by sorted segments, in place of adding with atomics as the rows come.

The op adds each row to its place when a thread gets to it: with two rows for one place, the order is that of
the threads, and float addition is not associative. Here the rows are sorted by place (stable), the rows of a
place are added along a fixed tree, and each place is written once, by one thread. Any number of threads gives
the same bits. float16 and bfloat16 are added in float32 and rounded once, which is closer than the op.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from detlab.kernel.fixed.segments import check_within, segment_sum, segments_of


def index_put_(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> torch.Tensor:
    """Stand in for ``aten.index_put_``: add rows to places, or write the last row of each place.

    Without `accumulate`, of several rows for one place the last one is written, whichever thread has it.
    """
    places, num_dims = _places(self, indices)
    row = self.shape[num_dims:]
    rows = values.to(self.device).expand(*places.shape, *row).reshape(places.numel(), *row)
    _write(self, num_dims, places.flatten(), rows, accumulate=accumulate)
    return self


def index_put(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> torch.Tensor:
    """Stand in for ``aten.index_put``, see `index_put_`."""
    return index_put_(self.clone(), indices, values, accumulate)


def index_add_(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, alpha: float = 1
) -> torch.Tensor:
    """Stand in for ``aten.index_add_``: add slices along a dimension."""
    target, rows = (self.view(1), source.reshape(1)) if self.dim() == 0 else (self, source)
    target, rows = target.movedim(dim, 0), rows.movedim(dim, 0)
    check_within(index, len(target))
    rows = rows if alpha == 1 else rows * alpha
    _write(target, 1, index.reshape(-1).long(), rows, accumulate=True)
    return self


def index_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, alpha: float = 1
) -> torch.Tensor:
    """Stand in for ``aten.index_add``, see `index_add_`."""
    return index_add_(self.clone(), dim, index, source, alpha)


def scatter_add_(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Stand in for ``aten.scatter_add_``: add single elements along a dimension."""
    if self.dim() == 0:
        return index_add_(self, 0, index, src)
    check_within(index, self.shape[dim])
    src = src[tuple(slice(size) for size in index.shape)]
    places = [torch.arange(size, device=self.device) for size in index.shape]
    grid: list[torch.Tensor | None] = list(torch.meshgrid(*places, indexing="ij"))
    grid[dim] = index
    return index_put_(self, grid, src, accumulate=True)


def scatter_add(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Stand in for ``aten.scatter_add``, see `scatter_add_`."""
    return scatter_add_(self.clone(), dim, index, src)


def embedding_dense_backward(
    grad_output: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    """Stand in for ``aten.embedding_dense_backward``: the gradients of a token's places, added up.

    The row of `padding_idx` stays zero; with `scale_grad_by_freq` each row is divided by how often its
    token occurs.
    """
    tokens, grads = indices.reshape(-1), grad_output.reshape(indices.numel(), grad_output.shape[-1])
    check_within(tokens, num_weights)
    kept = tokens != padding_idx
    tokens, grads = tokens[kept], grads[kept]
    weight = grad_output.new_zeros(num_weights, grad_output.shape[-1])
    order, places, counts = segments_of(tokens)
    sums = segment_sum(grads[order], counts)
    weight[places] = (sums / counts[:, None] if scale_grad_by_freq else sums).to(weight.dtype)
    return weight


def _write(
    target: torch.Tensor, num_dims: int, places: torch.Tensor, rows: torch.Tensor, *, accumulate: bool
) -> None:
    """Write each place once: what its rows add up to, or its last row.

    Parameters
    ----------
    num_dims
        How many leading dimensions of `target` a place numbers, in row-major order.
    """
    if not places.numel():
        return
    order, unique, counts = segments_of(places)
    where = torch.unravel_index(unique, target.shape[:num_dims])
    if not accumulate:
        target[where] = rows[order[counts.cumsum(0) - 1]]
        return
    sums = segment_sum(rows[order], counts)
    target[where] = (target[where].to(sums.dtype) + sums).to(target.dtype)


def _places(target: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, int]:
    """Find the places that an index chooses: it chooses from an array of their numbers in the same way.

    Returns
    -------
    The places, and how many leading dimensions they number: only those that the index names where it names
    the first ones without a gap, so that whole rows are added; else all of them.
    """
    named = list(indices)
    while named and named[-1] is None:
        named.pop()
    given = [index for index in named if index is not None]
    has_gap = len(given) < len(named) or not given
    num_dims = target.dim() if has_gap else sum(map(_num_dims, given))
    shape = target.shape[:num_dims]
    numbers = torch.arange(shape.numel(), device=target.device).view(shape)
    chosen: torch.Tensor = torch.ops.aten.index.Tensor(numbers, named) if named else numbers
    return chosen, num_dims


def _num_dims(index: torch.Tensor) -> int:
    """Count the dimensions that one index tensor names: a mask as many as it has, a list of places one."""
    return index.dim() if index.dtype in (torch.bool, torch.uint8) else 1

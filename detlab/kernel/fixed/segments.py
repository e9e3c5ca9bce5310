"""Add up rows that go to one place in an order that their position alone decides."""

from __future__ import annotations

from typing import NamedTuple

import torch

_NARROW = (torch.float16, torch.bfloat16)


class Segments(NamedTuple):
    """Rows that go to the same place, side by side.

    Attributes
    ----------
    order
        The rows sorted by place; rows of one place keep the order in which they came.
    places
        The places, ascending, each once.
    counts
        Number of rows of each place, 1 or more.
    """

    order: torch.Tensor
    places: torch.Tensor
    counts: torch.Tensor


def segments_of(places: torch.Tensor) -> Segments:
    """Sort rows by the place they go to; the sort is stable, so that nothing but `places` decides."""
    ordered, order = torch.sort(places, stable=True)
    unique, counts = torch.unique_consecutive(ordered, return_counts=True)
    return Segments(order, unique, counts)


def segment_sum(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Add up runs of rows, each along a fixed binary tree.

    In every pass the rows 2i and 2i + 1 of a run become its row i, until each run is one row. The tree
    follows from the length of the run alone; every pass is one elementwise addition, in which no two threads
    write to one place. The pairs also bound the rounding error by the logarithm of the length, not by the
    length (Higham, The Accuracy of Floating Point Summation, SIAM J. Sci. Comput. 14, 1993).

    Parameters
    ----------
    values
        Rows, run after run: shape (sum of counts, ...).
    counts
        Length of each run, 1 or more, int64.

    Returns
    -------
    One row a run, in the dtype of `values`; float16 and bfloat16 are added in float32 and stay in it, so
    that the caller rounds once.
    """
    values = values.float() if values.dtype in _NARROW else values
    starts = counts.cumsum(0) - counts
    rank = torch.arange(len(values), device=values.device) - starts.repeat_interleave(counts)
    for _ in range(int(counts.max() - 1).bit_length() if counts.numel() else 0):
        left = (rank & 1 == 0).nonzero()[:, 0]
        right = (left + 1).clamp(max=len(values) - 1)
        paired = (rank[right] & 1 == 1).view(-1, *[1] * (values.dim() - 1))
        mine = values[left]
        # where, not adding 0.0: that would turn a lone -0.0 into 0.0
        values = torch.where(paired, mine + values[right], mine)
        rank = rank[left] >> 1
    return values


def check_within(index: torch.Tensor, size: int) -> None:
    """Refuse what the op refuses: an index below zero or beyond the last place.

    Raises
    ------
    IndexError
        An index is out of range.
    """
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        raise IndexError(f"index out of range: the places are 0 to {size - 1}")

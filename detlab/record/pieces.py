"""Cut the one tensor of a collective into a piece for each member, so that each piece has its own digest.

What member *k* of a reduce_scatter receives depends on slice *k* of every member alone, and piece *k* of an
all_gather on what member *k* gave. Collectives that take a list of tensors are in pieces already.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import torch

from detlab.ops import Dependence, base_name, dependence

_TAKES_ONE_TENSOR: Final = re.compile(r"base_|into_tensor|scatter_tensor|to_all_single")


def cuts_inputs(op: str) -> bool:
    """Say whether the inputs of this op are one tensor with a slice for each member."""
    return dependence(op) is Dependence.SLICES and _takes_one_tensor(op)


def cuts_outputs(op: str) -> bool:
    """Say whether the outputs of this op are one tensor with a piece from each member."""
    return dependence(op) is Dependence.PIECES and _takes_one_tensor(op)


def _takes_one_tensor(op: str) -> bool:
    return _TAKES_ONE_TENSOR.search(base_name(op)) is not None


def cut(tensors: Sequence[torch.Tensor], num_pieces: int, sizes: Sequence[int] = ()) -> list[torch.Tensor]:
    """Cut each tensor into pieces of its rows; piece *k* of tensor *t* is item ``t * num_pieces + k``.

    Parameters
    ----------
    sizes
        Rows of each piece; all pieces have the same number of elements when empty.

    Returns
    -------
    The pieces; a tensor that cannot be cut like this stays whole.
    """
    return [piece for tensor in tensors for piece in _cut_one(tensor.detach(), num_pieces, sizes)]


def _cut_one(tensor: torch.Tensor, num_pieces: int, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
    if sizes:
        return torch.split(tensor, list(sizes)) if sum(sizes) == len(tensor) else [tensor]
    if tensor.dim() and len(tensor) % num_pieces == 0:
        return tensor.chunk(num_pieces) if len(tensor) else [tensor] * num_pieces
    if tensor.is_contiguous() and tensor.numel() % num_pieces == 0:
        return tensor.view(-1).chunk(num_pieces)
    return [tensor]

"""Where a tensor lies in memory, and what can be known of it without reading its bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from detlab.digest import signature
from detlab.schema import TensorMeta


class Geometry:
    """What is true of every tensor of one dtype, shape and stride.

    Attributes
    ----------
    meta, signature
        The tensor as the name table and the fold take it.
    itemsize, num_bytes
        Bytes of one element and of all.
    span_bytes
        Bytes from the first to the last element, the latter included.
    is_contiguous, is_dense
        Row-major without gaps; without gaps in any order.
    """

    __slots__ = ("is_contiguous", "is_dense", "itemsize", "meta", "num_bytes", "signature", "span_bytes")

    def __init__(self, meta: TensorMeta, itemsize: int, *, is_contiguous: bool) -> None:
        self.meta, self.itemsize, self.is_contiguous = meta, itemsize, is_contiguous
        self.signature = signature(meta.dtype, meta.shape)
        self.num_bytes = math.prod(meta.shape) * itemsize
        reach = sum((length - 1) * step for length, step in zip(meta.shape, meta.stride, strict=True))
        self.span_bytes = (reach + 1) * itemsize if self.num_bytes else 0
        self.is_dense = is_contiguous or self.span_bytes == self.num_bytes


class Place(NamedTuple):
    """A tensor's bytes: address of its storage, and the range from its first to past its last byte there."""

    geometry: Geometry
    storage: int
    start: int
    stop: int


Placed = Sequence[tuple[torch.Tensor, Place | None]]
"""Tensors with their places in memory."""

_geometries: dict[object, Geometry] = {}


def place_of(tensor: torch.Tensor) -> Place | None:
    """Find a tensor in memory; None when it has no plain bytes (sparse, nested, meta, a wrapper)."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
        return None
    key = (tensor.dtype, tensor.shape, tensor.stride())
    geometry = _geometries.get(key)
    if geometry is None:
        meta = TensorMeta(_dtype_name(tensor), tuple(tensor.shape), tuple(tensor.stride()))
        geometry = Geometry(meta, tensor.element_size(), is_contiguous=tensor.is_contiguous())
        _geometries[key] = geometry
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # a tensor without storage
        return None
    if address == 0 and geometry.num_bytes:
        return None
    start = int(tensor.storage_offset()) * geometry.itemsize
    return Place(geometry, address - start if address else 0, start, start + geometry.span_bytes)


def placed(tensors: Iterable[torch.Tensor]) -> Placed:
    """Find tensors in memory."""
    return [(tensor, place_of(tensor)) for tensor in tensors]


def geometry_without_place(tensor: torch.Tensor) -> Geometry:
    """Tell what can be told of a tensor without plain bytes."""
    shape = () if tensor.is_nested else tuple(tensor.shape)
    meta = TensorMeta(_dtype_name(tensor), shape, (0,) * len(shape))
    return Geometry(meta, tensor.element_size(), is_contiguous=False)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")

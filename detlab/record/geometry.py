"""Where a tensor lies in memory, and what can be known of it without reading its bytes."""

from __future__ import annotations

from functools import cache
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

    def __init__(self, tensor: torch.Tensor) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        self.meta = TensorMeta(dtype, shape, stride)
        self.signature = signature(dtype, shape)
        self.itemsize = tensor.element_size()
        self.num_bytes = tensor.numel() * self.itemsize
        reach = sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
        self.span_bytes = (reach + 1) * self.itemsize if self.num_bytes else 0
        self.is_contiguous = tensor.is_contiguous()
        self.is_dense = self.is_contiguous or self.span_bytes == self.num_bytes


class Place(NamedTuple):
    """A tensor's bytes: address of its storage, and the range from its first to past its last byte there."""

    geometry: Geometry
    storage: int
    start: int
    stop: int


_geometries: dict[object, Geometry] = {}


def place_of(tensor: torch.Tensor) -> Place | None:
    """Find a tensor in memory; None when it has no plain bytes (sparse, meta, a wrapper)."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    key = (tensor.dtype, tensor.shape, tensor.stride())
    geometry = _geometries.get(key)
    if geometry is None:
        geometry = _geometries[key] = Geometry(tensor)
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # a tensor without storage
        return None
    if address == 0 and geometry.num_bytes:
        return None
    start = int(tensor.storage_offset()) * geometry.itemsize
    return Place(geometry, address - start if address else 0, start, start + geometry.span_bytes)


@cache
def bare_meta(dtype: torch.dtype, shape: tuple[int, ...]) -> Geometry:
    """Give a stand-in geometry for a tensor without plain bytes."""
    return Geometry(torch.empty(shape, dtype=dtype, device="meta"))

"""Reads any box of a tensor from the pieces that hold it, into a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.checkpoints.files import OpenFiles
from detlab.checks.checkpoints.layout import Piece, TensorLeaf
from detlab.errors import InputError

Array = np.ndarray[Any, Any]
Index = tuple[int, ...]

MAX_PIECES: Final = 20_000
_LEAST_SPAN_BYTES: Final = 4096
_MOST_SPAN_BYTES: Final = 16 << 20
_MAX_WASTE: Final = 4
"""A span of the file is read whole when at most this many times as long as what is wanted of it."""

_MAX_EXPANSION: Final = 64


def file_order(leaf: TensorLeaf) -> Index:
    """Give the dimensions of a tensor in the order its first piece lies in the file, slowest first."""
    strides = leaf.pieces[0].strides if leaf.pieces else ()
    usual = range(len(leaf.shape))
    if not strides:
        return tuple(usual)
    return tuple(
        sorted(usual, key=lambda dimension: -strides[dimension] if leaf.shape[dimension] > 1 else -(1 << 63))
    )


def boxes(shape: Index, max_elements: int) -> Iterator[tuple[Index, Index]]:
    """Cut a tensor into boxes of consecutive elements (row-major): offsets and shape of each, in order."""
    if 0 in shape:
        return
    inner = [prod(shape[place + 1 :]) for place in range(len(shape))]
    cut = next((place for place, size in enumerate(inner) if size <= max_elements), 0)
    if not shape:
        yield (), ()
        return
    rows = max(1, max_elements // inner[cut])
    rest = (0,) * (len(shape) - cut - 1)
    for outer in product(*map(range, shape[:cut])):
        for start in range(0, shape[cut], rows):
            extent = min(rows, shape[cut] - start)
            yield (*outer, start, *rest), (*(1 for _ in outer), extent, *shape[cut + 1 :])


class Source:
    """A tensor to be read box by box.

    Parameters
    ----------
    leaf
        The tensor.
    order
        Its dimensions in the order in which boxes are given.
    files
        Where descriptors are kept.

    Raises
    ------
    InputError
        The pieces overlap, leave a hole or claim what no file holds.
    """

    def __init__(self, leaf: TensorLeaf, order: Index, files: OpenFiles) -> None:
        self.item = ITEM_SIZE[leaf.dtype]
        self.shape = _permuted(leaf.shape, order)
        self._files = files
        self._pieces = [
            Piece(_permuted(each.offsets, order), _permuted(each.shape, order), each.path, each.start,
                  _permuted(each.strides, order))
            for each in leaf.pieces
        ]  # fmt: skip
        size = (len(self._pieces), len(self.shape))  # of a tensor of one number there is no axis to count by
        self._low = np.array([each.offsets for each in self._pieces], np.int64).reshape(size)
        self._high = self._low + np.array([each.shape for each in self._pieces], np.int64).reshape(size)
        self._check(leaf)

    @property
    def is_one_run(self) -> bool:
        """Say whether the whole tensor is one run of bytes in the order of its boxes."""
        return len(self._pieces) == 1 and _is_row_major(self.shape, self._pieces[0].strides)

    def read_run(self, start: int, size: int) -> bytes:
        """Read bytes of a tensor that is one run.

        Raises
        ------
        EOFError
            The file ends before.
        """
        (piece,) = self._pieces
        found = self._files.read(piece.path, piece.start + start, size)
        if len(found) != size:
            raise EOFError(f"{piece.path} ends before byte {piece.start + start + size}")
        return found

    def _check(self, leaf: TensorLeaf) -> None:
        """Hold that the pieces cover the tensor, each element once."""
        if len(self._pieces) > MAX_PIECES:
            raise InputError(f"'{leaf.name}' is in {len(self._pieces):,} pieces, more than are put together")
        covered = sum(prod(each.shape) for each in self._pieces)
        outside = (self._high > np.array(self.shape, np.int64)).any() if self._pieces else False
        if outside or any(
            len(self._meeting(low, high)) > 1 for low, high in zip(self._low, self._high, strict=True)
        ):
            raise InputError(
                f"'{leaf.name}': its pieces overlap or lie outside of its shape {list(leaf.shape)}"
            )
        if covered != prod(self.shape):
            raise InputError(
                f"'{leaf.name}': {prod(self.shape) - covered:,} of {prod(self.shape):,} elements are missing"
            )
        for each in self._pieces:
            span = _span(each.shape, each.strides)
            if prod(each.shape) > _MAX_EXPANSION * span + (1 << 24):
                raise InputError(
                    f"'{leaf.name}' shows {span:,} elements as {prod(each.shape):,}; too many to read"
                )

    def _meeting(self, low: Any, high: Any) -> Sequence[int]:
        """Give the pieces that share elements with a box."""
        if len(self._pieces) == 1:
            return (0,)
        return np.flatnonzero(((self._low < high) & (self._high > low)).all(axis=1)).tolist()

    def read(self, offsets: Index, shape: Index, buffer: Array) -> Array:
        """Read a box into the beginning of a buffer; give that part, uint8, row-major."""
        size = prod(shape) * self.item
        into = buffer[:size]
        elements = into.view(_element(self.item)).reshape(shape)
        high = tuple(start + extent for start, extent in zip(offsets, shape, strict=True))
        for index in self._meeting(offsets, high):
            piece = self._pieces[index]
            low = tuple(map(max, offsets, piece.offsets))
            top = tuple(min(a, b + n) for a, b, n in zip(high, piece.offsets, piece.shape, strict=True))
            place = tuple(slice(a - o, b - o) for a, b, o in zip(low, top, offsets, strict=True))
            inside = sum((a - o) * step for a, o, step in zip(low, piece.offsets, piece.strides, strict=True))
            target = elements[place] if place else elements
            self._gather(piece, piece.start + inside * self.item, piece.strides, target)
        return into

    def _gather(self, piece: Piece, start: int, strides: Index, into: Array) -> None:
        """Read a box of one piece: as a run, as a span with gaps, or slice by slice."""
        if _is_row_major(into.shape, strides) and into.flags.c_contiguous:
            self._files.read_into(piece.path, start, into.reshape(-1).view(np.uint8).data)
            return
        span = _span(into.shape, strides) * self.item
        if span <= max(_LEAST_SPAN_BYTES, _MAX_WASTE * into.size * self.item):
            if span <= _MOST_SPAN_BYTES:
                self._read_span(piece, start, strides, into, span)
                return
            parts = 2
        else:
            parts = 1 << 62
        axis = max(range(into.ndim), key=lambda each: strides[each] if into.shape[each] > 1 else -1)
        extent = into.shape[axis]
        step = max(1, extent // parts)
        for first in range(0, extent, step):
            part = into[(slice(None),) * axis + (slice(first, first + step),)]
            self._gather(piece, start + first * strides[axis] * self.item, strides, part)

    def _read_span(self, piece: Piece, start: int, strides: Index, into: Array, span: int) -> None:
        """Read a box with the gaps between its elements, and take these out."""
        scratch = np.empty(span, np.uint8)
        self._files.read_into(piece.path, start, scratch.data)
        steps = tuple(step * self.item for step in strides)
        into[...] = np.lib.stride_tricks.as_strided(scratch.view(into.dtype), into.shape, steps)


def _permuted(values: Index, order: Index) -> Index:
    return tuple(values[place] for place in order)


def _span(shape: Index, strides: Index) -> int:
    """Give the elements of the storage from the first to the last that a box touches."""
    return 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))


def _is_row_major(shape: Index, strides: Index) -> bool:
    expected = 1
    for extent, step in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True


def _element(item: int) -> np.dtype[Any]:
    return np.dtype({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}[item])

"""Reads any box of a tensor from the pieces that hold it, into a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

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

_LEAST_ROW_BYTES: Final = 1024
"""Rows as long as this are read into their places of the buffer; shorter ones are put there from a copy."""

_FEW_PIECES: Final = 8
"""Up to so many are gone through one by one, which is faster than an array of them."""

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


class _Part(NamedTuple):
    """What one piece gives to a box: rows of the buffer, filled by consecutive bytes of a file."""

    path: Path
    start: int
    step: int
    rows: list[memoryview]
    size: int


class _Plan(NamedTuple):
    """How boxes that follow one another along the first dimension are read from the same pieces."""

    rest: Index
    shape: Index
    low: int
    high: int
    parts: list[_Part]
    buffer: Array
    into: Array

    def fits(self, offsets: Index, shape: Index, buffer: Array) -> bool:
        """Say whether a box is one of these."""
        return (
            buffer is self.buffer
            and shape == self.shape
            and offsets[1:] == self.rest
            and self.low <= offsets[0]
            and offsets[0] + shape[0] <= self.high
        )


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
        self._scratch = np.empty(0, np.uint8)
        self._plan: _Plan | None = None
        self._pieces = [
            Piece(_permuted(each.offsets, order), _permuted(each.shape, order), each.path, each.start,
                  _permuted(each.strides, order))
            for each in leaf.pieces
        ]  # fmt: skip
        self._bounds = [
            [(first, first + extent) for first, extent in zip(each.offsets, each.shape, strict=True)]
            for each in self._pieces
        ]
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
        if len(self._bounds) <= _FEW_PIECES:
            return [
                index
                for index, bounds in enumerate(self._bounds)
                if all(a < d and c < b for a, b, (c, d) in zip(low, high, bounds, strict=True))
            ]
        return np.flatnonzero(((self._low < high) & (self._high > low)).all(axis=1)).tolist()

    def read(self, offsets: Index, shape: Index, buffer: Array) -> Array:
        """Read a box into the beginning of a buffer; give that part, uint8, row-major."""
        plan = self._plan
        if plan is not None and plan.fits(offsets, shape, buffer):
            for part in plan.parts:
                self._files.scatter(part.path, part.start + offsets[0] * part.step, part.rows, part.size)
            return plan.into
        into = buffer[: prod(shape) * self.item]
        elements = into.view(_element(self.item)).reshape(shape)
        high = tuple(start + extent for start, extent in zip(offsets, shape, strict=True))
        met = self._meeting(offsets, high)
        parts: list[_Part | None] = []
        for index in met:
            inside, place = 0, []
            steps = self._pieces[index].strides
            for low, top, (begin, end), step in zip(offsets, high, self._bounds[index], steps, strict=True):
                first = max(low, begin)
                place.append(slice(first - low, min(top, end) - low))
                inside += (first - begin) * step
            target = elements[tuple(place)] if place else elements
            parts.append(self._gather(self._pieces[index], inside, steps, target))
        self._plan = self._planned(offsets, shape, met, parts, buffer)
        return into

    def _planned(
        self, offsets: Index, shape: Index, met: Sequence[int], parts: list[_Part | None], buffer: Array
    ) -> _Plan | None:
        """Give what the next box has in common with one, where the same pieces hold it side by side."""
        known = [part for part in parts if part is not None]
        if not shape or not met or len(known) != len(parts):
            return None
        low = max(self._bounds[index][0][0] for index in met)
        high = min(self._bounds[index][0][1] for index in met)
        if offsets[0] < low or offsets[0] + shape[0] > high:
            return None
        known = [part._replace(start=part.start - offsets[0] * part.step) for part in known]
        into = buffer[: prod(shape) * self.item]
        return _Plan(offsets[1:], shape, low, high, known, buffer, into)

    def _gather(self, piece: Piece, inside: int, strides: Index, into: Array) -> _Part | None:
        """Read a box of one piece: by its rows (give how), as a span with gaps, or slice by slice."""
        start = piece.start + inside * self.item
        if _is_row_major(into.shape, strides) and (rows := _rows(into)):
            part = _Part(piece.path, start, strides[0] * self.item if strides else 0, rows, into.nbytes)
            self._files.scatter(part.path, part.start, part.rows, part.size)
            return part
        span = _span(into.shape, strides) * self.item
        is_dense = span <= max(_LEAST_SPAN_BYTES, _MAX_WASTE * into.nbytes)
        if is_dense and span <= _MOST_SPAN_BYTES:
            self._read_span(piece, start, strides, into, span)
            return None
        axis = max(range(into.ndim), key=lambda each: strides[each] if into.shape[each] > 1 else -1)
        extent = into.shape[axis]
        size = max(1, extent // 2) if is_dense else 1
        for first in range(0, extent, size):
            target = into[(slice(None),) * axis + (slice(first, first + size),)]
            self._gather(piece, inside + first * strides[axis], strides, target)
        return None

    def _read_span(self, piece: Piece, start: int, strides: Index, into: Array, span: int) -> None:
        """Read a box with the gaps between its elements, and take these out."""
        if len(self._scratch) < span:
            self._scratch = np.empty(span, np.uint8)
        scratch = self._scratch[:span]
        self._files.read_into(piece.path, start, scratch.data)
        steps = tuple(step * self.item for step in strides)
        into[...] = np.lib.stride_tricks.as_strided(scratch.view(into.dtype), into.shape, steps)


def _rows(into: Array) -> list[memoryview]:
    """Give the rows of a box in a buffer that one call can fill; none where they are too short for that."""
    if into.flags.c_contiguous:
        return [into.reshape(-1).view(np.uint8).data]
    if into.strides[-1] != into.itemsize or into.shape[-1] * into.itemsize < _LEAST_ROW_BYTES:
        return []
    return [into[place].view(np.uint8).data for place in np.ndindex(into.shape[:-1])]


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

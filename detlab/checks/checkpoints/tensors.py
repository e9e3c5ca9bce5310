"""Compares two tensors byte by byte in blocks, and says where they first differ and by how much."""

from __future__ import annotations

from math import inf, isnan, prod
from typing import Any, Final, NamedTuple

import numpy as np

from detlab.checks.checkpoints.blocks import Array, Index, Source, boxes, file_order
from detlab.checks.checkpoints.dtypes import ITEM_SIZE, as_float64
from detlab.checks.checkpoints.files import OpenFiles
from detlab.checks.checkpoints.layout import TensorLeaf
from detlab.checks.checkpoints.replacing import ReplacedSource, ReplacedTensor
from detlab.errors import InputError

_RUN_BYTES: Final = 256 << 10
"""Two such blocks stay in the second-level cache from reading to comparing."""

_BOX_BYTES: Final = 512 << 10
_SKEWED_BYTES: Final = 8 << 20
"""A block where the two sides lie in the file in another order: larger, so that runs are longer."""


_AnySource = Source | ReplacedSource


_ZEROS: Final = bytes(_RUN_BYTES)
_WORDS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}


class TensorDifference(NamedTuple):
    """How two tensors of one shape and dtype compare.

    Attributes
    ----------
    num_different
        Elements whose bytes differ.
    first_different
        The first of these in row-major order, as an index; None where there is none.
    max_abs
        The largest absolute difference, from both values as float64; infinity where one side is NaN or
        the two are infinities apart, None where nothing differs or the dtype has no values (packed 4 bit).
    zeroed_a, zeroed_b
        All bytes are zero.
    """

    num_different: int
    first_different: Index | None
    max_abs: float | None
    zeroed_a: bool
    zeroed_b: bool


def leaf_bytes_equal(a: TensorLeaf, b: TensorLeaf) -> bool:
    """Say whether two tensors have the same shape, dtype and bytes, however each is sharded.

    Raises
    ------
    InputError
        One of them cannot be read whole.
    """
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    with OpenFiles() as files:
        return compare_tensors(a, b, files).num_different == 0


def compare_tensors(a: TensorLeaf, b: TensorLeaf, files: OpenFiles) -> TensorDifference:
    """Compare two tensors of one shape and dtype, in blocks.

    Raises
    ------
    InputError
        One of them cannot be read whole.
    """
    order = file_order(a)
    source_a, source_b = _source(a, order, files), _source(b, order, files)
    both_runs = source_a.is_one_run and source_b.is_one_run
    is_skewed = bool(b.pieces) and file_order(b) != order
    tally = _Tally(a, order)
    try:
        if isinstance(source_a, Source) and isinstance(source_b, Source) and both_runs:
            _compare_runs(source_a, source_b, tally)
        else:
            _compare_boxes(source_a, source_b, tally, _SKEWED_BYTES if is_skewed else _BOX_BYTES)
    except (OSError, EOFError) as error:
        raise InputError(f"'{a.name}' cannot be read: {error}") from None
    return tally.result()


def _compare_runs(a: Source, b: Source, tally: _Tally) -> None:
    """Compare two runs of bytes; equal blocks cost two reads and one comparison of memory."""
    start = 0
    for offsets, shape in boxes(a.shape, _RUN_BYTES // a.item):
        size = prod(shape) * a.item
        block_a, block_b = a.read_run(start, size), b.read_run(start, size)
        if block_a == block_b:
            tally.add_equal(block_a)
        else:
            tally.add(np.frombuffer(block_a, np.uint8), np.frombuffer(block_b, np.uint8), offsets, shape)
        start += size


def _compare_boxes(a: _AnySource, b: _AnySource, tally: _Tally, size: int) -> None:
    buffer_a, buffer_b = np.empty(size, np.uint8), np.empty(size, np.uint8)
    for offsets, shape in boxes(a.shape, size // a.item):
        block_a = a.read(offsets, shape, buffer_a)
        tally.add(block_a, b.read(offsets, shape, buffer_b), offsets, shape)


def read_bytes(leaf: TensorLeaf, max_bytes: int = 1 << 20) -> bytes:
    """Give the bytes of a small tensor in row-major order.

    Raises
    ------
    InputError
        It has more than ``max_bytes``, or cannot be read whole.
    """
    size = prod(leaf.shape) * ITEM_SIZE[leaf.dtype]
    if size > max_bytes:
        raise InputError(f"'{leaf.name}' has {size:,} bytes, more than {max_bytes:,}")
    with OpenFiles() as files:
        return read_box(leaf, files)


def read_box(leaf: TensorLeaf, files: OpenFiles) -> bytes:
    """Give all bytes of a tensor in row-major order.

    Raises
    ------
    InputError
        It cannot be read whole.
    """
    size = prod(leaf.shape) * ITEM_SIZE[leaf.dtype]
    source = _source(leaf, tuple(range(len(leaf.shape))), files)
    try:
        full = (0,) * len(leaf.shape)
        return source.read(full, leaf.shape, np.empty(size, np.uint8)).tobytes() if size else b""
    except (OSError, EOFError) as error:
        raise InputError(f"'{leaf.name}' cannot be read: {error}") from None


def read_values(leaf: TensorLeaf, max_bytes: int = 1 << 20) -> Array | None:
    """Give the values of a small tensor as float64 (complex128 for complex), shape of the tensor.

    None where the dtype has no values (packed 4 bit). Raises as `read_bytes` does.
    """
    values = as_float64(np.frombuffer(read_bytes(leaf, max_bytes), np.uint8), leaf.dtype)
    return None if values is None else values.reshape(leaf.shape)


def _source(leaf: TensorLeaf, order: Index, files: OpenFiles) -> _AnySource:
    if isinstance(leaf, ReplacedTensor):
        return ReplacedSource(leaf, order, files)
    return Source(leaf, order, files)


class _Tally:
    """What the blocks of two tensors showed so far."""

    def __init__(self, leaf: TensorLeaf, order: Index) -> None:
        self._leaf, self._order = leaf, order
        self._item = ITEM_SIZE[leaf.dtype]
        self._is_skewed = order != tuple(range(len(order)))
        self._num = 0
        self._first: int | None = None
        self._max: float | None = None
        # a tensor without elements is not zeroed
        self._zeroed = [bool(prod(leaf.shape))] * 2

    def add_equal(self, block: bytes) -> None:
        """Count a block that is the same on both sides."""
        if self._zeroed[0] or self._zeroed[1]:
            zero = block == _ZEROS[: len(block)]
            self._zeroed = [each and zero for each in self._zeroed]

    def add(self, a: Array, b: Array, offsets: Index, shape: Index) -> None:
        """Compare two blocks of equal size."""
        word = np.uint64 if len(a) % 8 == 0 else np.uint8
        for side, block in enumerate((a, b)):
            if self._zeroed[side] and block.view(word).any():
                self._zeroed[side] = False
        if (a.view(word) != b.view(word)).any():
            self._differ(a, b, offsets, shape)

    def _differ(self, a: Array, b: Array, offsets: Index, shape: Index) -> None:
        unequal = a.view(_WORDS[self._item]) != b.view(_WORDS[self._item])
        places = np.flatnonzero(unequal if self._item <= 8 else unequal.reshape(-1, 2).any(axis=1))
        self._num += len(places)
        # in the order of the tensor itself the first place is the first
        first = int(self._logical(places if self._is_skewed else places[:1], offsets, shape).min())
        self._first = first if self._first is None else min(self._first, first)
        values = [as_float64(self._chosen(each, places), self._leaf.dtype) for each in (a, b)]
        if values[0] is not None and values[1] is not None:
            self._max = max(self._max or 0.0, _largest(values[0], values[1]))

    def _chosen(self, block: Array, places: Array) -> Array:
        """Give the bytes of some elements of a block."""
        if len(places) * self._item == len(block):
            return block
        words = block.view(_WORDS[self._item])
        return (words if self._item <= 8 else words.reshape(-1, 2))[places].reshape(-1).view(np.uint8)

    def _logical(self, places: Array, offsets: Index, shape: Index) -> Array:
        """Give places in a block as places in the whole tensor, counted row-major."""
        if not shape:
            return places
        found: Any = np.zeros(len(places), np.int64)
        index = np.unravel_index(places, shape)
        for dimension, extent in enumerate(self._leaf.shape):
            here = self._order.index(dimension)
            found = found * extent + index[here] + offsets[here]
        return np.asarray(found)

    def result(self) -> TensorDifference:
        """Give what was found."""
        first = None
        if self._first is not None:
            first = tuple(int(each) for each in np.unravel_index(self._first, self._leaf.shape or (1,)))
            first = first if self._leaf.shape else ()
        return TensorDifference(self._num, first, self._max, self._zeroed[0], self._zeroed[1])


def _largest(a: Array, b: Array) -> float:
    """Give the largest absolute difference; two NaNs of other payload are no distance apart."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
    largest = float(apart.max())
    if not isnan(largest):
        return largest
    apart[np.isnan(apart)] = inf
    apart[np.isnan(a) & np.isnan(b)] = 0.0
    return float(apart.max())

"""Checkpoints with one leaf replaced, for negative controls: no file is written, nothing is copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.checkpoints.files import OpenFiles
from detlab.checks.checkpoints.layout import Checkpoint, Leaf, Scalar, ScalarLeaf, TensorLeaf
from detlab.errors import InputError

Array = np.ndarray[Any, Any]
Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a leaf reads as instead.

    Attributes
    ----------
    kind
        ``zeros`` (a tensor of zeros, the number 0, the empty word), ``missing`` (no such leaf), ``scalar``
        (another scalar, `value`) or ``bytes`` (other bytes of a tensor, row-major, `content`).
    """

    kind: Literal["zeros", "missing", "scalar", "bytes"]
    value: Scalar = None
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplacedTensor(TensorLeaf):
    """A tensor that reads as bytes in memory; as zeros where there are none."""

    content: bytes = b""


class ReplacedSource:
    """A replaced tensor to be read box by box, like `blocks.Source`."""

    is_one_run = True

    def __init__(self, leaf: ReplacedTensor, order: Index, files: OpenFiles) -> None:
        self.item = ITEM_SIZE[leaf.dtype]
        self.shape = tuple(leaf.shape[place] for place in order)
        self._whole: Array | None = None
        if leaf.content:
            raw = np.frombuffer(leaf.content, np.uint8).reshape(*leaf.shape, self.item)
            self._whole = raw.transpose(*order, len(order))

    def read(self, offsets: Index, shape: Index, buffer: Array) -> Array:
        """Read a box into the beginning of a buffer; give that part, uint8, row-major."""
        into = buffer[: prod(shape) * self.item]
        if self._whole is None:
            into[:] = 0
        else:
            box = tuple(slice(low, low + extent) for low, extent in zip(offsets, shape, strict=True))
            into.reshape(*shape, self.item)[...] = self._whole[box]
        return into


def replaced(checkpoint: Checkpoint, replacements: Mapping[str, Replacement]) -> Checkpoint:
    """Give a checkpoint in which some leaves read as something else.

    Parameters
    ----------
    checkpoint
        It stays as it is.
    replacements
        By the name of a leaf.

    Raises
    ------
    InputError
        There is no such leaf, or the replacement does not fit it.
    """
    leaves = dict(checkpoint.leaves)
    for name, each in replacements.items():
        if name not in leaves:
            raise InputError(f"{checkpoint.path} has no leaf '{name}' to replace")
        made = _made(leaves[name], each)
        if made is None:
            del leaves[name]
        else:
            leaves[name] = made
    return replace(checkpoint, leaves=leaves)


def _made(leaf: Leaf, by: Replacement) -> Leaf | None:
    if by.kind == "missing":
        return None
    if isinstance(leaf, ScalarLeaf):
        if by.kind == "bytes":
            raise InputError(f"'{leaf.name}' is a scalar and cannot hold other bytes")
        return replace(leaf, value=by.value if by.kind == "scalar" else _zero(leaf.value))
    size = prod(leaf.shape) * ITEM_SIZE[leaf.dtype]
    if by.kind == "scalar" or (by.kind == "bytes" and len(by.content) != size):
        raise InputError(f"'{leaf.name}' is a tensor of {size:,} bytes, which '{by.kind}' does not fit")
    return ReplacedTensor(leaf.name, leaf.shape, leaf.dtype, (), by.content if by.kind == "bytes" else b"")


def _zero(value: Scalar) -> Scalar:
    return None if value is None else type(value)()

"""What a checkpoint holds, whatever its format: named leaves, and where the bytes of each tensor lie.

A tensor is a box of numbers of a global shape, put together from pieces; each piece is a box of bytes in
one file. So two checkpoints can be compared byte by byte however they are sharded, without loading either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from detlab.text import plural, visible

Scalar = str | int | float | bool | None
"""What a leaf that is no tensor can hold; floats keep their bits."""


class Piece(NamedTuple):
    """One box of a tensor and its bytes.

    Attributes
    ----------
    offsets, shape
        Where the box begins in the whole tensor, and its size, in elements.
    path, start
        The file, and the byte where element 0 of the box lies.
    strides
        In elements of the file's storage; row-major in most files.
    """

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    path: Path
    start: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """A tensor: its name, global shape, dtype (``bfloat16``, without ``torch.``) and pieces."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ScalarLeaf:
    """A number, a word or None; a byte string is given as the hexadecimal of its xxh3-128 digest."""

    name: str
    value: Scalar
    where: str


Leaf = TensorLeaf | ScalarLeaf


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """What a checkpoint holds.

    Attributes
    ----------
    path
        The file or folder.
    format
        ``torch.save``, ``torch.distributed.checkpoint``, ``megatron torch_dist``, ``safetensors`` or
        ``deepspeed zero``.
    leaves
        Every leaf by its name. Names are dotted paths of keys (``optimizer.state.3.exp_avg``); of a folder
        of files that are no shards of a whole, the file's place stands before them (``mp_rank_01.model…``).
    problems
        One sentence for each part that could not be read, with its place.
    unreadable
        Why a leaf that is known by its name cannot be read at all; a tensor whose bytes are missing in
        part stays among the leaves.
    """

    path: Path
    format: str
    leaves: Mapping[str, Leaf]
    problems: tuple[str, ...] = field(default=())
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        num, problems = len(self.leaves), len(self.problems)
        said = f", {problems} {plural('problem', problems)}" if problems else ""
        leaves = f"{num} {'leaf' if num == 1 else 'leaves'}"
        return f"<Checkpoint {visible(self.path)}: {self.format}, {leaves}{said}>"

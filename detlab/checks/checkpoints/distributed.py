"""Checkpoints of torch.distributed.checkpoint, and Megatron's torch_dist, as leaves of global shape.

Each entry is a torch.save stream inside a ``.distcp`` file; of a tensor it holds one box. Names, global
shapes and boxes are those of the ``.metadata`` file, so leaves are the same however a run was sharded.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.checkpoints.files import OpenFiles, Region, inside
from detlab.checks.checkpoints.layout import Leaf, Piece, TensorLeaf
from detlab.checks.checkpoints.metadata import Box, Metadata, Stored, TensorEntry, read_metadata
from detlab.checks.checkpoints.torch_save import Structures
from detlab.errors import InputError
from detlab.text import plural

METADATA: Final = ".metadata"


class Reader:
    """Reads the entries of one folder."""

    def __init__(self, folder: Path, files: OpenFiles) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.unreadable: dict[str, str] = {}
        self.problems: list[str] = []
        self._folder, self._files = folder, files
        self._structures = Structures()
        self._paths: dict[str, Region | str] = {}
        self._lost: Counter[str] = Counter()

    def read(self) -> None:
        """Read every entry; what cannot be read is said in `problems`, once per reason."""
        metadata = read_metadata(self._folder / METADATA)
        self.problems += metadata.problems
        for name, entry in metadata.tensors.items():
            self._read_tensor(name, entry, metadata)
        for name in metadata.objects:
            self._read_object(name, metadata.stored.get((name, None)))
        for why, num in self._lost.items():
            self.problems.append(f"{why} ({num} {plural('entry', num) if num == 1 else 'entries'})")

    def _read_tensor(self, name: str, entry: TensorEntry, metadata: Metadata) -> None:
        if entry.dtype not in ITEM_SIZE:
            self.unreadable[name] = f"its dtype {entry.dtype} has no plain bytes"
            return
        pieces: list[Piece] = []
        for offsets, shape in entry.boxes:
            if 0 in shape:
                continue
            try:
                stored = metadata.stored.get((name, offsets))
                pieces.append(self._piece(stored, (offsets, shape), entry.dtype))
            except InputError as error:
                self._lost[error.finding] += 1
        self.leaves[name] = TensorLeaf(name, entry.shape, entry.dtype, tuple(pieces))

    def _piece(self, stored: Stored | None, box: Box, dtype: str) -> Piece:
        """Find the bytes of one box."""
        read = self._structures.read(self._region(stored), "value")
        leaf = read.leaves.get("value")
        if not isinstance(leaf, TensorLeaf):
            raise InputError(f"{self._folder}: an entry of {self._named(stored)} is no tensor")
        if leaf.shape != box[1] or leaf.dtype != dtype:
            held = f"{leaf.dtype}{list(leaf.shape)}"
            raise InputError(
                f"{self._folder}: an entry of {self._named(stored)} is {held}, not {dtype}{list(box[1])}"
            )
        return leaf.pieces[0]._replace(offsets=box[0])

    def _read_object(self, name: str, stored: Stored | None) -> None:
        try:
            read = self._structures.read(self._region(stored), name)
        except InputError as error:
            self.unreadable[name] = error.finding
            self._lost[error.finding] += 1
            return
        self.leaves |= read.leaves
        self.unreadable |= read.unreadable
        self._lost.update(read.unreadable.values())

    def _region(self, stored: Stored | None) -> Region:
        """Give the bytes of an entry."""
        if stored is None:
            raise InputError(f"{self._folder}: the metadata give no place for some entries")
        if stored.transformed:
            raise InputError(f"{self._folder}: entries of '{stored.file}' are compressed")
        whole = self._file(stored.file)
        if stored.offset + stored.length > whole.length:
            raise InputError(f"{whole.path} ends before entries that it should hold")
        return whole._replace(start=stored.offset, length=stored.length)

    def _file(self, name: str) -> Region:
        if name not in self._paths:
            try:
                self._paths[name] = self._files.whole(inside(self._folder, name))
            except InputError as error:
                self._paths[name] = error.finding
        found = self._paths[name]
        if isinstance(found, str):
            raise InputError(found)
        return found

    @staticmethod
    def _named(stored: Stored | None) -> str:
        return f"'{stored.file}'" if stored else "no file"

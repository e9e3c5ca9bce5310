"""torch.save files: their objects without their data, and where each tensor's bytes lie in the file.

The zip's directory is read here. ``torch.load(weights_only=True, map_location="meta")`` is given a small
archive in memory with the file's pickle and no data at all; from the places of its empty members it is
known which one each tensor belongs to. So nothing big is loaded, whatever the file says of itself.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.checkpoints.files import MemoryFiles, Region, RegionFile
from detlab.checks.checkpoints.layout import Leaf, Piece, ScalarLeaf, TensorLeaf
from detlab.checks.checkpoints.objects import Stream, leaves, stand_in
from detlab.checks.checkpoints.replacing import ReplacedTensor
from detlab.checks.checkpoints.tensors import read_box
from detlab.digest import bytes_digest
from detlab.errors import InputError

MAX_PICKLE_BYTES: Final = 512 << 20
_MAX_MEMBERS: Final = 2_000_000
_MOST_LOST: Final = 100
"""Members that may be missing from a zip before all of it is given up."""
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
_STORED: Final = zipfile.ZIP_STORED


class Found(NamedTuple):
    """The leaves of one file or part of it, and why others cannot be read."""

    leaves: dict[str, Leaf]
    unreadable: dict[str, str]


class _Archive(NamedTuple):
    """A torch.save file: its pickle, and the place and size of each storage by key."""

    pickled: bytes
    storages: dict[str, tuple[int, int]]


class Structures:
    """Reads torch.save streams; streams of equal structure (a shard per rank) are taken apart once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, tuple[str, ...]], tuple[Any, dict[int, str]]] = {}

    def read(self, region: Region, prefix: str = "") -> Found:
        """Give the leaves of a torch.save stream.

        Raises
        ------
        InputError
            It is none, is damaged, or holds what must not be loaded.
        """
        archive = _open(region)
        value, keys = self._structure(archive, region)
        found = Found({}, {})
        for name, leaf in leaves(value, prefix):
            if isinstance(leaf, Stream):
                self._read_stream(name, leaf, region, found)
            elif leaf is None or isinstance(leaf, (bool, int, float, str)):
                found.leaves[name] = ScalarLeaf(name, leaf, str(region.path))
            else:
                try:
                    found.leaves[name] = _tensor_leaf(name, leaf, keys, archive, region)
                except InputError as error:
                    found.unreadable[name] = error.finding
        return found

    def _read_stream(self, name: str, stream: Stream, region: Region, found: Found) -> None:
        """Add the leaves of a torch.save file inside of another; of other bytes their digest."""
        inner = Region(region.path, 0, len(stream), MemoryFiles(stream))
        try:
            read = self.read(inner, name)
        except InputError:
            found.leaves[name] = ScalarLeaf(name, bytes_digest(stream), str(region.path))
            return
        found.unreadable.update(read.unreadable)
        for key, leaf in read.leaves.items():
            found.leaves[key] = _in_memory(leaf, stream) if isinstance(leaf, TensorLeaf) else leaf

    def _structure(self, archive: _Archive, region: Region) -> tuple[Any, dict[int, str]]:
        known = (archive.pickled, tuple(archive.storages)) if len(archive.pickled) < 4096 else None
        if known is None or known not in self._known:
            taken = _take_apart(archive, region)
            if known is None:
                return taken
            self._known[known] = taken
        return self._known[known]


def _in_memory(leaf: TensorLeaf, content: bytes) -> TensorLeaf:
    """Give a tensor with its bytes, where these are in no file of their own."""
    if isinstance(leaf, ReplacedTensor) or not leaf.pieces:
        return leaf
    held = read_box(leaf, MemoryFiles(content))
    return ReplacedTensor(leaf.name, leaf.shape, leaf.dtype, (), held)


def _open(region: Region) -> _Archive:
    """Read the directory of the zip and its pickle."""
    try:
        with zipfile.ZipFile(RegionFile(region)) as opened:
            return _members(opened, region)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, struct.error, NotImplementedError) as error:
        raise InputError(f"{region.path} is no whole torch.save file: {error}", _hint(region)) from None


def _hint(region: Region) -> str:
    # torch.save before 1.6 wrote a pickle of a long number first: protocol 2, LONG1, 10 bytes
    if region.read(0, 3) == b"\x80\x02\x8a":
        return "it was written in the format before torch 1.6; load it and save it again with torch.save"
    return "copy the file again; it may have been cut"


def _members(opened: zipfile.ZipFile, region: Region) -> _Archive:
    infos = opened.infolist()
    names = {info.filename: info for info in infos}
    if len(names) != len(infos) or len(infos) > _MAX_MEMBERS:
        raise InputError(f"{region.path}: members of the zip have the same name, or are too many")
    root = next(
        (name.split("/")[0] for name in names if name.count("/") == 1 and name.endswith("/data.pkl")), None
    )
    if root is None:
        raise InputError(f"{region.path} is a zip, but no torch.save file: it has no data.pkl")
    order = names.get(f"{root}/byteorder")
    if order is not None and opened.open(order).read(16) != b"little":
        raise InputError(f"{region.path} was written on a big-endian machine")
    if f"{root}/constants.pkl" in names:
        raise InputError(f"{region.path} is a TorchScript program, not a checkpoint")
    pickled = names[f"{root}/data.pkl"]
    if pickled.file_size > MAX_PICKLE_BYTES:
        raise InputError(f"{region.path}: its data.pkl has {pickled.file_size:,} bytes")
    storages = {
        info.filename[len(root) + 6 :]: (_data_start(info, region), info.file_size)
        for info in infos
        if info.filename.startswith(f"{root}/data/")
    }
    return _Archive(opened.read(pickled), storages)


def _data_start(info: zipfile.ZipInfo, region: Region) -> int:
    """Give the place of a member's bytes in the region, or -1 where they are compressed or cut."""
    mark, name_length, extra_length = _LOCAL_HEADER.unpack(region.read(info.header_offset, 30))
    start = info.header_offset + 30 + name_length + extra_length
    whole = mark == b"PK\x03\x04" and start + info.file_size <= region.length
    plain = info.compress_type == _STORED and info.compress_size == info.file_size
    return start if whole and plain and not info.flag_bits & 1 else -1


def _take_apart(archive: _Archive, region: Region) -> tuple[Any, dict[int, str]]:
    """Let torch read the structure; give it, and which storage each place in the small archive stands for."""
    if b"bytearray" in archive.pickled:  # torch would call it with a size that the file gives
        raise InputError(f"{region.path} holds a bytearray, which is not read")
    members = list(archive.storages)
    while True:
        try:
            return _load(archive.pickled, members)
        except MemoryError:
            raise
        except Exception as error:  # whatever a hostile or foreign pickle makes torch raise
            lost = re.search(r"data/(\S+): file not found", str(error))
            if lost is None or lost[1] in members or len(members) - len(archive.storages) >= _MOST_LOST:
                raise _refused(region, error) from None
            members.append(lost[1])


def _refused(region: Region, error: Exception) -> InputError:
    # torch wraps what it found into advice to load without weights_only, which nobody should follow here
    first = re.split(r"\n|\. ", str(error.__context__ or error).strip())[0]
    hint = "save plain tensors, numbers and words instead of this object"
    return InputError(f"{region.path} cannot be read with weights_only: {first}", hint)


def _load(pickled: bytes, members: list[str]) -> tuple[Any, dict[int, str]]:
    """Load from a small archive, with our own classes for names that torch does not know."""
    import torch

    small = io.BytesIO()
    with zipfile.ZipFile(small, "w") as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/version", b"3\n")
        for key in members:
            made.writestr(f"archive/data/{key}", b"")
        keys = {
            info.header_offset + 30 + len(info.filename.encode()) + len(info.extra): info.filename[13:]
            for info in made.infolist()[2:]
        }
    small.seek(0)
    with _nothing_allowed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch speaks of what is experimental to compute with
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(small)
        small.seek(0)
        allowed: Any = [(stand_in(name), name) for name in unknown]
        torch.serialization.add_safe_globals(allowed)
        return torch.load(small, map_location="meta", weights_only=True), keys


@contextmanager
def _nothing_allowed() -> Iterator[None]:
    """Set aside the classes that this process has allowed torch to build: their code would run."""
    import torch

    kept = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(kept)


def _tensor_leaf(
    name: str, tensor: Any, keys: dict[int, str], archive: _Archive, region: Region
) -> TensorLeaf:
    """Find the bytes of a tensor that was loaded without them."""
    import torch

    dtype = str(getattr(tensor, "dtype", "none")).removeprefix("torch.")
    if not isinstance(tensor, torch.Tensor) or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise InputError(f"'{name}' is a {type(tensor).__name__}, whose bytes are not plain")
    if tensor.layout is not torch.strided or dtype not in ITEM_SIZE:
        raise InputError(f"'{name}' is a {tensor.layout} tensor of {dtype}, whose bytes are not plain")
    if tensor.is_conj() or tensor.is_neg():
        raise InputError(
            f"'{name}' is a view that negates what it shows; save its resolve_conj().resolve_neg()"
        )
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    if not tensor.numel():
        return TensorLeaf(name, shape, dtype, ())
    key = keys.get(getattr(tensor.untyped_storage(), "_checkpoint_offset", None) or -1, "")
    start, size = archive.storages.get(key, (-1, 0))
    if start < 0:
        raise InputError(f"'{name}': its bytes (data/{key}) are compressed, cut or missing in {region.path}")
    item = ITEM_SIZE[dtype]
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if min(strides, default=0) < 0 or (last + 1) * item > size:
        raise InputError(f"'{name}' reaches beyond its storage in {region.path}")
    first = int(region.start + start + tensor.storage_offset() * item)
    piece = Piece((0,) * len(shape), shape, region.path, first, strides)
    return TensorLeaf(name, shape, dtype, (piece,))

"""The ``.metadata`` file of torch.distributed.checkpoint: a pickle, read as data and never run.

The one file of this package that is read with pickle, because the format is one. Nothing of torch is
handed to it: every global name that may stand in the file is in a table here, and means a plain class of
this module or a function that joins words. Any other name ends the reading.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - the format is a pickle; see above how it is kept to data
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.errors import InputError

MAX_BYTES: Final = 512 << 20

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and shape, in elements."""


class Stored(NamedTuple):
    """Where one piece lies: a file of the folder, and a run of bytes in it."""

    file: str
    offset: int
    length: int
    transformed: bool


class TensorEntry(NamedTuple):
    """A tensor of the checkpoint: global shape, dtype and the boxes that it was saved in."""

    shape: tuple[int, ...]
    dtype: str
    boxes: tuple[Box, ...]


class Metadata(NamedTuple):
    """What the file says.

    Attributes
    ----------
    tensors
        By name.
    objects
        Names of what is no tensor.
    stored
        The place of each piece by name and offsets; objects have none.
    problems
        Entries that are not what they must be.
    """

    tensors: dict[str, TensorEntry]
    objects: tuple[str, ...]
    stored: dict[tuple[str, tuple[int, ...] | None], Stored]
    problems: tuple[str, ...]


class _Fixed(type):
    """A class that no file can change: a pickle may set attributes of whatever it names."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise InputError("a pickle tries to change a class")


class _Record(metaclass=_Fixed):
    """What a metadata class was saved with: the attributes, or the state of a class that packs them."""

    kind: ClassVar[str] = ""
    __slots__ = ("state",)

    def __init__(self, *args: Any) -> None:
        """Forget arguments: no metadata class is saved with any that matters."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def get(self, name: str) -> Any:
        """Give an attribute, None where there is none."""
        state = getattr(self, "state", None)
        return state.get(name) if isinstance(state, Mapping) else None


class _TensorStorageMetadata(_Record):
    __slots__ = ()
    kind = "tensor"


class _BytesStorageMetadata(_Record):
    __slots__ = ()
    kind = "object"


class _Metadata(_Record):
    __slots__ = ()
    kind = "metadata"


class _ChunkStorageMetadata(_Record):
    __slots__ = ()
    kind = "chunk"


class _TensorProperties(_Record):
    __slots__ = ()
    kind = "properties"


class _StorageInfo(_Record):
    __slots__ = ()
    kind = "stored"


class _MetadataIndex(_Record):
    """A key of a mapping: hashed by identity, because its attributes come later."""

    __slots__ = ()
    kind = "index"


class _Other(_Record):
    """What is read over: memory formats, the name of the checkpoint, plans of saving."""

    __slots__ = ()
    kind = "other"


class _Size(metaclass=_Fixed):
    """torch.Size, and what else is called with one sequence."""

    def __new__(cls, values: Any = ()) -> Any:
        return tuple(values)


class _Joined(metaclass=_Fixed):
    """A path of pathlib."""

    def __new__(cls, *parts: Any) -> Any:
        return "/".join(map(str, parts))


class _Mapping(metaclass=_Fixed):
    """An ordered mapping."""

    def __new__(cls, pairs: Any = ()) -> Any:
        return dict(pairs)


class _Layout(metaclass=_Fixed):
    """The layout of a tensor, by its name."""

    def __new__(cls, name: Any) -> Any:
        return str(name)


_HOME: Final = "torch.distributed.checkpoint.metadata"
_ALLOWED: Final[dict[tuple[str, str], Any]] = {
    (_HOME, "Metadata"): _Metadata,
    (_HOME, "TensorStorageMetadata"): _TensorStorageMetadata,
    (_HOME, "BytesStorageMetadata"): _BytesStorageMetadata,
    (_HOME, "ChunkStorageMetadata"): _ChunkStorageMetadata,
    (_HOME, "TensorProperties"): _TensorProperties,
    (_HOME, "MetadataIndex"): _MetadataIndex,
    (_HOME, "StorageMeta"): _Other,
    (_HOME, "_MEM_FORMAT_ENCODING"): _Other,
    # Megatron keeps the plans of all ranks with the metadata, to save the next time without gathering them
    ("torch.distributed.checkpoint.planner", "SavePlan"): _Other,
    ("torch.distributed.checkpoint.planner", "WriteItem"): _Other,
    ("torch.distributed.checkpoint.planner", "WriteItemType"): _Other,
    ("torch.distributed.checkpoint.planner", "TensorWriteData"): _Other,
    ("torch.distributed.checkpoint.planner", "BytesIOWriteData"): _Other,
    ("megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"): _Other,
    ("megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"): _Other,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageInfo,
    ("torch.distributed.checkpoint.filesystem", "_StoragePrefix"): _Other,
    ("torch", "Size"): _Size,
    ("torch.serialization", "_get_layout"): _Layout,
    ("collections", "OrderedDict"): _Mapping,
    ("pathlib", "PosixPath"): _Joined,
    ("pathlib", "WindowsPath"): _Joined,
    ("pathlib", "PurePosixPath"): _Joined,
    ("pathlib._local", "PosixPath"): _Joined,
    ("pathlib._local", "WindowsPath"): _Joined,
    **{("torch", name): name for name in ITEM_SIZE},
}
"""Every name that may stand in the file, and what it means here."""

# torch.distributed.checkpoint writes with the default protocol of its Python: 4, and 5 from Python 3.14
_OPCODES: Final = (
    "PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT "
    "BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS "
    "EMPTY_DICT SETITEM SETITEMS BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL "
    "REDUCE NEWOBJ BUILD SHORT_BINBYTES"
).split()


class _DataUnpickler(pickle._Unpickler):
    """The unpickler in Python, whose memory a file cannot inflate by naming a large memo number."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _OPCODES
    }

    def find_class(self, module: str, name: str) -> Any:
        """Give what a name means here.

        Raises
        ------
        InputError
            The name is not in the table.
        """
        if (module, name) not in _ALLOWED:
            raise InputError(f"it names '{module}.{name}', which is no metadata of a checkpoint")
        return _ALLOWED[module, name]


def read_metadata(path: Path) -> Metadata:
    """Read the ``.metadata`` file.

    Raises
    ------
    InputError
        It is damaged, too large, or holds anything but metadata.
    """
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path} has more than {MAX_BYTES >> 20} MiB", "no metadata is that large")
    hint = "only files that torch.distributed.checkpoint wrote are read; copy it again if it was cut"
    try:
        found = _DataUnpickler(io.BytesIO(path.read_bytes())).load()
    except InputError as error:
        raise InputError(f"{path} is refused: {error.finding}", hint) from None
    except MemoryError:
        raise
    except Exception as error:  # a hostile pickle can make the machine raise anything
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}", hint) from None
    if not isinstance(found, _Metadata) or not isinstance(found.get("state_dict_metadata"), Mapping):
        raise InputError(f"{path} holds no metadata of a checkpoint", hint)
    return _checked(found, path)


def _checked(found: _Metadata, path: Path) -> Metadata:
    """Take the fields that are needed, and only where they have the right types."""
    tensors: dict[str, TensorEntry] = {}
    objects: list[str] = []
    problems: list[str] = []
    for name, entry in found.get("state_dict_metadata").items():
        kind = entry.kind if isinstance(entry, _Record) and isinstance(name, str) else ""
        if kind == "object":
            objects.append(name)
        elif kind == "tensor" and (tensor := _tensor(entry)) is not None:
            tensors[name] = tensor
        else:
            problems.append(f"{path}: the entry of '{str(name)[:80]}' is no tensor and no object")
    return Metadata(tensors, tuple(objects), _places(found.get("storage_data")), tuple(problems))


def _tensor(entry: _Record) -> TensorEntry | None:
    properties, chunks = entry.get("properties"), entry.get("chunks")
    state = getattr(properties, "state", None)
    shape = _whole(entry.get("size"))
    if not isinstance(state, tuple) or not state or not isinstance(chunks, list) or shape is None:
        return None
    boxes = [_box(each, len(shape)) for each in chunks]
    if not isinstance(state[0], str) or None in boxes:
        return None
    return TensorEntry(shape, state[0], tuple(box for box in boxes if box is not None))


def _box(chunk: Any, num_dimensions: int) -> Box | None:
    if not isinstance(chunk, _ChunkStorageMetadata):
        return None
    offsets, sizes = _whole(chunk.get("offsets")), _whole(chunk.get("sizes"))
    if offsets is None or sizes is None or not len(offsets) == len(sizes) == num_dimensions:
        return None
    return offsets, sizes


def _whole(values: Any) -> tuple[int, ...] | None:
    """Give a tuple of numbers from 0 that a file of 2^63 bytes could hold; else None."""
    fine = isinstance(values, tuple) and all(type(each) is int and 0 <= each < 1 << 62 for each in values)
    return values if fine else None


def _places(stored: Any) -> dict[tuple[str, tuple[int, ...] | None], Stored]:
    places: dict[tuple[str, tuple[int, ...] | None], Stored] = {}
    for index, info in stored.items() if isinstance(stored, Mapping) else ():
        if not isinstance(index, _MetadataIndex) or not isinstance(info, _StorageInfo):
            continue
        name, offsets = index.get("fqn"), index.get("offset")
        file, run = info.get("relative_path"), _whole((info.get("offset"), info.get("length")))
        if isinstance(name, str) and isinstance(file, str) and run is not None:
            places[name, _whole(offsets)] = Stored(
                file, run[0], run[1], bool(info.get("transform_descriptors"))
            )
    return places

"""A pickle of torch.distributed.checkpoint's metadata, read as data and never run.

The one file of this package that is read with pickle, because the format is one. Nothing of torch is
handed to it: every global name that may stand in the file is in a table here, and means a plain class of
this module. Any other name ends the reading.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - the format is a pickle; see above how it is kept to data
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.errors import InputError


class _Fixed(type):
    """A class that no file can change: a pickle may set attributes of whatever it names."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise InputError("a pickle tries to change a class")


class Record(metaclass=_Fixed):
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


class TensorStorageMetadata(Record):
    """An entry of a tensor."""

    __slots__ = ()
    kind = "tensor"


class BytesStorageMetadata(Record):
    """An entry of what is no tensor."""

    __slots__ = ()
    kind = "object"


class Metadata(Record):
    """All that the file says."""

    __slots__ = ()
    kind = "metadata"


class ChunkStorageMetadata(Record):
    """One box of a tensor."""

    __slots__ = ()
    kind = "chunk"


class TensorProperties(Record):
    """The dtype of a tensor, and what is deprecated beside it."""

    __slots__ = ()
    kind = "properties"


class StorageInfo(Record):
    """Where a box or an object lies."""

    __slots__ = ()
    kind = "stored"


class MetadataIndex(Record):
    """A key of a mapping: hashed by identity, because its attributes come later."""

    __slots__ = ()
    kind = "index"


class _Other(Record):
    """What is read over: memory formats, the name of the checkpoint, plans of saving."""

    __slots__ = ()
    kind = "other"


class _Size(metaclass=_Fixed):
    """torch.Size, and what else is called with one sequence."""

    def __new__(cls, values: Any = ()) -> Any:
        return tuple(values)


class _Joined(metaclass=_Fixed):
    """A path of pathlib."""

    def __new__(cls, *parts: str) -> Any:
        return "/".join(parts)


class _Mapping(metaclass=_Fixed):
    """An ordered mapping."""

    def __new__(cls, pairs: Any = ()) -> Any:
        listed = [(key, value) for key, value in pairs]
        _refuse_nested(key for key, _ in listed)
        return dict(listed)


class _Layout(metaclass=_Fixed):
    """The layout of a tensor, by its name."""

    def __new__(cls, name: Any) -> Any:
        return name


def _refuse_nested(keys: Iterable[Any]) -> None:
    """Refuse keys that hold others: the hash of a few nested tuples can take forever."""
    if not all(isinstance(key, (str, int, float, Record, type(None))) for key in keys):
        raise InputError("it holds a mapping whose keys are neither words, numbers nor metadata")


_HOME: Final = "torch.distributed.checkpoint.metadata"
_ALLOWED: Final[dict[tuple[str, str], Any]] = {
    (_HOME, "Metadata"): Metadata,
    (_HOME, "TensorStorageMetadata"): TensorStorageMetadata,
    (_HOME, "BytesStorageMetadata"): BytesStorageMetadata,
    (_HOME, "ChunkStorageMetadata"): ChunkStorageMetadata,
    (_HOME, "TensorProperties"): TensorProperties,
    (_HOME, "MetadataIndex"): MetadataIndex,
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
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): StorageInfo,
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

    def _set_item(self: Any) -> None:
        _refuse_nested(self.stack[-2:-1])
        pickle._Unpickler.dispatch[pickle.SETITEM[0]](self)

    def _set_items(self: Any) -> None:
        _refuse_nested(self.stack[::2])
        pickle._Unpickler.dispatch[pickle.SETITEMS[0]](self)

    dispatch[pickle.SETITEM[0]] = _set_item
    dispatch[pickle.SETITEMS[0]] = _set_items

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


def load(content: bytes) -> Any:
    """Take a pickle apart; whatever is wrong with it may be raised."""
    return _DataUnpickler(io.BytesIO(content)).load()

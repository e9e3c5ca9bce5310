"""The arguments of a captured call as tagged JSON values; `detlab.captures.decode` is the way back.

None, booleans, integers and strings stand for themselves. Everything else is an object with one tag:
``float``, ``complex`` (hexadecimal, so that every bit survives), ``dtype``, ``layout``, ``memory_format``,
``device``, ``slice``, ``list``, ``tuple``, ``dict``, ``tensor``, ``generator``. A tensor names its storage by
position in the capture's list of storages, so that two arguments that shared memory share it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from detlab.digest import scalar_text


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """One storage and the blob that holds its bytes.

    Attributes
    ----------
    blob
        sha256 of the bytes, in hexadecimal.
    num_bytes
        How many bytes the blob holds.
    start, full_bytes
        From which byte of the storage on, and how many bytes the storage had in all; a compact capture
        holds only those that its tensors span.
    device
        Where the storage was, for example ``cuda:0``.
    alignment
        The largest power of two, up to 4096, that divides the address of the first byte held.
    """

    blob: str
    num_bytes: int
    start: int
    full_bytes: int
    device: str
    alignment: int


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A dense tensor as a view of what is held of a storage; shape, stride and offset count elements."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    requires_grad: bool
    conj: bool
    neg: bool


@dataclass(frozen=True, slots=True)
class GeneratorSpec:
    """A random generator; its state is the content of a storage."""

    device: str
    state: int


@dataclass(frozen=True, slots=True)
class TorchName:
    """A dtype, layout, memory format or device by its name without ``torch.``."""

    kind: str
    name: str


Scalar = None | bool | int | float | complex | str
Value = (
    Scalar
    | slice
    | TensorSpec
    | GeneratorSpec
    | TorchName
    | list["Value"]
    | tuple["Value", ...]
    | dict[str, "Value"]
)


def leaves(value: object) -> Iterator[object]:
    """Walk lists, tuples and dictionaries in order and give everything else, None included."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def encode(value: Value) -> object:
    """Write a value as JSON; the inverse of `detlab.captures.decode.decode`."""
    match value:
        case None | bool() | int() | str():
            return value
        case list() | tuple():
            return {type(value).__name__: [encode(item) for item in value]}
        case dict():
            return {"dict": [[name, encode(item)] for name, item in value.items()]}
    return _encode_one(value)


def _encode_one(value: float | complex | slice | TensorSpec | GeneratorSpec | TorchName) -> object:
    match value:
        case float():
            return {"float": scalar_text(value)}
        case complex():
            return {"complex": [scalar_text(value.real), scalar_text(value.imag)]}
        case slice():
            return {"slice": [value.start, value.stop, value.step]}
        case TorchName(kind, name):
            return {kind: name}
        case TensorSpec():
            lists = {"shape": list(value.shape), "stride": list(value.stride)}
            return {"tensor": asdict(value) | lists}
        case GeneratorSpec():
            return {"generator": asdict(value)}

"""The arguments of a captured call as tagged JSON values and back; nothing in them is executed.

None, booleans, integers and strings stand for themselves. Everything else is an object with one tag:
``float``, ``complex`` (hexadecimal, so that every bit survives), ``dtype``, ``layout``, ``memory_format``,
``device``, ``list``, ``tuple``, ``tensor``, ``generator``. A tensor names its storage by position in the
capture's list of storages, so that two arguments that shared memory share it again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from detlab.digest import scalar_text
from detlab.errors import CaptureError

EDITED_HINT: Final = "take the capture again; its files are not meant to be edited by hand"


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """One storage and the blob that holds its bytes.

    Attributes
    ----------
    blob
        sha256 of the bytes, in hexadecimal.
    device
        Where the storage was, for example ``cuda:0``.
    alignment
        The largest power of two, up to 4096, that divided its address; recorded, not restored.
    """

    blob: str
    num_bytes: int
    device: str
    alignment: int


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A dense tensor as a view of a storage; shape, stride and offset count elements."""

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
Value = Scalar | TensorSpec | GeneratorSpec | TorchName | list["Value"] | tuple["Value", ...]


def leaves(value: object) -> Iterator[object]:
    """Walk lists and tuples in order and give everything else, None included."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def encode(value: Value) -> object:
    """Write a value as JSON; the inverse of `decode`."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            body: object = {"float": scalar_text(value)}
        case complex():
            body = {"complex": [scalar_text(value.real), scalar_text(value.imag)]}
        case TorchName(kind, name):
            body = {kind: name}
        case TensorSpec():
            lists = {"shape": list(value.shape), "stride": list(value.stride)}
            body = {"tensor": asdict(value) | lists}
        case GeneratorSpec():
            body = {"generator": asdict(value)}
        case list():
            body = {"list": [encode(item) for item in value]}
        case tuple():
            body = {"tuple": [encode(item) for item in value]}
    return body


def decode(body: object, place: str) -> Value:
    """Read a value back.

    Raises
    ------
    CaptureError
        An unknown tag, or a body that is not of its tag's form; `place` says where it stands.
    """
    if body is None or isinstance(body, bool | int | str):
        return body
    if not isinstance(body, dict) or len(body) != 1:
        raise CaptureError(
            f"{place} is a bare {type(body).__name__}, not an object with one tag.", EDITED_HINT
        )
    tag, content = next(iter(body.items()))
    if tag not in _DECODERS:
        raise CaptureError(
            f"{place} has the unknown tag {tag!r}.", "read it with the version of detlab that wrote it"
        )
    return _DECODERS[tag](content, f"{place}.{tag}")


def fields(body: object, types: Mapping[str, type], place: str) -> dict[str, Any]:
    """Check that an object has exactly these fields of exactly these types, and give it back.

    Raises
    ------
    CaptureError
        A field is missing, unknown or of another type; true and false are no integers here.
    """
    if not isinstance(body, dict):
        raise CaptureError(f"{place} is of type {type(body).__name__}, not an object.", EDITED_HINT)
    if odd := sorted(set(body) ^ set(types)):
        lacks = "lacks" if odd[0] in types else "has the unknown"
        raise CaptureError(f"{place} {lacks} field {odd[0]!r}.", EDITED_HINT)
    for name, kind in types.items():
        if type(body[name]) is not kind:
            found = type(body[name]).__name__
            raise CaptureError(f"{place}.{name} is of type {found}, not {kind.__name__}.", EDITED_HINT)
    return body


def integers(body: object, place: str) -> tuple[int, ...]:
    """Check a list of integers that are not negative, as all sizes, strides and offsets here are."""
    if not isinstance(body, list) or any(type(item) is not int or item < 0 for item in body):
        raise CaptureError(f"{place} is not a list of integers from 0 up.", EDITED_HINT)
    return tuple(body)


def storage_spec(body: object, place: str) -> StorageSpec:
    """Read a storage back, see `decode`."""
    found = fields(body, {"blob": str, "num_bytes": int, "device": str, "alignment": int}, place)
    integers([found["num_bytes"], found["alignment"]], f"{place} num_bytes, alignment")
    _name("device", found["device"], f"{place}.device")
    if not re.fullmatch("[0-9a-f]{64}", found["blob"]):  # becomes part of a path
        raise CaptureError(f"{place}.blob is not a sha256.", EDITED_HINT)
    return StorageSpec(**found)


def _float(body: object, place: str) -> float:
    try:
        if isinstance(body, str) and body.startswith("nan:"):  # keeps the payload, see scalar_text
            return float(struct.unpack("<d", bytes.fromhex(body[4:]))[0])
        if isinstance(body, str):
            return float.fromhex(body)
    except (ValueError, OverflowError, struct.error):
        pass
    raise CaptureError(f"{place} is not a hexadecimal float.", EDITED_HINT)


def _complex(body: object, place: str) -> complex:
    if not isinstance(body, list) or len(body) != 2:
        raise CaptureError(f"{place} is not a pair of floats.", EDITED_HINT)
    return complex(_float(body[0], place), _float(body[1], place))


def _name(kind: str, body: object, place: str) -> TorchName:
    if not isinstance(body, str) or not re.fullmatch(r"[a-z][a-z0-9_]*(:\d+)?", body):
        raise CaptureError(f"{place} is not a name.", EDITED_HINT)
    return TorchName(kind, body)


def _items(body: object, place: str) -> list[Value]:
    if not isinstance(body, list):
        raise CaptureError(f"{place} is not a list.", EDITED_HINT)
    return [decode(item, f"{place}[{i}]") for i, item in enumerate(body)]


def _tuple(body: object, place: str) -> tuple[Value, ...]:
    return tuple(_items(body, place))


def _tensor(body: object, place: str) -> TensorSpec:
    found = fields(body, _TENSOR_FIELDS, place)
    shape, stride = (integers(found[name], f"{place}.{name}") for name in ("shape", "stride"))
    integers([found["storage"], found["offset"]], f"{place} storage, offset")
    if len(shape) != len(stride):
        raise CaptureError(f"{place} has {len(shape)} sizes and {len(stride)} strides.", EDITED_HINT)
    _name("dtype", found["dtype"], f"{place}.dtype")
    return TensorSpec(**{**found, "shape": shape, "stride": stride})


def generator_spec(body: object, place: str) -> GeneratorSpec:
    """Read a generator back, see `decode`."""
    found = fields(body, {"device": str, "state": int}, place)
    integers([found["state"]], f"{place}.state")
    _name("device", found["device"], f"{place}.device")
    return GeneratorSpec(**found)


_TENSOR_FIELDS: Final[dict[str, type]] = {
    "storage": int,
    "dtype": str,
    "shape": list,
    "stride": list,
    "offset": int,
    "requires_grad": bool,
    "conj": bool,
    "neg": bool,
}

_DECODERS: Final[dict[str, Callable[[object, str], Value]]] = {
    "float": _float,
    "complex": _complex,
    **{kind: partial(_name, kind) for kind in ("dtype", "layout", "memory_format", "device")},
    "list": _items,
    "tuple": _tuple,
    "tensor": _tensor,
    "generator": generator_spec,
}

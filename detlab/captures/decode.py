"""Read the arguments of a captured call back from JSON; nothing in them is executed."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

from detlab.captures.fields import EDITED_HINT, fields, integers
from detlab.captures.values import GeneratorSpec, StorageSpec, TensorSpec, TorchName, Value
from detlab.errors import CaptureError

MAX_DEPTH: Final = 40
"""How deep lists may nest; far more than any call needs, far less than Python's stack holds."""


def decode(body: object, place: str, depth: int = 0) -> Value:
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
    if tag in _CONTAINERS:
        if depth == MAX_DEPTH:
            raise CaptureError(f"{place} nests too deeply.", EDITED_HINT)
        return _CONTAINERS[tag](content, f"{place}.{tag}", depth + 1)
    if tag in _NAMES:
        return _name(tag, content, f"{place}.{tag}")
    if tag not in _DECODERS:
        raise CaptureError(
            f"{place} has the unknown tag {tag!r}.", "read it with the version of detlab that wrote it"
        )
    return _DECODERS[tag](content, f"{place}.{tag}")


def storage_spec(body: object, place: str) -> StorageSpec:
    """Read a storage back, see `decode`."""
    found = fields(body, _STORAGE_FIELDS, place)
    names = ("num_bytes", "start", "full_bytes", "alignment")
    integers([found[name] for name in names], f"{place} {', '.join(names)}")
    if found["start"] + found["num_bytes"] > found["full_bytes"]:
        raise CaptureError(f"{place} holds more bytes than its storage had.", EDITED_HINT)
    _name("device", found["device"], f"{place}.device")
    if not re.fullmatch("[0-9a-f]{64}", found["blob"]):  # becomes part of a path
        raise CaptureError(f"{place}.blob is not a sha256.", EDITED_HINT)
    return StorageSpec(**found)


def generator_spec(body: object, place: str) -> GeneratorSpec:
    """Read a generator back, see `decode`."""
    found = fields(body, {"device": str, "state": int}, place)
    integers([found["state"]], f"{place}.state")
    _name("device", found["device"], f"{place}.device")
    return GeneratorSpec(**found)


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


def _slice(body: object, place: str) -> slice:
    if not isinstance(body, list) or len(body) != 3 or any(type(i) not in (int, type(None)) for i in body):
        raise CaptureError(f"{place} is not a start, a stop and a step.", EDITED_HINT)
    return slice(*body)


def _name(kind: str, body: object, place: str) -> TorchName:
    if not isinstance(body, str) or not re.fullmatch(r"[a-z][a-z0-9_]*(:[0-9]{1,5})?", body):
        raise CaptureError(f"{place} is not a name.", EDITED_HINT)
    return TorchName(kind, body)


def _items(body: object, place: str, depth: int) -> list[Value]:
    if not isinstance(body, list):
        raise CaptureError(f"{place} is not a list.", EDITED_HINT)
    return [decode(item, f"{place}[{i}]", depth) for i, item in enumerate(body)]


def _tuple(body: object, place: str, depth: int) -> tuple[Value, ...]:
    return tuple(_items(body, place, depth))


def _dict(body: object, place: str, depth: int) -> dict[str, Value]:
    if not isinstance(body, list) or any(
        not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) for pair in body
    ):
        raise CaptureError(f"{place} is not a list of names with values.", EDITED_HINT)
    found = {name: decode(value, f"{place}[{name!r}]", depth) for name, value in body}
    if len(found) != len(body):
        raise CaptureError(f"{place} gives one name twice.", EDITED_HINT)
    return found


def _tensor(body: object, place: str) -> TensorSpec:
    found = fields(body, _TENSOR_FIELDS, place)
    shape, stride = (integers(found[name], f"{place}.{name}") for name in ("shape", "stride"))
    integers([found["storage"], found["offset"]], f"{place} storage, offset")
    if len(shape) != len(stride):
        raise CaptureError(f"{place} has {len(shape)} sizes and {len(stride)} strides.", EDITED_HINT)
    _name("dtype", found["dtype"], f"{place}.dtype")
    return TensorSpec(**{**found, "shape": shape, "stride": stride})


_STORAGE_FIELDS: Final[dict[str, type]] = {
    "blob": str,
    "num_bytes": int,
    "start": int,
    "full_bytes": int,
    "device": str,
    "alignment": int,
}
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
_NAMES: Final = frozenset({"dtype", "layout", "memory_format", "device"})
_DECODERS: Final[dict[str, Callable[[object, str], Value]]] = {
    "float": _float,
    "complex": _complex,
    "slice": _slice,
    "tensor": _tensor,
    "generator": generator_spec,
}
_CONTAINERS: Final[dict[str, Callable[[object, str, int], Value]]] = {
    "list": _items,
    "tuple": _tuple,
    "dict": _dict,
}

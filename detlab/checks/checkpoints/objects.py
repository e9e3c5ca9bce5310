"""Objects of a torch.save file as named leaves; classes that are not torch's stand as plain data.

``torch.load(weights_only=True)`` refuses a file that names any class it does not know. Such a name is
given a class of our own here, which only keeps what was written for it: nothing is imported and nothing of
the named class or function runs. So an ``argparse.Namespace``, a numpy array, an enum or a loss scaler is
read as the data that it was saved as.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from detlab.checks.checkpoints.layout import Scalar
from detlab.digest import bytes_digest, scalar_text
from detlab.errors import InputError

MAX_DEPTH: Final = 64
MAX_LEAVES: Final = 5_000_000
"""More than that was made to flood: a few bytes of a file can name one list a million times."""

LONGEST_LIST: Final = 64
"""A longer list of plain numbers (the state of a generator, the order of samples) is one leaf: its digest."""

_LONGEST_WORD: Final = 4096
_WORDS: Final = ("dtype", "device", "layout", "memory_format", "qscheme", "complex")
"""Classes whose objects are what they are called; torch's are no strings."""

Named = tuple[str, Any]
"""A dotted name, and a tensor or a scalar."""


class PlainData:
    """What a file wrote for a class or function that is not known here: arguments and state, never run."""

    named: ClassVar[str] = ""

    def __new__(cls, *args: Any) -> PlainData:
        """Keep the arguments."""
        made = object.__new__(cls)
        made.args = args
        made.state = None
        return made

    def __init__(self, *args: Any) -> None:
        self.args: tuple[Any, ...]
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __hash__(self) -> int:
        return hash(self.named)

    def __eq__(self, other: object) -> bool:
        return self is other


class Stream(bytes):
    """The bytes of an ``io.BytesIO``: often a torch.save file inside of another."""


def stand_in(named: str) -> type[PlainData]:
    """Give the class that stands for a global name of a file."""
    return type("Standing", (PlainData,), {"named": named})


def leaves(value: Any, prefix: str = "") -> Iterator[Named]:
    """Walk an object and give its tensors and scalars by their dotted names.

    Raises
    ------
    InputError
        It holds itself, is nested too deeply, or has too many leaves.
    """
    walk = _Walk()
    yield from walk.go(value, prefix, 0)


class _Walk:
    """One walk over an object: counts leaves, and makes names unique."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._num = 0

    def go(self, value: Any, name: str, depth: int) -> Iterator[Named]:
        if depth > MAX_DEPTH:
            raise InputError(f"'{name[:80]}' is nested more than {MAX_DEPTH} deep, or holds itself")
        children = _children(value)
        if children is None:
            yield from self._leaf(name, value)
            return
        for key, child in children:
            yield from self.go(child, f"{name}.{key}" if name else key, depth + 1)

    def _leaf(self, name: str, value: Any) -> Iterator[Named]:
        self._num += 1
        if self._num > MAX_LEAVES:
            raise InputError(f"more than {MAX_LEAVES:,} leaves")
        name = name or "value"
        seen = self._names.get(name, 0)
        self._names[name] = seen + 1
        yield (f"{name}#{seen + 1}" if seen else name), _plain(value)


def _children(value: Any) -> Iterable[tuple[str, Any]] | None:
    """Give what an object holds, by key; None for a leaf."""
    if isinstance(value, Mapping):
        return [(_key(key), child) for key, child in value.items()] if value else None
    if isinstance(value, (list, tuple)) and value and not _is_long(value):
        return [(str(index), child) for index, child in enumerate(value)]
    if isinstance(value, (set, frozenset)) and value:
        texts = sorted(scalar_text(each) if _is_number(each) else repr(each) for each in value)
        return [(str(index), text) for index, text in enumerate(texts)]
    if isinstance(value, PlainData):
        return _data_children(value)
    return None


def _key(key: Any) -> str:
    return key if isinstance(key, str) else getattr(key, "named", None) or str(key)


def _data_children(value: PlainData) -> Iterable[tuple[str, Any]] | None:
    if value.named in ("argparse.Namespace", "types.SimpleNamespace") and isinstance(value.state, Mapping):
        return [(_key(key), child) for key, child in value.state.items()]
    if _array(value) is not None or _stream(value) is not None:
        return None
    content: list[tuple[str, Any]] = [("__class__", value.named)]
    content += [(f"__args__.{index}", each) for index, each in enumerate(value.args)]
    if isinstance(value.state, Mapping):
        content += [(_key(key), child) for key, child in value.state.items()]
    elif value.state is not None:
        content.append(("__state__", value.state))
    return content


def _is_number(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, complex)


def _is_long(value: Any) -> bool:
    return len(value) > LONGEST_LIST and all(map(_is_number, value))


def _plain(value: Any) -> Any:
    """Give a leaf as a scalar; a tensor, and what is neither, as it is."""
    if isinstance(value, PlainData):
        stream = _stream(value)
        return _array(value) if stream is None else stream
    if isinstance(value, type) and issubclass(value, PlainData):
        return value.named
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        kind = f"empty {type(value).__name__}"
        return _digested(f"{len(value)} numbers", scalar_text(list(value)).encode()) if value else kind
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > 4096:
        return _digested("int", hex(value).encode())
    if isinstance(value, str) and len(value) > _LONGEST_WORD:
        return _digested("text", value.encode("utf-8", "replace"))
    if isinstance(value, (bytes, bytearray)):
        return bytes_digest(bytes(value))
    return str(value) if type(value).__name__ in _WORDS else value


def _digested(what: str, data: bytes) -> str:
    zeros = ", all bytes zero" if data and not any(data) else ""
    return f"{what}, xxh3-128 {bytes_digest(data)}{zeros}"


def _stream(value: PlainData) -> Stream | None:
    """Give what an ``io.BytesIO`` holds: it is built with (bytes, place, attributes)."""
    state = value.state
    if value.named == "_io.BytesIO" and isinstance(state, tuple) and state and isinstance(state[0], bytes):
        return Stream(state[0])
    return None


def _array(value: PlainData) -> Scalar:
    """Give a numpy array or number, as numpy pickles it, as text; None where it is none.

    ``_reconstruct`` is built with (version, shape, dtype, is Fortran order, bytes), ``scalar`` is called
    with (dtype, bytes): numpy's ``ndarray.__reduce__`` and ``generic.__reduce__``.
    """
    what = value.named.rpartition(".")[2]
    if what == "_reconstruct" and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, dtype, fortran, data = value.state
        if isinstance(data, bytes) and isinstance(shape, tuple) and all(type(n) is int for n in shape):
            order = ", column-major" if fortran and len(shape) > 1 and math.prod(shape) else ""
            return _digested(f"{_dtype(dtype)}{list(shape)}{order}", data)
    if what == "scalar" and len(value.args) == 2 and isinstance(value.args[1], bytes):
        return f"{_dtype(value.args[0])}({value.args[1].hex()})"
    return None


def _dtype(value: Any) -> str:
    """Give a numpy dtype, as it is pickled: called with its short name, built with its byte order."""
    if not isinstance(value, PlainData) or not value.args:
        return "numpy"
    state = value.state if isinstance(value.state, tuple) else ()
    big = ">" if len(state) > 1 and state[1] == ">" else ""
    return f"numpy {big}{value.args[0]}"

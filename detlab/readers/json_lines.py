"""Read JSON lines as far as they are whole: one record at a time, and one sentence about where it stops."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, cast

from detlab.progress import Told

Record = dict[str, Any]

_TOLD_LINES: Final = 1024
"""Lines after which it is told how much was read: asking for the place takes as long as a short line."""

MAX_LINE_BYTES: Final = 1 << 26
"""A longer line is damage, or was made to fill the memory."""


class BadRecord(ValueError):  # noqa: N818 - reads as the finding it is
    """A line that cannot be used; the text goes on after the words "line 7"."""


def walk(
    path: Path, take: Callable[[Record], None], *, allow_nan: bool = False, told: Told | None = None
) -> str:
    """Hand over every record up to the first line that cannot be used.

    Parameters
    ----------
    path
        The file; gzip when its name ends so.
    take
        Called with each record; a `BadRecord` that it raises ends the walk.
    allow_nan
        Accept the literals ``NaN`` and ``Infinity``, which are no JSON but which Python writes.
    told
        Told how many bytes of the file have been read.

    Returns
    -------
    One sentence about the line that ended the walk; empty when the file is whole.
    """
    decode = _decoder(allow_nan).decode
    number = 0
    try:
        with _open(path) as stream:
            place = _Place(stream, told)
            while True:
                number += 1
                line = _next_line(stream)
                if number % _TOLD_LINES == 0 or not line:
                    place.tell()
                if not line:
                    return ""
                if not line.isspace():
                    take(_parse(line, decode))
    except BadRecord as damage:
        return f"{path.name}: line {number} {damage}; what stands before it is used"


class _Place:
    """Tells how far a file has been read; of a compressed one in bytes as they lie on the disk."""

    def __init__(self, stream: BinaryIO, told: Told | None) -> None:
        self._file: BinaryIO = getattr(stream, "fileobj", stream)  # that of gzip beneath it
        self._told, self._at = told, 0

    def tell(self) -> None:
        if self._told is not None:
            at = self._file.tell()
            self._told(at - self._at)
            self._at = at


def first_record(path: Path, *, allow_nan: bool = False) -> Record:
    """Give the record of the first line; raise `BadRecord` when there is none."""
    with _open(path) as stream:
        line = _next_line(stream)
    if not line:
        raise BadRecord("is missing: the file is empty")
    return _parse(line, _decoder(allow_nan).decode)


def head(path: Path, size: int = 4096) -> bytes:
    """Give the first bytes of a file, to see what it is; empty when it cannot be read."""
    try:
        with _open(path) as stream:
            return stream.read(size)
    except (BadRecord, OSError, EOFError, zlib.error):
        return b""


def _open(path: Path) -> BinaryIO:
    try:
        return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
    except OSError as error:
        raise BadRecord(f"cannot be read: {error.strerror}") from error


def _next_line(stream: BinaryIO) -> bytes:
    """Give the next line; empty at the end of the file."""
    try:
        line = stream.readline(MAX_LINE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadRecord(f"cannot be read: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise BadRecord(f"is longer than {MAX_LINE_BYTES:,} bytes")
    return line


def _parse(line: bytes, decode: Callable[[str], Any]) -> Record:
    try:
        record = decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRecord(f"is no UTF-8 at byte {error.start}") from error
    except BadRecord:
        raise
    except (ValueError, RecursionError) as error:
        cut = "" if line.endswith(b"\n") else ", and the file ends in it"
        raise BadRecord(f"is no JSON{cut}: {error}") from error
    if not isinstance(record, dict):
        raise BadRecord(f"holds a {type(record).__name__}, not an object")
    return record


@cache
def _decoder(allow_nan: bool) -> json.JSONDecoder:
    refuse = None if allow_nan else _refuse_constant
    return json.JSONDecoder(object_pairs_hook=_unique, parse_constant=refuse)


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRecord(f"has the key {twice!r} twice")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise BadRecord(f"holds {text}, which is no JSON")

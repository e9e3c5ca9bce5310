"""Read the events of a trace in JSON one by one: what is held of a file of any size is one piece of it."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, cast

from detlab.progress import Told

_PIECE: Final = 1 << 22
"""Bytes that are read at a time."""

MAX_EVENT: Final = 1 << 26
"""Characters of one value; a longer one is damage, or was made to fill the memory."""

_IN_NUMBER: Final = 3
"""Characters within a number that are no number of their own."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_MORE: Final = re.compile(r"[ \t\n\r,]*")

EVENTS: Final = "traceEvents"


class Damaged(ValueError):  # noqa: N818 - reads as the finding it is
    """What stands here is no JSON, or was cut."""


class _Text:
    """A window onto the text of a file."""

    def __init__(self, stream: BufferedReader, told: Told | None) -> None:
        self._stream, self._told, self._failure = stream, told, ""
        self._file: Any = getattr(stream, "fileobj", stream)  # that of gzip beneath it
        self._told_at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._decode = json.JSONDecoder().raw_decode
        self.text, self.at, self._gone, self._ended = "", 0, 0, False

    @property
    def place(self) -> str:
        return f"character {self._gone + self.at:,}"

    def value(self) -> Any:
        """Take one JSON value."""
        while True:
            try:
                value, end = self._decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._grow():
                    raise Damaged(self._said(error)) from error
                continue
            # a number at the end of a piece may go on in the next one, also behind a "." or an "e+"
            is_number = isinstance(value, int | float)
            if not is_number or len(self.text) - end > _IN_NUMBER or not self._grow():
                self.at = end
                return value

    def next(self, skipped: re.Pattern[str] = _SPACE) -> str:
        """Give the next character that is not skipped, without taking it; "" at the end."""
        while True:
            found = skipped.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._grow():
                return ""

    def take(self, wanted: str) -> None:
        """Take one character that must stand here."""
        found = self.next()
        if found != wanted:
            raise Damaged(f"{self.place}: '{wanted}' is expected, not {found!r}" if found else self._cut())
        self.at += 1

    def _grow(self) -> bool:
        """Read the next piece behind what is not taken yet; say whether there was any."""
        if self._ended or len(self.text) - self.at > MAX_EVENT:
            return False
        more = self._read()
        self._gone += self.at
        self.text, self.at = self.text[self.at :] + more, 0
        self._ended = not more
        return bool(more)

    def _read(self) -> str:
        """Read about a piece; what stands before a place that cannot be read is given first."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < _PIECE and not self._failure:
                part = self._stream.read1(_PIECE - size)
                if not part:
                    break
                parts.append(part)
                size += len(part)
        except (OSError, EOFError, zlib.error) as error:
            self._failure = str(error)
        if self._failure and not parts:
            raise Damaged(f"{self.place}: cannot be read further: {self._failure}")
        self._tell()
        text = self._decoder.decode(b"".join(parts), final=not parts)
        return text if text or not parts else self._read()  # a character may go on in the next piece

    def _tell(self) -> None:
        if self._told is not None:
            at = self._file.tell()
            self._told(at - self._told_at)
            self._told_at = at

    def _said(self, error: Exception) -> str:
        why = getattr(error, "msg", "") or str(error) or type(error).__name__
        return self._cut() if self._ended else f"{self.place}: no JSON: {why}"

    def _cut(self) -> str:
        return f"{self.place}: the file ends in the middle of an event or of the trace"


class TraceEvents:
    """The events of one file, and what stands beside them.

    Attributes
    ----------
    beside
        Values of the trace that are no events, by their names; whole once all events were taken.
    problem
        Where the file stops making sense; "" while it does not.
    """

    def __init__(self, path: Path, told: Told | None = None) -> None:
        self._path, self._told = path, told
        self.beside: dict[str, Any] = {}
        self.problem = ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            with _open(self._path) as stream:
                yield from self._all(_Text(stream, self._told))
        except Damaged as damage:
            self.problem = str(damage)
        except OSError as error:
            self.problem = f"cannot be read: {error.strerror or error}"

    def _all(self, text: _Text) -> Iterator[dict[str, Any]]:
        if text.next() == "[":  # the bare list that the format of trace events allows as well
            yield from _items(text, may_lack_end=True)
            return
        text.take("{")
        while text.next(_MORE) != "}":
            name = text.value()
            text.take(":")
            following = text.next()
            if name == EVENTS and following == "[":
                yield from _items(text)
            else:
                self.beside[str(name)] = text.value()


def _items(text: _Text, *, may_lack_end: bool = False) -> Iterator[dict[str, Any]]:
    text.take("[")
    while True:
        following = text.next(_MORE)
        if following == "]" or (may_lack_end and not following):
            text.at += 1
            return
        event = text.value()
        if isinstance(event, dict):
            yield event


def _open(path: Path) -> BufferedReader:
    with path.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
    return cast(BufferedReader, gzip.open(path) if is_packed else path.open("rb"))

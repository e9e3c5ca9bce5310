"""Read a small file as text, whatever wrote it, and say what is wrong with it."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Final

from detlab.checks.recipe.sources.found import Found
from detlab.errors import InputError

MAX_BYTES: Final = 8 << 20
"""Larger than any configuration, script or environment; a log says its arguments before it gets here."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_bytes(path: Path) -> tuple[bytes, bool]:
    """Read a file that should be small: its first bytes, and whether they are all of it.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        with path.open("rb") as file:  # what /proc holds has no size before it is read
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {os.strerror(error.errno or 0)}.", "give a file that you may read"
        ) from None
    return content[:MAX_BYTES], len(content) <= MAX_BYTES


def decoded(content: bytes, found: Found | None = None) -> str:
    """Give the text of a file with one kind of line ends; bytes that are no UTF-8 are shown as escapes."""
    encoding = "utf-8"
    for mark, name in _MARKS:
        if content.startswith(mark):
            content, encoding = content[len(mark) :], name
            break
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        text = content.decode(encoding, "backslashreplace")
        if found is not None:
            line = content.count(b"\n", 0, error.start) + 1
            found.miss(f"line {line}", f"it is no {encoding.upper()}; the bytes are shown as escapes")
    return text.replace("\r\n", "\n").replace("\r", "\n")

"""Check that what a file says is of the form it must be, before anything uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detlab.errors import CaptureError

EDITED_HINT: Final = "take the capture again; its files are not meant to be edited by hand"

_LIMIT: Final = 2**63
"""Sizes and offsets are signed 64-bit numbers in torch."""


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
    if not isinstance(body, list) or any(type(item) is not int or not 0 <= item < _LIMIT for item in body):
        raise CaptureError(f"{place} is not a list of integers from 0 up.", EDITED_HINT)
    return tuple(body)


def printable(body: object, place: str) -> str:
    """Check text that people will see: one line, and nothing in it that steers a terminal."""
    if not isinstance(body, str) or not body.isprintable():
        raise CaptureError(f"{place} is not one line of printable text.", EDITED_HINT)
    return body


def texts(body: Mapping[str, object], place: str) -> None:
    """Check an object that maps names to text, all of it printable."""
    for name, value in body.items():
        printable(name, f"{place}: a name")
        printable(value, f"{place}.{name}")

"""The wire format of Protocol Buffers: the fields of a message, by number."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields; ``BYTES`` are a text, a message or packed numbers."""


def fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Give the fields of the message that stands in ``data`` from ``at`` to ``end``.

    Yields
    ------
    Number and kind of the field, and where it begins and ends; of a varint, its value and 0.

    Raises
    ------
    ValueError, IndexError
        This is no message.
    """
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, kind, value, 0
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(kind)
        if at + size > end:
            raise ValueError(size)
        yield key >> 3, kind, at, at + size
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Give a number, and where the next field begins."""
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(value)

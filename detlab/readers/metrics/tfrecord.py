"""TFRecord files: payloads with length and checksums; what is damaged is passed over, and said."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_HEAD: Final = struct.Struct("<QI")
"""Length of the payload, and the checksum of the length."""

_TAIL_BYTES: Final = 4
_CHECKED_BYTES: Final = 1 << 17
"""Longer payloads are pictures and graphs: their checksum would take longer than all others."""

_BATCH: Final = 1 << 16


class Records(NamedTuple):
    """The whole records of a file.

    Attributes
    ----------
    starts, lengths
        Where each payload stands, int64.
    problems
        One sentence for each place where something is missing or damaged.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    problems: tuple[str, ...]


def find_records(data: NDArray[np.uint8]) -> Records:
    """Find the records of a file whose payload fits its checksum.

    After a length that does not fit its checksum, reading goes on at the next one that does.
    """
    content = memoryview(data)  # type: ignore[arg-type]
    starts: list[int] = []
    lengths: list[int] = []
    problems: list[str] = []
    sums: dict[bytes, int] = {}
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            problems.append(f"byte {at}: the file ends inside the head of a record")
            break
        length, told = _HEAD.unpack_from(content, at)
        head = bytes(content[at : at + 8])
        if head not in sums:
            sums[head] = int(_checksums(data, np.array([at]), np.array([8]))[0])
        if told != sums[head]:
            found = _next_head(data, at + 1)
            lost = len(data) - at if found is None else found - at
            problems.append(
                f"byte {at}: the length of a record does not fit its checksum; {lost} bytes are lost"
            )
            at = at + lost
            continue
        end = at + _HEAD.size + length + _TAIL_BYTES
        if end > len(data):
            there = len(data) - at - _HEAD.size
            problems.append(f"byte {at}: the file ends after {there} of the {length} bytes of a record")
            break
        starts.append(at + _HEAD.size)
        lengths.append(length)
        at = end
    return _whole(data, np.array(starts, np.int64), np.array(lengths, np.int64), problems)


def _whole(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], problems: list[str]
) -> Records:
    checked = np.flatnonzero(lengths <= _CHECKED_BYTES)
    ends = starts[checked] + lengths[checked]
    bad = checked[_checksums(data, starts[checked], lengths[checked]) != _little_endian(data, ends)]
    problems += [
        f"byte {starts[each] - _HEAD.size}: a record does not fit its checksum; it is left out"
        for each in bad
    ]
    return Records(np.delete(starts, bad), np.delete(lengths, bad), tuple(problems))


def _next_head(data: NDArray[np.uint8], start: int) -> int | None:
    """Find the next place where a length and a payload stand that both fit their checksums."""
    for first in range(start, len(data) - _HEAD.size + 1, _BATCH):
        places = np.arange(first, min(first + _BATCH, len(data) - _HEAD.size + 1))
        fits = _checksums(data, places, np.full(len(places), 8)) == _little_endian(data, places + 8)
        for place in places[fits].tolist():
            length = int.from_bytes(data[place : place + 8].tobytes(), "little")
            payload = place + _HEAD.size
            if payload + length + _TAIL_BYTES <= len(data):
                starts, lengths = np.array([payload]), np.array([length])
                if _checksums(data, starts, lengths) == _little_endian(data, starts + lengths):
                    return int(place)
    return None


def _little_endian(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Read the checksums at some places."""
    values = np.zeros(len(places), np.uint32)
    for index in range(_TAIL_BYTES):
        values |= data[places + index].astype(np.uint32) << np.uint32(8 * index)
    return values


def _table() -> NDArray[np.uint32]:
    """Give the table of CRC-32C (Castagnoli, reflected)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table.astype(np.uint32)


_TABLE: Final = _table()


def _checksums(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Compute the masked CRC-32C of many pieces at once, one byte of each at a time."""
    sums = np.full(len(starts), 0xFFFFFFFF, np.uint32)
    for first in range(0, len(starts), _BATCH):
        order = first + np.argsort(-lengths[first : first + _BATCH], kind="stable")
        crc, begins = sums[order], starts[order]
        shorter = -lengths[order]
        for index in range(int(-shorter[0])):
            active = int(np.searchsorted(shorter, -index))
            part = crc[:active]
            part[:] = _TABLE[(part ^ data[begins[:active] + index]) & 0xFF] ^ (part >> np.uint32(8))
        sums[order] = crc
    sums = ~sums
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)

"""The index of a rank: one record per segment, with digests that let equal segments go unread.

It holds nothing that the events do not say; a missing or outdated index is rebuilt while loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from detlab.schema import INDEX_DTYPE, Flag

Columns = Mapping[str, NDArray[Any]]

_MAGIC: Final = b"detlab index 1\n\0"
_VALUE_DTYPE: Final = np.dtype(
    [
        ("in_digest", "<u8"),
        ("out_digest", "<u8"),
        ("meta", "<u8"),
        ("n_in", "<u2"),
        ("n_out", "<u2"),
        ("flags", "<u2"),
        ("evidence", "u1"),
    ]
)

INDEXED_COLUMNS: Final = (
    "step", "microbatch", "phase", "callee", "meta", "in_digest", "out_digest", "n_in", "n_out", "evidence",
    "flags",
)  # fmt: skip
"""The event columns that an index is made from."""


def segment_starts(columns: Columns) -> NDArray[np.intp]:
    """Give the first row of each contiguous run of one (step, microbatch, phase)."""
    size = len(columns["step"])
    changed = np.zeros(size, bool)
    changed[:1] = True
    for name in ("step", "microbatch", "phase"):
        column = columns[name]
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def index_batch(
    columns: Columns,
    callee_hashes: NDArray[np.uint64],
    meta_hashes: NDArray[np.uint64],
    place: tuple[int, int, int] = (0, 0, 0),
) -> NDArray[np.void]:
    """Make the index records of one batch of events.

    Parameters
    ----------
    columns
        The `INDEXED_COLUMNS` of the batch, one row per event.
    callee_hashes, meta_hashes
        Content digests by id, see `detlab.store.names`.
    place
        Ordinal of the batch, its byte offset in the stream and the offset just after it.
    """
    starts = segment_starts(columns)
    records = np.zeros(len(starts), INDEX_DTYPE)
    if not len(starts):
        return records
    size = len(columns["step"])
    stops = np.append(starts[1:], size)
    for name in ("step", "microbatch", "phase"):
        records[name] = columns[name][starts]
    records["batch"], records["offset"], records["end"] = place
    records["row"], records["num_rows"] = starts, stops - starts
    outputs = columns["evidence"] & 0x0F
    records["no_output"] = np.add.reduceat((outputs == 0).astype(np.uint32), starts)
    fresh = (columns["flags"] & np.uint16(Flag.FRESH_MEMORY)) != 0
    records["fresh"] = np.add.reduceat(fresh.astype(np.uint32), starts)
    records["evidence"] = _least(columns["evidence"] >> 4, starts) << 4 | _least(outputs, starts)
    identity = callee_hashes[columns["callee"]]
    values = _value_rows(columns, meta_hashes)
    for record, start, stop in zip(records, starts, stops, strict=True):
        record["identity"] = xxh3_64_intdigest(identity[start:stop].data)
        record["values"] = xxh3_64_intdigest(values[start:stop].data)
    records["batch_rows"] = size
    records["check"] = _checks(records)
    return records


def _checks(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """Mix the bytes of each record, but for its check, into one number."""
    words = np.ascontiguousarray(records).view(np.uint64).reshape(len(records), -1)[:, :-1]
    mixed = np.full(len(records), 0x9E3779B97F4A7C15, np.uint64)
    for word in words.T:
        mixed = (mixed ^ word) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def is_sound(records: NDArray[np.void], first_offset: int) -> bool:
    """Say whether an index can be believed: no record is damaged, none is missing between two others.

    Parameters
    ----------
    records
        The whole records of an index file.
    first_offset
        Byte offset of the first batch in the stream.
    """
    if not len(records) or (records["check"] != _checks(records)).any():
        return False
    begins = np.diff(records["batch"].astype(np.int64), prepend=-1)
    first = np.flatnonzero(begins)
    ends = np.append(first[1:], len(records)) - 1
    tiled = np.add.reduceat(records["num_rows"].astype(np.int64), first) == records["batch_rows"][first]
    rows = records["row"].astype(np.int64) + records["num_rows"]
    inside = np.ones(len(records), bool)
    inside[1:] = np.where(begins[1:] == 0, records["row"][1:] == rows[:-1], records["row"][1:] == 0)
    offsets = np.concatenate([[first_offset], records["end"][ends[:-1]]])
    follows = records["offset"][first] == offsets
    return bool(
        (begins >= 0).all() and (begins <= 1).all() and tiled.all() and inside.all() and follows.all()
    )


def _value_rows(columns: Columns, meta_hashes: NDArray[np.uint64]) -> NDArray[np.void]:
    rows = np.zeros(len(columns["step"]), _VALUE_DTYPE)
    for name in _VALUE_DTYPE.names or ():
        rows[name] = meta_hashes[columns["meta"]] if name == "meta" else columns[name]
    return rows


def _least(levels: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    """Give the least evidence of each segment among the events that have any; 0 when none has."""
    some = np.where(levels == 0, np.uint8(0x0F), levels)
    least = np.minimum.reduceat(some, starts)
    return np.where(least == 0x0F, np.uint8(0), least)


def write_index_start(path: Path) -> None:
    """Begin an index file; records are appended after this."""
    path.write_bytes(_MAGIC)


def read_index(path: Path) -> NDArray[np.void] | None:
    """Read the whole records of an index file; None when there is no such file of this version."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if not raw.startswith(_MAGIC):
        return None
    body = raw[len(_MAGIC) :]
    return np.frombuffer(body[: len(body) // INDEX_DTYPE.itemsize * INDEX_DTYPE.itemsize], INDEX_DTYPE)

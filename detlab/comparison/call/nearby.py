"""The tensors of the calls around one call in one run, matched by memory and digest; equal ones too."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.lineage import NUMBER_BYTES, by_key, by_storage
from detlab.comparison.tensors import TENSOR_DTYPE
from detlab.schema import Side
from detlab.store import RankTrace

_NUM_ROWS: Final = 30_000
"""Calls that are looked at in each direction: a step or two."""

_MAX_HITS: Final = 4_000
"""Tensors with a wanted digest or storage that are looked at; a digest of zeros can be everywhere."""


def tensors_at(trace: RankTrace, row: int) -> NDArray[np.void]:
    """Give the tensors of one event, as `TENSOR_DTYPE` rows whose position is the row."""
    details = trace.details_of(row)
    found = np.zeros(len(details), TENSOR_DTYPE)
    found["position"], found["digest_a"] = row, details["digest"]
    for name in ("side", "index", "storage", "start", "stop"):
        found[name] = details[name]
    chosen: NDArray[np.void] = found[np.isin(found["side"], (Side.INPUT, Side.OUTPUT))]
    return chosen


class Near(NamedTuple):
    """Tensors near a call, as `TENSOR_DTYPE` rows whose position is the row in one run."""

    inputs: NDArray[np.void]
    outputs: NDArray[np.void]


def near_to(trace: RankTrace, row: int, own: NDArray[np.void]) -> Near:
    """Give the tensors near a call that have the digest or touch the storage of one of its own."""
    bounds = trace.batch_starts()
    ends = [max(0, row - _NUM_ROWS), row + _NUM_ROWS]
    first, last = (np.searchsorted(bounds, ends, side="right") - 1).tolist()
    numbers = range(first, min(last + 1, len(trace.details), len(bounds) - 1))
    parts = [_hits(trace, number, int(bounds[number]), own) for number in numbers]
    hits = np.concatenate([np.empty(0, TENSOR_DTYPE), *parts])
    hits = hits[np.abs(hits["position"] - row) <= _NUM_ROWS]
    nearest = np.argsort(np.abs(hits["position"] - row), kind="stable")[:_MAX_HITS]
    hits = hits[np.sort(nearest)]
    return Near(hits[hits["side"] == Side.INPUT], hits[hits["side"] == Side.OUTPUT])


_READ: Final = ("seq", "side", "index", "digest", "storage", "start", "stop")


def _hits(trace: RankTrace, number: int, first: int, own: NDArray[np.void]) -> NDArray[np.void]:
    """Give the tensors of one batch that have a wanted digest or lie in a wanted storage."""
    details = trace.details.read(number, _READ)
    digests, storages = np.unique(own["digest_a"]), np.unique(own["storage"])
    wanted = np.isin(np.ascontiguousarray(details["digest"]), digests)
    if storages.any():
        wanted |= np.isin(np.ascontiguousarray(details["storage"]), storages[storages != 0])
    at = np.flatnonzero(wanted)
    rows = _rows_of(trace.events.read(number, ("seq",))["seq"], details["seq"][at])
    found = np.zeros(len(at), TENSOR_DTYPE)
    found["position"], found["digest_a"] = first + rows, details["digest"][at]
    for name in ("side", "index", "storage", "start", "stop"):
        found[name] = details[name][at]
    chosen: NDArray[np.void] = found[rows >= 0]
    return chosen


def _rows_of(seqs: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Give the row of each wanted sequence number; -1 where the batch has no such event."""
    rows = np.flatnonzero(np.isin(seqs, wanted))
    if not len(rows):
        return np.full(len(wanted), -1, np.int64)
    rows = rows[np.argsort(seqs[rows], kind="stable")]
    at = np.minimum(np.searchsorted(seqs[rows], wanted), len(rows) - 1)
    return np.where(seqs[rows[at]] == wanted, rows[at], -1)


def match(taken: NDArray[np.void], given: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Give for each tensor that is taken the last one given before it, -1 for none, and how it is known.

    Zeros and ones have equal digests all over a step, so that memory with an equal digest goes first
    (``both``), and a single number in other memory is no sign at all. Then an equal digest alone counts
    (``digest``), and then shared bytes (``storage``).
    """
    made, ways = np.full(len(taken), -1), np.full(len(taken), "storage")
    for way, key, can_tell in (("both", _in_memory, _has_memory), ("digest", _digest, _is_telling)):
        rest, some = np.flatnonzero((made < 0) & can_tell(taken)), np.flatnonzero(can_tell(given))
        found = by_key(taken[rest], key(taken[rest]), given[some], key(given[some]))
        made[rest[found >= 0]], ways[rest[found >= 0]] = some[found[found >= 0]], way
    by_storage(taken, given, made)
    return made, ways


def _has_memory(tensors: NDArray[np.void]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = tensors["storage"] != 0
    return found


def _in_memory(tensors: NDArray[np.void]) -> NDArray[np.uint64]:
    """Give a key of digest and storage together."""
    mixed: NDArray[np.uint64] = tensors["digest_a"] ^ (tensors["storage"] * _MIX)
    return mixed


_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, so that different storages stay different."""


def _digest(tensors: NDArray[np.void]) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = tensors["digest_a"]
    return found


def _is_telling(tensors: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell the tensors whose digest alone says something: no single number whose memory says more.

    A digest of zero is that of an XOR over zeros, or over anything in pairs.
    """
    is_number = tensors["stop"] - tensors["start"] <= NUMBER_BYTES
    found: NDArray[np.bool_] = ~(is_number & _has_memory(tensors)) & (tensors["digest_a"] != 0)
    return found

"""The tensors of compared calls: detail rows of both runs side by side, read only where they are needed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.schema import Side
from detlab.store import RankTrace

TENSOR_DTYPE: Final = np.dtype(
    [
        ("position", "<i8"),
        ("side", "u1"),
        ("index", "<u2"),
        ("digest_a", "<u8"),
        ("digest_b", "<u8"),
        ("in_both", "?"),
        ("storage", "<u8"),
        ("start", "<u8"),
        ("stop", "<u8"),
        ("storage_b", "<u8"),
        ("start_b", "<u8"),
        ("stop_b", "<u8"),
        ("has_stats", "u1"),
        ("absmax_a", "<f8"),
        ("absmax_b", "<f8"),
        ("total_a", "<f8"),
        ("total_b", "<f8"),
        ("nans_a", "<u8"),
        ("nans_b", "<u8"),
    ]
)
"""One tensor, scalar fold or generator state of one compared call; where not named b, places are run a's."""

_READ: Final = (
    "seq",
    "side",
    "index",
    "digest",
    "storage",
    "start",
    "stop",
    "has_stats",
    "absmax",
    "total",
    "nans",
)
_KEY_SHIFT: Final = 18  # two bits for the side, sixteen for the index


def tensors_of(rank: RankComparison, positions: NDArray[np.intp]) -> NDArray[np.void]:
    """Give the tensors of some compared calls, by position, side and index.

    Parameters
    ----------
    rank
        The compared rank.
    positions
        Ascending. A call of one run only has digests of that run alone. A call that both runs make and that
        one of them has no detail rows of gives nothing.

    Returns
    -------
    `TENSOR_DTYPE` rows for every tensor that either run recorded; ``in_both`` says whether both have it.
    """
    rows_a, rows_b = rank.rows(positions)
    mine = _details(rank.a, rows_a[rows_a >= 0], positions[rows_a >= 0])
    theirs = _details(rank.b, rows_b[rows_b >= 0], positions[rows_b >= 0])
    paired = positions[(rows_a >= 0) & (rows_b >= 0)]
    in_a, in_b = (np.unique(side["key"] >> _KEY_SHIFT) for side in (mine, theirs))
    alone = np.intersect1d(np.setxor1d(in_a, in_b), paired)
    keys = np.union1d(mine["key"], theirs["key"])
    tensors = np.zeros(len(keys), TENSOR_DTYPE)
    tensors["position"] = keys >> _KEY_SHIFT
    tensors["side"], tensors["index"] = keys >> 16 & 3, keys & 0xFFFF
    here, there = np.isin(keys, mine["key"]), np.isin(keys, theirs["key"])
    tensors["in_both"] = here & there
    for chosen, details, suffix in ((here, mine, "_a"), (there, theirs, "_b")):
        for name in ("digest", "absmax", "total", "nans"):
            tensors[f"{name}{suffix}"][chosen] = details[name]
        for name in ("storage", "start", "stop"):
            tensors[name if suffix == "_a" else f"{name}_b"][chosen] = details[name]
    tensors["has_stats"][here] = mine["has_stats"]
    tensors["has_stats"] &= _spread(theirs["has_stats"], there)
    return tensors[~np.isin(tensors["position"], alone)]


def _spread(values: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    whole = np.zeros(len(chosen), np.uint8)
    whole[chosen] = values
    return whole


def _details(
    trace: RankTrace, rows: NDArray[np.int64], positions: NDArray[np.intp]
) -> dict[str, NDArray[Any]]:
    """Give the detail rows of some events with a key of (position, side, index), in the order of the key."""
    bounds = trace.batch_starts()
    batch_of = np.searchsorted(bounds, rows, side="right") - 1
    parts: list[dict[str, NDArray[Any]]] = []
    for number in np.unique(batch_of).tolist():
        if number < len(trace.details):
            here = batch_of == number
            parts.append(_batch_details(trace, number, rows[here] - bounds[number], positions[here]))
    names = ("key", *_READ[1:])
    empty = {name: np.empty(0, np.int64) for name in names}
    merged = {name: np.concatenate([part[name] for part in parts or [empty]]) for name in names}
    _, order = np.unique(merged["key"], return_index=True)  # a damaged row can repeat a key
    return {name: column[order] for name, column in merged.items()}


def _batch_details(
    trace: RankTrace, number: int, rows: NDArray[np.int64], positions: NDArray[np.intp]
) -> dict[str, NDArray[Any]]:
    seqs = trace.events.read(number, ["seq"])["seq"][rows]
    order = np.argsort(seqs)
    details = trace.details.read(number, _READ)
    chosen = np.flatnonzero(np.isin(details["seq"], seqs))  # a few of many, for one call
    found = {name: details[name][chosen] for name in _READ[1:]}
    at = np.searchsorted(seqs[order], details["seq"][chosen])
    position = positions[order][at].astype(np.int64)
    found["key"] = position << _KEY_SHIFT | found["side"].astype(np.int64) << 16 | found["index"]
    return found


def differing(tensors: NDArray[np.void], *sides: Side) -> NDArray[np.void]:
    """Give the tensors on some sides that differ between the runs, or that only one of them has.

    A recorded absmax that differs overrides equal digests, which a weak digest can have for other bits.
    """
    chosen = np.isin(tensors["side"], sides)
    unequal = (tensors["digest_a"] != tensors["digest_b"]) | ~tensors["in_both"]
    unequal |= (tensors["has_stats"] != 0) & (_bits(tensors["absmax_a"]) != _bits(tensors["absmax_b"]))
    found: NDArray[np.void] = tensors[chosen & unequal]
    return found


def _bits(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(numbers).view(np.uint64)

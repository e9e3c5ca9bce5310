"""Pair the segments of two traces of one rank, so that equal ones need not be read.

The result is a list of *blocks*: runs of rows that stand side by side in both traces, or on one side
only. Rows inside a block are paired one to one, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.align import Calls, align, ambiguous
from detlab.ops import dependence
from detlab.schema import EVENT_DTYPE, Callee, Kind
from detlab.store import RankTrace
from detlab.store.names import callee_hash

BLOCK_DTYPE: Final = np.dtype(
    [
        ("a", "<i8"),  # first row in run a; -1: these rows are only in b
        ("b", "<i8"),  # first row in run b; -1: these rows are only in a
        ("num_rows", "<i8"),
        ("equal", "u1"),  # 1: the segment digests say that every value is equal
        ("how", "u1"),  # an index into HOW
        ("ambiguous", "u1"),  # 1: another pairing of these rows would match too
    ]
)
"""Rows that stand side by side."""

HOW: Final = ("site", "aligned", "override")
"""How the rows of a block were matched."""

Slipped = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Index records of both sides that have one key but not the same callees."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which index records stand side by side, and which have to be aligned row by row."""

    a: NDArray[np.intp]
    b: NDArray[np.intp]
    slipped: list[Slipped]


def pair_blocks(a: RankTrace, b: RankTrace, steps: NDArray[np.int32]) -> NDArray[np.void]:
    """Pair the rows of two traces of one rank over the steps that are to be compared.

    Returns
    -------
    `BLOCK_DTYPE` rows in the order of run a; rows only in b stand after the row of b before them.
    """
    chosen_a = np.flatnonzero(np.isin(a.index["step"], steps))
    chosen_b = np.flatnonzero(np.isin(b.index["step"], steps))
    pairing = _pair_records(a.index, b.index, chosen_a, chosen_b)
    parts = [_paired_blocks(a, b, pairing)]
    parts += [_slipped_blocks(a, b, slipped) for slipped in pairing.slipped]
    return _in_order(np.concatenate(parts))


def _pair_records(
    a: NDArray[np.void], b: NDArray[np.void], chosen_a: NDArray[np.intp], chosen_b: NDArray[np.intp]
) -> Pairing:
    if len(chosen_a) == len(chosen_b):
        same_key = np.ones(len(chosen_a), bool)
        for name in ("step", "microbatch", "phase"):
            same_key &= a[name][chosen_a] == b[name][chosen_b]
        if same_key.all():
            return _pair_in_step(a, b, chosen_a, chosen_b)
    return _pair_by_key(a, b, chosen_a, chosen_b)


def _pair_in_step(
    a: NDArray[np.void], b: NDArray[np.void], chosen_a: NDArray[np.intp], chosen_b: NDArray[np.intp]
) -> Pairing:
    """Pair record *i* with record *i*; those whose callees differ are gathered by key."""
    same = _same_callees(a[chosen_a], b[chosen_b])
    odd_a, odd_b = chosen_a[~same], chosen_b[~same]
    groups: dict[bytes, list[int]] = {}
    for position, key in enumerate(_keys(a[odd_a])):
        groups.setdefault(key, []).append(position)
    slipped = [(odd_a[positions], odd_b[positions]) for positions in groups.values()]
    return Pairing(chosen_a[same], chosen_b[same], slipped)


def _pair_by_key(
    a: NDArray[np.void], b: NDArray[np.void], chosen_a: NDArray[np.intp], chosen_b: NDArray[np.intp]
) -> Pairing:
    """Pair the records of each key from both ends inwards; what is left in the middle slipped."""
    of_a, of_b = _by_key(a, chosen_a), _by_key(b, chosen_b)
    empty = np.empty(0, np.intp)
    paired_a, paired_b, slipped = [empty], [empty], []
    for key in of_a | of_b:
        mine, theirs = of_a.get(key, empty), of_b.get(key, empty)
        short = min(len(mine), len(theirs))
        head = _num_equal(_same_callees(a[mine[:short]], b[theirs[:short]]))
        tail_length = short - head
        tail_a, tail_b = mine[len(mine) - tail_length :], theirs[len(theirs) - tail_length :]
        tail = _num_equal(_same_callees(a[tail_a], b[tail_b])[::-1])
        paired_a += [mine[:head], tail_a[tail_length - tail :]]
        paired_b += [theirs[:head], tail_b[tail_length - tail :]]
        rest = mine[head : len(mine) - tail], theirs[head : len(theirs) - tail]
        if len(rest[0]) or len(rest[1]):
            slipped.append(rest)
    return Pairing(np.concatenate(paired_a), np.concatenate(paired_b), slipped)


def _keys(index: NDArray[np.void]) -> Iterable[bytes]:
    keys = np.empty(len(index), [("step", "<i4"), ("microbatch", "<i2"), ("phase", "u1")])
    for name in keys.dtype.names or ():
        keys[name] = index[name]
    return (key.tobytes() for key in keys)


def _by_key(index: NDArray[np.void], chosen: NDArray[np.intp]) -> dict[bytes, NDArray[np.intp]]:
    groups: dict[bytes, list[int]] = {}
    for record, key in zip(chosen.tolist(), _keys(index[chosen]), strict=True):
        groups.setdefault(key, []).append(record)
    return {key: np.array(records, np.intp) for key, records in groups.items()}


def _same_callees(a: NDArray[np.void], b: NDArray[np.void]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (a["identity"] == b["identity"]) & (a["num_rows"] == b["num_rows"])
    return same


def _num_equal(same: NDArray[np.bool_]) -> int:
    """Count the leading True values."""
    return int(np.argmin(same)) if not same.all() else len(same)


def _paired_blocks(a: RankTrace, b: RankTrace, pairing: Pairing) -> NDArray[np.void]:
    """Make one block per paired record, then join neighbours into long runs."""
    records_a, records_b = a.index[pairing.a], b.index[pairing.b]
    blocks = np.zeros(len(records_a), BLOCK_DTYPE)
    blocks["a"], blocks["b"] = a.starts[pairing.a], b.starts[pairing.b]
    blocks["num_rows"] = records_a["num_rows"]
    blocks["equal"] = records_a["values"] == records_b["values"]
    return join_blocks(blocks[np.argsort(blocks["a"], kind="stable")])


def join_blocks(blocks: NDArray[np.void]) -> NDArray[np.void]:
    """Join blocks that follow each other on both sides and are of one kind."""
    if len(blocks) < 2:
        return blocks
    before, after = blocks[:-1], blocks[1:]
    follows = np.ones(len(after), bool)
    for side in ("a", "b"):
        next_row = np.where(before[side] < 0, -1, before[side] + before["num_rows"])
        follows &= after[side] == next_row
    for name in ("equal", "how", "ambiguous"):
        follows &= after[name] == before[name]
    first = np.flatnonzero(np.concatenate([[True], ~follows]))
    joined = blocks[first].copy()
    joined["num_rows"] = np.add.reduceat(blocks["num_rows"], first)
    return joined


def _slipped_blocks(a: RankTrace, b: RankTrace, slipped: Slipped) -> NDArray[np.void]:
    rows_a, rows_b = _rows_of(a, slipped[0]), _rows_of(b, slipped[1])
    calls = _calls(a, slipped[0]), _calls(b, slipped[1])
    at_a, at_b = found = align(*calls)
    pairs = np.zeros(len(at_a), BLOCK_DTYPE)
    pairs["a"] = np.where(at_a < 0, -1, rows_a[at_a] if len(rows_a) else -1)
    pairs["b"] = np.where(at_b < 0, -1, rows_b[at_b] if len(rows_b) else -1)
    pairs["num_rows"], pairs["how"] = 1, HOW.index("aligned")
    pairs["ambiguous"] = ambiguous(*calls, found)
    return join_blocks(pairs)


def _rows_of(trace: RankTrace, records: NDArray[np.intp]) -> NDArray[np.int64]:
    starts = trace.starts
    parts = [np.arange(starts[record], starts[record + 1]) for record in records]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _calls(trace: RankTrace, records: NDArray[np.intp]) -> Calls:
    names = ("callee", "in_digest", "out_digest", "meta", "kind")
    starts = trace.starts
    parts = [trace.columns(int(starts[r]), int(starts[r + 1]), names) for r in records]
    callee, inputs, outputs, meta, kind = (
        np.concatenate([np.empty(0, EVENT_DTYPE[name]), *(part[name] for part in parts)]) for name in names
    )
    hashes = trace.names.callee_hashes[callee]
    family = hashes.copy()
    for at in np.flatnonzero(kind == Kind.COLLECTIVE).tolist():
        family[at] = _family(trace.names.callees[int(callee[at])])
    return Calls(hashes, inputs, outputs, trace.names.meta_hashes[meta], family)


@lru_cache(maxsize=4_096)
def _family(callee: Callee) -> int:
    """Digest a collective by what it does on which communicator, so that a renamed one is recognised."""
    return callee_hash(Callee("", dependence(callee.op).value, callee.group))


def _in_order(blocks: NDArray[np.void]) -> NDArray[np.void]:
    """Sort by run a; rows only in b follow the row of a that is paired with the row of b before them."""
    only_b = blocks["a"] < 0
    paired = blocks[(blocks["a"] >= 0) & (blocks["b"] >= 0)]
    paired = paired[np.argsort(paired["b"], kind="stable")]
    before = np.searchsorted(paired["b"], blocks["b"][only_b], side="left") - 1
    anchor = blocks["a"].copy()
    last_rows = np.append(paired["a"] + paired["num_rows"] - 1, -1)
    anchor[only_b] = last_rows[before]
    return blocks[np.lexsort((blocks["b"], only_b, anchor))]

"""Pair the segments of two traces of one rank, so that equal ones need not be read.

The result is a list of *blocks*: runs of rows that stand side by side in both traces, or on one side
only. Rows inside a block are paired one to one, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

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
"""Segments of both sides that have one key but not the same callees."""


def pair_blocks(a: RankTrace, b: RankTrace, steps: NDArray[np.int32]) -> NDArray[np.void]:
    """Pair the rows of two traces of one rank over the steps that are to be compared.

    Returns
    -------
    `BLOCK_DTYPE` rows in the order of run a; rows only in b stand after the row of b before them.
    """
    units_a, units_b = _Units.of(a.index, steps), _Units.of(b.index, steps)
    paired_a, paired_b, slipped = _pair(units_a, units_b)
    parts = [_paired_blocks(a, b, units_a.records(paired_a), units_b.records(paired_b))]
    parts += [
        _slipped_blocks(a, b, units_a.records(mine), units_b.records(theirs)) for mine, theirs in slipped
    ]
    return _in_order(np.concatenate(parts))


_KEY: Final = np.dtype([("step", "<i4"), ("microbatch", "<i2"), ("phase", "u1")])


@dataclass(frozen=True, slots=True)
class _Units:
    """The segments of a trace, whole: the pieces of one that is larger than a batch count as one.

    Attributes
    ----------
    key
        Step, microbatch and phase of each segment.
    identity, values
        Digests of its callees, in order, and of its values; of where it was cut, too.
    first, num_records
        Its first index record, and how many it has.
    """

    key: NDArray[np.void]
    identity: NDArray[np.uint64]
    values: NDArray[np.uint64]
    first: NDArray[np.intp]
    num_records: NDArray[np.intp]

    @classmethod
    def of(cls, index: NDArray[np.void], steps: NDArray[np.int32]) -> _Units:
        """Find the segments of some steps."""
        chosen = np.flatnonzero(np.isin(index["step"], steps))
        key = np.empty(len(chosen), _KEY)
        for name in _KEY.names or ():
            key[name] = index[name][chosen]
        begins = np.ones(len(chosen), bool)
        begins[1:] = (key[1:] != key[:-1]) | (np.diff(chosen) != 1)
        starts = np.flatnonzero(begins)
        num_records = np.diff(np.append(starts, len(chosen)))
        digests = {name: index[name][chosen[starts]].copy() for name in ("identity", "values")}
        for unit in np.flatnonzero(num_records > 1):
            pieces = index[chosen[starts[unit]] :][: num_records[unit]]
            for name, column in digests.items():
                column[unit] = xxh3_64_intdigest(pieces[name].tobytes() + pieces["num_rows"].tobytes())
        return cls(key[starts], **digests, first=chosen[starts], num_records=num_records)

    def records(self, units: NDArray[np.intp]) -> NDArray[np.intp]:
        """Give the index records of some segments."""
        if (self.num_records == 1).all():
            return self.first[units]
        parts = [np.arange(self.first[u], self.first[u] + self.num_records[u]) for u in units]
        return np.concatenate([np.empty(0, np.intp), *parts])

    def by_key(self, units: NDArray[np.intp]) -> dict[bytes, NDArray[np.intp]]:
        """Gather segments by their key."""
        groups: dict[bytes, list[int]] = {}
        for unit in units.tolist():
            groups.setdefault(self.key[unit].tobytes(), []).append(unit)
        return {key: np.array(members, np.intp) for key, members in groups.items()}

    def __len__(self) -> int:
        return len(self.key)


def _pair(a: _Units, b: _Units) -> tuple[NDArray[np.intp], NDArray[np.intp], list[Slipped]]:
    """Pair segments: one by one where both runs have the same sequence of keys, else key by key.

    Returns
    -------
    Segments of both sides that have the same callees, and the groups that have to be aligned row by row.
    """
    if len(a) == len(b) and (a.key == b.key).all():
        same = a.identity == b.identity
        everything, odd = np.arange(len(a)), np.flatnonzero(~same)
        return everything[same], everything[same], [(units, units) for units in a.by_key(odd).values()]
    return _pair_by_key(a, b)


def _pair_by_key(a: _Units, b: _Units) -> tuple[NDArray[np.intp], NDArray[np.intp], list[Slipped]]:
    """Pair the segments of each key from both ends inwards; what is left in the middle slipped.

    Segments of one key can all list the same callees, such as one for each bucket. Where one run has fewer
    of them, only those that are equal in their values too are paired as wholes.
    """
    of_a, of_b = a.by_key(np.arange(len(a))), b.by_key(np.arange(len(b)))
    empty = np.empty(0, np.intp)
    paired_a, paired_b, slipped = [empty], [empty], []
    for key in of_a | of_b:
        mine, theirs = of_a.get(key, empty), of_b.get(key, empty)
        short = min(len(mine), len(theirs))
        alike = "identity" if len(mine) == len(theirs) else "values"
        of_mine, of_theirs = getattr(a, alike), getattr(b, alike)
        head = _num_equal(of_mine[mine[:short]] == of_theirs[theirs[:short]])
        rest = short - head
        ends_a, ends_b = mine[len(mine) - rest :], theirs[len(theirs) - rest :]
        tail = _num_equal((of_mine[ends_a] == of_theirs[ends_b])[::-1])
        paired_a += [mine[:head], ends_a[rest - tail :]]
        paired_b += [theirs[:head], ends_b[rest - tail :]]
        middle = mine[head : len(mine) - tail], theirs[head : len(theirs) - tail]
        if len(middle[0]) or len(middle[1]):
            slipped.append(middle)
    return np.concatenate(paired_a), np.concatenate(paired_b), slipped


def _num_equal(same: NDArray[np.bool_]) -> int:
    """Count the leading True values."""
    return int(np.argmin(same)) if not same.all() else len(same)


def _paired_blocks(
    a: RankTrace, b: RankTrace, of_a: NDArray[np.intp], of_b: NDArray[np.intp]
) -> NDArray[np.void]:
    """Make one block per paired record, then join neighbours into long runs."""
    records_a, records_b = a.index[of_a], b.index[of_b]
    blocks = np.zeros(len(records_a), BLOCK_DTYPE)
    blocks["a"], blocks["b"] = a.starts[of_a], b.starts[of_b]
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


def _slipped_blocks(
    a: RankTrace, b: RankTrace, of_a: NDArray[np.intp], of_b: NDArray[np.intp]
) -> NDArray[np.void]:
    """Align the rows of some records; the same callees that were only cut elsewhere stand as they are."""
    rows_a, rows_b = _rows_of(a, of_a), _rows_of(b, of_b)
    calls = _calls(a, of_a), _calls(b, of_b)
    if np.array_equal(calls[0].callee, calls[1].callee):
        at_a = at_b = np.arange(len(rows_a))
        how, unsure = "site", np.zeros(len(rows_a), bool)
    else:
        at_a, at_b = found = align(*calls)
        how, unsure = "aligned", ambiguous(*calls, found)
    pairs = np.zeros(len(at_a), BLOCK_DTYPE)
    pairs["a"] = np.where(at_a < 0, -1, rows_a[at_a] if len(rows_a) else -1)
    pairs["b"] = np.where(at_b < 0, -1, rows_b[at_b] if len(rows_b) else -1)
    pairs["num_rows"], pairs["how"], pairs["ambiguous"] = 1, HOW.index(how), unsure
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

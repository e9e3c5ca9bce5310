"""Where the differing inputs of a call come from, as far as its rank recorded it.

Tensors are followed by their digests and, where the trace has them, by storage and byte range, so that
views, buckets and in-place writes are not mistaken for unrecorded kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.comparison.tensors import differing, tensors_of
from detlab.comparison.verdicts import INPUTS_DIFFER
from detlab.ops import comes_from_host, makes_fresh_memory
from detlab.schema import DETAIL_DTYPE, Flag, Kind, Side, Verdict

_INPUTS: Final = (Side.INPUT, Side.SCALARS, Side.GENERATOR)
XOR_DIGEST: Final = "torch.hash_tensor"
"""A digest that is the XOR of its elements: blind to their order, and additive over parts."""

NUMBER_BYTES: Final = 16
"""Bytes of the largest single number, a complex one."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The differing inputs of the calls in some steps of one rank, and their sources.

    Attributes
    ----------
    positions
        Every position of these steps that differs, also those set aside, ascending.
    changes
        `TENSOR_DTYPE` rows: inputs, scalar folds and generator states that differ.
    sources, parts
        For each change the position of the recorded call that made it and the index of its output;
        -1 when none did, or where the output is not known.
    host_reads
        Positions among them of host reads that both runs make.
    fresh
        Positions of calls among them that only give memory nobody has written.
    """

    positions: NDArray[np.intp]
    changes: NDArray[np.void]
    sources: NDArray[np.int64]
    parts: NDArray[np.int64]
    host_reads: NDArray[np.intp]
    fresh: NDArray[np.intp]

    @property
    def _missing(self) -> NDArray[np.bool_]:
        """Changes that no recorded call computed."""
        missing: NDArray[np.bool_] = (self.sources < 0) | np.isin(self.sources, self.fresh)
        return missing

    def entries(self, first: int) -> NDArray[np.intp]:
        """Give the calls where a difference enters: with a change that no recorded call computed.

        Where no storage was recorded a bucket or a view cannot be told from an unrecorded write. There a
        tensor counts only at the first divergence of the rank, and only when no input has a source.
        """
        missing = self._missing
        known = (self.changes["storage"] != 0) | (self.changes["side"] != Side.INPUT)
        sure = missing & (known | np.isin(self.sources, self.fresh))
        entering = set(self.changes["position"][sure].tolist())
        at_first = self.changes["position"] == first
        if at_first.any() and missing[at_first].all():
            entering.add(first)
        return np.array(sorted(entering), np.intp)

    def unexplained(self, position: int) -> NDArray[np.void]:
        """Give the changes of a call that no recorded call computed."""
        here = self._of(position)
        missing = (self.sources[here] < 0) | np.isin(self.sources[here], self.fresh)
        found: NDArray[np.void] = self.changes[here][missing]
        return found

    def from_fresh(self, position: int) -> bool:
        """Say whether a call takes memory that nobody has written."""
        return bool(np.isin(self.sources[self._of(position)], self.fresh).any())

    def of(self, position: int) -> list[tuple[np.void, int, int]]:
        """Give every change of a call with its source and the index of the source's output."""
        here = self._of(position)
        found = zip(self.changes[here], self.sources[here].tolist(), self.parts[here].tolist(), strict=True)
        return list(found)

    def _of(self, position: int) -> slice:
        """Give where the changes of a call stand; they are in the order of the calls."""
        return slice(*np.searchsorted(self.changes["position"], [position, position + 1]))


def follow(rank: RankComparison, first_step: int, last_step: int) -> Lineage:
    """Follow the differences of one rank through some steps."""
    return follow_among(rank, rank.differing_in(first_step, last_step))


def follow_among(rank: RankComparison, positions: NDArray[np.intp]) -> Lineage:
    """Follow the differences of one rank through some differing calls, ascending."""
    tensors = tensors_of(rank, positions)
    inputs = differing(tensors, *_INPUTS)
    takes = np.isin(rank.verdicts[inputs["position"]], (*INPUTS_DIFFER, Verdict.ORIGIN))  # a lane of a list
    changes = inputs[takes & ~_is_result(inputs)]
    outputs = differing(tensors, Side.OUTPUT)
    makers = by_key(changes, changes["digest_a"], outputs, outputs["digest_a"])
    open_changes = makers < 0  # a call that only run b makes is known by run b's digest
    by_b = by_key(changes[open_changes], changes["digest_b"][open_changes], outputs, outputs["digest_b"])
    makers[open_changes] = by_b
    by_storage(changes, outputs, makers)
    if XOR_DIGEST in rank.a.header.algorithm:
        _by_xor(changes, outputs, makers)
    sources = _of_makers(outputs["position"], makers)
    facts = rank.events(positions, ("kind", "flags"))
    paired = (rank.rows(positions)[0] >= 0) & (rank.rows(positions)[1] >= 0)
    reads = positions[paired & (facts["kind"] == Kind.HOST_READ)]
    _after(changes, changes["side"] == Side.SCALARS, reads, sources)
    # torch.tensor([...]) reads single numbers out of tensors without an op of its own
    numbers = outputs["position"][outputs["stop"] - outputs["start"] <= NUMBER_BYTES]
    from_host = positions[rank.has_op(positions, comes_from_host)]
    _after(changes, np.isin(changes["position"], from_host), np.union1d(reads, numbers), sources)
    drawn = changes["side"] == Side.GENERATOR
    _after(changes, drawn, positions[(facts["flags"] & np.uint16(Flag.SEEDED)) != 0], sources)
    fresh = positions[rank.has_op(positions, makes_fresh_memory)]
    return Lineage(positions, changes, sources, _of_makers(outputs["index"], makers), reads, fresh)


def _of_makers(values: NDArray[Any], makers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give a value of the output that made each change; -1 where none did."""
    found = np.full(len(makers), -1, np.int64)
    found[makers >= 0] = values[makers[makers >= 0]]
    return found


def _is_result(tensors: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell the numbers that a call gave (index 1) from those that it was given (index 0)."""
    result: NDArray[np.bool_] = (tensors["side"] == Side.SCALARS) & (tensors["index"] == 1)
    return result


def by_key(
    changes: NDArray[np.void],
    keys: NDArray[np.uint64],
    outputs: NDArray[np.void],
    made_keys: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Give for each change the output of the same key that an earlier call gave last; -1 for none."""
    order = np.lexsort((outputs["position"], made_keys))
    made, made_keys = outputs[order], made_keys[order]
    _, codes = np.unique(np.concatenate([made_keys, keys]), return_inverse=True)
    width = int(max(made["position"].max(initial=0), changes["position"].max(initial=0))) + 2
    keys_made = codes[: len(made)] * width + made["position"] + 1
    wanted = codes[len(made) :] * width + changes["position"] + 1
    before = np.searchsorted(keys_made, wanted, side="left") - 1
    found = before >= 0
    found[found] = made_keys[before[found]] == keys[found]
    return np.where(found, order[before] if len(made) else -1, -1)


def _by_xor(changes: NDArray[np.void], outputs: NDArray[np.void], makers: NDArray[np.int64]) -> None:
    """Fill in the last earlier output that changed in the same bits of an XOR digest.

    The digest of a bucket is the XOR of the digests of what lies in it, so that a change in one part
    shows as the same difference of both digests.
    """
    open_changes = np.flatnonzero((makers < 0) & (changes["side"] == Side.INPUT))
    chosen = changes[open_changes]
    difference = chosen["digest_a"] ^ chosen["digest_b"]
    made_difference = outputs["digest_a"] ^ outputs["digest_b"]
    makers[open_changes] = by_key(chosen, difference, outputs, made_difference)


def by_storage(changes: NDArray[np.void], outputs: NDArray[np.void], makers: NDArray[np.int64]) -> None:
    """Fill in the last earlier output that lies in the bytes of a change, for views of it and buckets."""
    open_changes = np.flatnonzero((makers < 0) & (changes["storage"] != 0))
    stored = np.flatnonzero(np.isin(outputs["storage"], changes["storage"][open_changes]))
    made = outputs[stored]
    places = changes[open_changes][["storage", "start", "stop"]]
    kinds, member = np.unique(places, return_inverse=True)
    for number, place in enumerate(kinds):  # a buffer is written and read again and again
        writes = (made["storage"] == place["storage"]) & (made["start"] < place["stop"])
        writes = np.flatnonzero(writes & (made["stop"] > place["start"]))
        concerned = open_changes[member == number]
        before = np.searchsorted(made["position"][writes], changes["position"][concerned], side="left") - 1
        has = before >= 0
        makers[concerned[has]] = stored[writes[before[has]]]


def _after(
    changes: NDArray[np.void],
    concerned: NDArray[np.bool_],
    makers: NDArray[np.intp],
    sources: NDArray[np.int64],
) -> None:
    """Give the changes concerned the last maker before them as their source, if they have none."""
    chosen = np.flatnonzero(concerned & (sources < 0))
    before = np.searchsorted(makers, changes["position"][chosen], side="left") - 1
    has = before >= 0
    sources[chosen[has]] = makers[before[has]]


def given_before(
    rank: RankComparison, positions: NDArray[np.intp], held: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Give the calls that only show bits which earlier ones of some differing calls gave.

    Parameters
    ----------
    rank, positions
        Differing calls of one rank, ascending.
    held
        Those among them that show what stands in memory and compute nothing, ascending.
    """
    outputs = differing(tensors_of(rank, positions), Side.OUTPUT)
    shown = outputs[np.isin(outputs["position"], held)]
    makers = np.maximum(
        *(by_key(shown, shown[name], outputs, outputs[name]) for name in ("digest_a", "digest_b"))
    )
    by_storage(shown, outputs, makers)
    missing = np.setdiff1d(held, shown["position"])
    return np.setdiff1d(held, np.union1d(missing, shown["position"][makers < 0])).astype(np.intp)


def touched_before(rank: RankComparison, position: int, change: np.void) -> int | None:
    """Give the last earlier call of the same step that used the bytes of a change; None when there is none.

    They were equal then, or the change would have a source: something unrecorded wrote in between.
    """
    if not change["storage"]:
        return None
    row = rank.rows_at(position)[0]
    begin = _step_begin(rank, row)
    while row > begin:
        first, details, seqs = _batch_before(rank, row, ("seq", "storage", "start", "stop"))
        touching = (details["storage"] == change["storage"]) & (details["start"] < change["stop"])
        touching &= details["stop"] > change["start"]
        rows = first + np.flatnonzero(np.isin(seqs, details["seq"][touching]))
        positions = rank.positions_of(rows[rows >= begin])
        positions = positions[positions >= 0]
        in_both = positions[rank.verdicts[positions] != Verdict.ONLY_A]
        if len(in_both):
            return int(in_both[-1])
        row = first  # on with the batch before it: where a trace is cut into batches says nothing
    return None


def _step_begin(rank: RankComparison, row: int) -> int:
    """Give the first row of run a of the step that a row belongs to."""
    starts, steps = rank.a.starts, rank.a.index["step"]
    record = int(np.searchsorted(starts, row, side="right")) - 1
    return int(starts[np.flatnonzero(steps == steps[record])[0]])


def weak_producers(rank: RankComparison, position: int) -> list[int]:
    """Give the positions of the calls that made the weak inputs of a call, nearest first.

    A weak input has a digest that can be equal for different bits: its producer may be the real origin.
    """
    row = rank.rows_at(position)[0]
    tensors = tensors_of(rank, np.array([position]))
    wanted = tensors["digest_a"][tensors["side"] == Side.INPUT]
    first, details, seqs = _batch_before(rank, row, ("seq", "side", "digest"))
    made = np.isin(details["digest"], wanted) & (details["side"] == Side.OUTPUT)
    rows = first + np.flatnonzero(np.isin(seqs, details["seq"][made]))
    positions = rank.positions_of(rows)[::-1]
    positions = positions[positions >= 0]
    flags = rank.events(positions, ("flags",))["flags"] if len(positions) else np.empty(0, np.uint16)
    return [int(p) for p in positions[(flags & np.uint16(Flag.WEAK_OUTPUT)) != 0]]


def _batch_before(
    rank: RankComparison, row: int, names: tuple[str, ...]
) -> tuple[int, dict[str, NDArray[Any]], NDArray[Any]]:
    """Give the first row of the batch that ends with the row before one, its details and sequence numbers."""
    bounds = rank.a.batch_starts()
    number = int(np.searchsorted(bounds, max(row - 1, 0), side="right")) - 1
    first = int(bounds[number])
    seqs = rank.a.columns(first, row, ["seq"])["seq"]
    if number >= len(rank.a.details):
        return first, {name: np.empty(0, DETAIL_DTYPE[name]) for name in names}, seqs
    return first, rank.a.details.read(number, names), seqs

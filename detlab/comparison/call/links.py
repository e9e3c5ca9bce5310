"""Which calls made the inputs of one call, and which take its outputs: the nearest, equal or not.

What differs is followed as `detlab.comparison.lineage` does, among the differing calls just before. It knows
nothing of what is equal: that is looked for here among all calls nearby, by digest and then by the bytes of
the storage, with the same two functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.call.refs import CallRef, call_ref
from detlab.comparison.call.tensors import TensorPair
from detlab.comparison.lineage import NUMBER_BYTES, by_key, by_storage, follow_among
from detlab.comparison.ranks import RankComparison
from detlab.comparison.tensors import TENSOR_DTYPE
from detlab.schema import Side
from detlab.store import RankTrace

MAX_LINKS: Final = 8
"""So many tensors of a call are followed to where they were made, and so many calls that take its outputs."""

_MAX_HITS: Final = 4_000
"""Tensors with a wanted digest or storage that are looked at; a digest of zeros can be everywhere."""

_NUM_DIFFERING: Final = 500
"""Differing calls before one among which a difference is followed."""

_NUM_ROWS: Final = 30_000
"""Calls that are looked at in each direction: a step or two."""


@dataclass(frozen=True, slots=True)
class Link:
    """One tensor that went from one call to another.

    Attributes
    ----------
    side, index
        The tensor of this call, as `TensorPair` names it.
    other_index
        Index of the other call's output or input; -1 where that is not known.
    by
        How it is known: ``both`` where memory and digest are the same, ``digest`` where the digest is,
        ``storage`` where the bytes overlap, or ``difference`` where what differs was followed.
    run
        The run in which it was followed.
    call
        The other call.
    """

    side: str
    index: int
    other_index: int
    by: str
    run: str
    call: CallRef

    def to_json(self) -> dict[str, Any]:
        """Give the link as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Links:
    """Where the inputs of a call come from, and where its outputs go.

    Attributes
    ----------
    makers
        The call that made each of the first inputs, those that differ first.
    unmade
        Inputs among those that no recorded call made, as far as was looked.
    users
        The nearest calls that take an output, in their order.
    num_users
        How many were found.
    not_followed
        Why nothing could be followed; empty where it was.
    """

    makers: tuple[Link, ...] = ()
    unmade: tuple[int, ...] = ()
    users: tuple[Link, ...] = ()
    num_users: int = 0
    not_followed: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the links as JSON has it."""
        return asdict(self)


class _Near(NamedTuple):
    """Tensors near a call, as `TENSOR_DTYPE` rows whose position is the row in one run."""

    inputs: NDArray[np.void]
    outputs: NDArray[np.void]


def links_of(rank: RankComparison, position: int, pairs: Sequence[TensorPair]) -> Links:
    """Follow the tensors of a call to the calls near it, in run a, or in run b where only it makes it."""
    rows = rank.rows_at(position)
    in_b = rows[0] < 0
    trace, row = (rank.b, rows[1]) if in_b else (rank.a, rows[0])
    inputs, outputs = (_wanted(pairs, side) for side in ("input", "output"))
    own = _own(trace, row)
    if not len(own):
        return Links(not_followed="its tensors were not recorded one by one" if pairs else "")
    near = _near(trace, row, own[_is_one_of(own, inputs, outputs)])
    makers = _makers(rank, row, own, near, inputs, in_b)
    if not in_b and rows[1] >= 0:
        makers = _preferring(_followed(rank, position), makers)
        makers += _other_makers(rank, rows[1], pairs, makers)
    made = {link.index for link in makers if link.side == "input"}
    unmade = tuple(index for index in sorted(inputs) if index not in made)
    users, num_users = _users(rank, trace, row, near)
    return Links(tuple(makers), unmade, tuple(users), num_users)


def _followed(rank: RankComparison, position: int) -> list[Link]:
    """Follow what differs among the inputs, numbers and generator state of a call to the call before it."""
    at = int(np.searchsorted(rank.differing, position))
    if at == len(rank.differing) or rank.differing[at] != position:
        return []
    lineage = follow_among(rank, rank.differing[max(0, at - _NUM_DIFFERING) : at + 1])
    found = [(change, source, part) for change, source, part in lineage.of(position) if source >= 0]
    return [
        Link(
            _SIDES[Side(int(change["side"]))],
            int(change["index"]),
            part,
            "difference",
            "a",
            call_ref(rank, source),
        )
        for change, source, part in found[:MAX_LINKS]
    ]


_SIDES: Final = {Side.INPUT: "input", Side.SCALARS: "scalars", Side.GENERATOR: "generator"}


def _preferring(followed: Sequence[Link], near: Sequence[Link]) -> list[Link]:
    """Give the makers that differ, and of every other input the nearest one."""
    known = {(link.side, link.index) for link in followed}
    links = [*followed, *(link for link in near if (link.side, link.index) not in known)]
    return sorted(links, key=lambda link: (link.side != "input", link.index))


def _wanted(pairs: Sequence[TensorPair], side: str) -> list[int]:
    """Choose which tensors are followed: those that differ first."""
    mine = [pair for pair in pairs if pair.side == side and _has_digest(pair)]
    return [pair.index for pair in sorted(mine, key=lambda pair: (pair.same is not False, pair.index))][
        :MAX_LINKS
    ]


def _has_digest(pair: TensorPair) -> bool:
    run = pair.a or pair.b
    return run is not None and run.digest is not None


def _own(trace: RankTrace, row: int) -> NDArray[np.void]:
    details = trace.details_of(row)
    found = np.zeros(len(details), TENSOR_DTYPE)
    found["position"], found["digest_a"] = row, details["digest"]
    for name in ("side", "index", "storage", "start", "stop"):
        found[name] = details[name]
    chosen: NDArray[np.void] = found[np.isin(found["side"], (Side.INPUT, Side.OUTPUT))]
    return chosen


def _is_one_of(own: NDArray[np.void], inputs: list[int], outputs: list[int]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ((own["side"] == Side.INPUT) & np.isin(own["index"], inputs)) | (
        (own["side"] == Side.OUTPUT) & np.isin(own["index"], outputs)
    )
    return found


def _near(trace: RankTrace, row: int, own: NDArray[np.void]) -> _Near:
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
    return _Near(hits[hits["side"] == Side.INPUT], hits[hits["side"] == Side.OUTPUT])


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


def _makers(
    rank: RankComparison,
    row: int,
    own: NDArray[np.void],
    near: _Near,
    wanted: Sequence[int],
    in_b: bool,
) -> list[Link]:
    """Find the call that made each wanted input: the last one before it."""
    inputs = own[(own["side"] == Side.INPUT) & np.isin(own["index"], wanted)]
    outputs = _compared(rank, near.outputs[near.outputs["position"] < row], in_b)
    made, ways = _match(inputs, outputs)
    return [
        _link(rank, "input", int(tensor["index"]), outputs[at], way, in_b)
        for tensor, at, way in zip(inputs, made.tolist(), ways.tolist(), strict=True)
        if at >= 0
    ]


def _match(taken: NDArray[np.void], given: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Give for each tensor that is taken the last one given before it, -1 for none, and how it is known.

    Zeros and ones have equal digests all over a step, so that memory with an equal digest goes first, and a
    single number in other memory is no sign at all.
    """
    made = by_key(taken, _in_memory(taken), given, _in_memory(given))
    ways = np.where(made >= 0, "both", "digest").astype("U7")
    rest = made < 0
    some = ~_is_number(given)
    found = by_key(taken[rest], taken["digest_a"][rest], given[some], given["digest_a"][some])
    made[rest] = np.where(found >= 0, np.flatnonzero(some)[found] if some.any() else -1, -1)
    ways[made < 0] = "storage"
    by_storage(taken, given, made)
    return made, ways


def _in_memory(tensors: NDArray[np.void]) -> NDArray[np.uint64]:
    """Give a key of digest and storage together."""
    mixed: NDArray[np.uint64] = tensors["digest_a"] ^ (tensors["storage"] * _MIX)
    return mixed


_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, so that different storages stay different."""


def _is_number(tensors: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell single numbers whose memory is known."""
    found: NDArray[np.bool_] = (tensors["storage"] != 0) & (
        tensors["stop"] - tensors["start"] <= NUMBER_BYTES
    )
    return found


def _compared(rank: RankComparison, tensors: NDArray[np.void], in_b: bool) -> NDArray[np.void]:
    """Leave out tensors of calls that were not compared, such as those of other steps."""
    chosen: NDArray[np.void] = tensors[rank.positions_of(tensors["position"], in_b=in_b) >= 0]
    return chosen


def _link(rank: RankComparison, side: str, index: int, other: np.void, by: str, in_b: bool) -> Link:
    position = int(rank.positions_of(np.array([other["position"]]), in_b=in_b)[0])
    return Link(side, index, int(other["index"]), by, "b" if in_b else "a", call_ref(rank, position))


def _other_makers(
    rank: RankComparison, row: int, pairs: Sequence[TensorPair], found: Sequence[Link]
) -> list[Link]:
    """Follow the differing inputs in run b too, where another call made them there."""
    wanted = [pair.index for pair in pairs if pair.side == "input" and pair.same is False][:MAX_LINKS]
    own = _own(rank.b, row)
    own = own[_is_one_of(own, wanted, [])]
    if not len(own):
        return []
    links = _makers(rank, row, own, _near(rank.b, row, own), wanted, in_b=True)
    known = {(link.index, link.call.position) for link in found}
    return [link for link in links if (link.index, link.call.position) not in known]


def _users(rank: RankComparison, trace: RankTrace, row: int, near: _Near) -> tuple[list[Link], int]:
    """Find the calls that take an output of this one, as those of whose input it is the maker; count them."""
    in_b = trace is rank.b
    inputs = _compared(rank, near.inputs[near.inputs["position"] > row], in_b)
    outputs = near.outputs  # one before the call can be the maker of what looks like its output
    made, ways = _match(inputs, outputs)
    mine = made >= 0
    mine[mine] = outputs["position"][made[mine]] == row
    mine &= ~_made_elsewhere(trace, row, inputs, np.flatnonzero(mine & (ways == "storage")))
    links: dict[tuple[int, int], tuple[int, np.void, str]] = {}
    for at in np.flatnonzero(mine).tolist():
        index = int(outputs["index"][made[at]])
        links.setdefault((index, int(inputs["position"][at])), (index, inputs[at], str(ways[at])))
    ordered = sorted(links.values(), key=lambda link: (int(link[1]["position"]), link[0]))
    return [_link(rank, "output", *link, in_b) for link in ordered[:MAX_LINKS]], len(ordered)


def _made_elsewhere(
    trace: RankTrace, row: int, inputs: NDArray[np.void], by_bytes: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Say which inputs that only share bytes with a call have the digest of what another call gave."""
    found = np.zeros(len(inputs), bool)
    if len(by_bytes):
        chosen = inputs[by_bytes]
        given = _near(trace, row, chosen).outputs
        _, ways = _match(chosen, given)
        found[by_bytes] = ways != "storage"
    return found

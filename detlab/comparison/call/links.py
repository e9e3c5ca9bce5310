"""Which calls made the inputs of one call, and which take its outputs: the nearest, equal or not.

What differs is followed as `detlab.comparison.lineage` does, among the differing calls just before. It knows
nothing of what is equal: that is looked for here among all calls nearby, by digest and then by the bytes of
the storage, with the same two functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.call.nearby import Near, match, near_to, tensors_at
from detlab.comparison.call.refs import CallRef, call_ref
from detlab.comparison.call.tensors import TensorPair
from detlab.comparison.lineage import follow_among
from detlab.comparison.ranks import RankComparison
from detlab.schema import Side
from detlab.store import RankTrace

MAX_LINKS: Final = 8
"""So many tensors of a call are followed to where they were made, and so many calls that take its outputs."""

_NUM_DIFFERING: Final = 500
"""Differing calls before one among which a difference is followed."""


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


def links_of(rank: RankComparison, position: int, pairs: Sequence[TensorPair]) -> Links:
    """Follow the tensors of a call to the calls near it, in run a, or in run b where only it makes it."""
    rows = rank.rows_at(position)
    in_b = rows[0] < 0
    trace, row = (rank.b, rows[1]) if in_b else (rank.a, rows[0])
    inputs, outputs = (_wanted(pairs, side) for side in ("input", "output"))
    own = tensors_at(trace, row)
    if not len(own):
        return Links(not_followed="its tensors were not recorded one by one" if pairs else "")
    near = near_to(trace, row, own[_is_one_of(own, inputs, outputs)])
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
    links = []
    for change, source, part in found[:MAX_LINKS]:
        side, index = _SIDES[Side(int(change["side"]))], int(change["index"])
        links.append(Link(side, index, part, "difference", "a", call_ref(rank, source)))
    return links


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


def _is_one_of(own: NDArray[np.void], inputs: list[int], outputs: list[int]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ((own["side"] == Side.INPUT) & np.isin(own["index"], inputs)) | (
        (own["side"] == Side.OUTPUT) & np.isin(own["index"], outputs)
    )
    return found


def _makers(
    rank: RankComparison,
    row: int,
    own: NDArray[np.void],
    near: Near,
    wanted: Sequence[int],
    in_b: bool,
) -> list[Link]:
    """Find the call that made each wanted input: the last one before it."""
    inputs = own[(own["side"] == Side.INPUT) & np.isin(own["index"], wanted)]
    outputs = _compared(rank, near.outputs[near.outputs["position"] < row], in_b)
    made, ways = match(inputs, outputs)
    return [
        _link(rank, "input", int(tensor["index"]), outputs[at], way, in_b)
        for tensor, at, way in zip(inputs, made.tolist(), ways.tolist(), strict=True)
        if at >= 0
    ]


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
    own = tensors_at(rank.b, row)
    own = own[_is_one_of(own, wanted, [])]
    if not len(own):
        return []
    links = _makers(rank, row, own, near_to(rank.b, row, own), wanted, in_b=True)
    known = {(link.index, link.call.position) for link in found}
    return [link for link in links if (link.index, link.call.position) not in known]


def _users(rank: RankComparison, trace: RankTrace, row: int, near: Near) -> tuple[list[Link], int]:
    """Find the calls that take an output of this one, as those of whose input it is the maker; count them."""
    in_b = trace is rank.b
    inputs = _compared(rank, near.inputs[near.inputs["position"] > row], in_b)
    outputs = near.outputs  # one before the call can be the maker of what looks like its output
    made, ways = match(inputs, outputs)
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
        given = near_to(trace, row, chosen).outputs
        _, ways = match(chosen, given)
        found[by_bytes] = ways != "storage"
    return found

"""Judge calls that communicate by what they depend on: the contributors, not one member's own inputs.

A collective whose own inputs are equal and whose output differs is an origin only when what every
contributor gives is equal too. Members are joined on (member set, order on that communicator within the
step), never on a label or a scope; a message is judged from the matching send. What a member receives
from another can be a piece or a slice: where the pieces were recorded one by one they are judged one by
one, otherwise a difference that may lie in another rank's slice proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison, read_rows
from detlab.comparison.tensors import differing, tensors_of
from detlab.comparison.verdicts import INPUTS_DIFFER, INPUTS_EQUAL, ONE_SIDED
from detlab.ops import Dependence, dependence, lists_a_tensor_per_member
from detlab.schema import Callee, Kind, Meta, Side, Verdict
from detlab.store import RankTrace

Key = tuple[int, ...]
Judged = dict[int, dict[int, "Judgement"]]
States = dict[int, Verdict | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the group says about one communicating call of one rank.

    Attributes
    ----------
    verdict
        The verdict by the dependence rule.
    reason
        For an origin or an unknown: a key of `detlab.comparison.roots.REASONS`.
    because
        Ranks whose differing inputs explain the output, or that are missing.
    """

    verdict: Verdict
    reason: str = ""
    because: tuple[int, ...] = ()


@dataclass
class _Stream:
    """The communication of one rank in one step: positions by communicator, in order of launch in one run."""

    positions: dict[Key, list[int]] = field(default_factory=dict)
    place: dict[int, tuple[Key, int]] = field(default_factory=dict)

    def at(self, key: Key, order: int) -> int | None:
        """Give the position at a place in the order on a communicator; None where it is shorter."""
        found = self.positions.get(key, [])
        return found[order] if order < len(found) else None


@dataclass(frozen=True, slots=True)
class Collective:
    """One call of a collective or message as one rank made it.

    Attributes
    ----------
    rank, position
        Where it is.
    step, op, key, orders
        Its step and op, the communicator, and its place in the order of run a and of run b on that
        communicator.
    members
        Members as global ranks in group order; empty when not known.
    root
        The source of a broadcast or the target of a reduction; None when not recorded.
    """

    rank: RankComparison
    position: int
    step: int
    op: str
    key: Key
    orders: tuple[int, ...]
    members: tuple[int, ...]
    root: int | None

    @property
    def dependence(self) -> Dependence:
        """What its output depends on."""
        return dependence(self.op)


class GroupJudge:
    """Judges collectives and messages across the ranks of one comparison.

    Parameters
    ----------
    ranks
        All ranks that were compared, with the verdicts that each of them has alone.
    """

    def __init__(self, ranks: Sequence[RankComparison]) -> None:
        self.ranks = tuple(ranks)
        self._by_rank = {rank.rank: rank for rank in ranks}
        self._streams: dict[tuple[int, int], tuple[_Stream, _Stream]] = {}

    def judge(self, rank: RankComparison, position: int) -> Judgement | None:
        """Judge one call; None where the verdict that it has alone stands."""
        call = self.call(rank, position)
        alone = Verdict(int(rank.verdicts[position]))
        rule = _RULES.get(call.dependence, _every_member)
        return rule(self, call, alone)

    def call(self, rank: RankComparison, position: int) -> Collective:
        """Describe the communicating call at a position."""
        trace, step, callee, meta = _described(rank, position)
        attributes = dict(meta.attributes)
        places = [stream.place[position] for stream in self._streams_of(rank, step)]
        (key, _), orders = places[0], tuple(order for _, order in places)
        root = attributes.get("root", attributes.get("src"))
        members = tuple(trace.header.groups.get(callee.group, ()))
        return Collective(
            rank, position, step, callee.op, key, orders, members, None if root is None else int(root)
        )

    def states(self, call: Collective, members: Sequence[int]) -> States:
        """Give the verdict that the same call has alone on other members; None where it is not there."""
        return {member: self._state(call, member) for member in members}

    def _state(self, call: Collective, member: int) -> Verdict | None:
        position = self.position_on(call, member)
        return None if position is None else Verdict(int(self._by_rank[member].verdicts[position]))

    def position_on(self, call: Collective, member: int) -> int | None:
        """Give the position of the same call on another member; None where it is not there."""
        rank = self._by_rank.get(member)
        if rank is None:
            return None
        streams = self._streams_of(rank, call.step)
        found = {stream.at(call.key, order) for stream, order in zip(streams, call.orders, strict=True)}
        return found.pop() if len(found) == 1 else None  # the order of both runs names one call, or none

    def differing(self, call: Collective, member: int, side: Side) -> set[int] | None:
        """Give the members, by their place in the group, whose parts of a member's tensors differ.

        Returns
        -------
        None when unknown: the call is not there, or its tensors were not recorded part by part.
        """
        position, rank = self.position_on(call, member), self._by_rank.get(member)
        if position is None or rank is None or not call.members:
            return None
        if rank.verdicts[position] in ONE_SIDED or not _is_in_parts(rank, position, call, side):
            return None
        tensors = tensors_of(rank, np.array([position]))
        tensors = tensors[tensors["side"] == side]
        if not len(tensors) or len(tensors) % len(call.members):
            return None
        return set((differing(tensors, side)["index"] % len(call.members)).tolist())

    def agree(self, call: Collective, members: Sequence[int]) -> bool:
        """Say whether members hold the same result of a collective, in run a and in run b."""
        results: tuple[set[int], set[int]] = set(), set()
        for member in members:
            position, rank = self.position_on(call, member), self._by_rank[member]
            assert position is not None
            for seen, trace, at in zip(results, (rank.a, rank.b), rank.rows_at(position), strict=True):
                seen.add(int(trace.columns(at, at + 1, ["out_digest"])["out_digest"][0]))
        return all(len(seen) == 1 for seen in results)

    def givers(self, rank: RankComparison, position: int) -> dict[int, int]:
        """Give the other contributors whose own inputs differ: rank and position of the same call there."""
        call = self.call(rank, position)
        sources = [call.key[1]] if call.dependence is Dependence.SEND else call.members
        if call.dependence is Dependence.SOURCE and call.root is not None:
            sources = [call.root]
        states = self.states(call, [member for member in sources if member != rank.rank])
        givers = _members_with(states, INPUTS_DIFFER)
        return {member: at for member in givers if (at := self.position_on(call, member)) is not None}

    def _streams_of(self, rank: RankComparison, step: int) -> tuple[_Stream, _Stream]:
        found = self._streams.get((rank.rank, step))
        if found is None:
            found = self._streams[rank.rank, step] = _read_streams(rank, step)
        return found


def _described(rank: RankComparison, position: int) -> tuple[RankTrace, int, Callee, Meta]:
    """Give the run that made a call, run a if both did, with the call's step, callee and meta there."""
    trace = rank.a if rank.rows_at(position)[0] >= 0 else rank.b
    event = rank.events(np.array([position]), ("step", "callee", "meta"))
    step, callee, meta = (int(column[0]) for column in event.values())
    return trace, step, trace.names.callees[callee], trace.names.metas[meta]


def _is_in_parts(rank: RankComparison, position: int, call: Collective, side: Side) -> bool:
    """Say whether a collective has a tensor for each member: by what it takes, or as it was recorded."""
    recorded = dict(_described(rank, position)[-1].attributes).get("parts", "")
    return lists_a_tensor_per_member(call.op) or side.name.lower() in recorded.split(",")


def judge_communication(judge: GroupJudge) -> Judged:
    """Judge the communicating calls that their groups may judge otherwise than they look alone.

    Returns
    -------
    The judgements by rank and position; a call that is not there keeps the verdict that it has alone.
    """
    judged: Judged = {}
    for rank in judge.ranks:
        found = {int(position): judge.judge(rank, int(position)) for position in _candidates(rank)}
        judged[rank.rank] = {position: each for position, each in found.items() if each is not None}
    return judged


def _candidates(rank: RankComparison) -> NDArray[np.intp]:
    """Give the calls that their group may judge otherwise than they look alone.

    Every origin; and in the first step that diverges also receivers, whose own differing input may be
    no input of what they received. In later steps nearly all communication carries differences.
    """
    step = rank.first_step()
    if step is None:
        return np.empty(0, np.intp)
    wanted = np.union1d(rank.counted(Verdict.ORIGIN), rank.differing_in(step, step))
    paired = ~np.isin(rank.verdicts[wanted], (*ONE_SIDED, Verdict.UNKNOWN))
    wanted = wanted[paired & rank.is_counted(wanted)]
    chosen: NDArray[np.intp] = wanted[rank.events(wanted, ("kind",))["kind"] == Kind.COLLECTIVE]
    return chosen


def _every_member(judge: GroupJudge, call: Collective, alone: Verdict) -> Judgement | None:
    """Judge an output that depends on every member's whole input and is the same on all of them."""
    if alone != Verdict.ORIGIN:
        return None
    states = judge.states(call, [member for member in call.members if member != call.rank.rank])
    givers = _members_with(states, INPUTS_DIFFER)
    if givers:
        return Judgement(Verdict.RECEIVER, because=givers)
    return _all_equal(judge, call, states, replicated=True) or _open(states)


def _slices(judge: GroupJudge, call: Collective, alone: Verdict) -> Judgement | None:
    """Judge an output made of the slices that every member has for this rank."""
    mine = call.members.index(call.rank.rank) if call.rank.rank in call.members else -1
    slices = {member: judge.differing(call, member, Side.INPUT) for member in call.members}
    if mine >= 0 and all(found is not None for found in slices.values()):
        givers = tuple(member for member, found in slices.items() if found and mine in found)
        return Judgement(Verdict.RECEIVER, because=givers) if givers else _changed(alone)
    if alone != Verdict.ORIGIN:
        return None
    states = judge.states(call, [member for member in call.members if member != call.rank.rank])
    givers = _members_with(states, INPUTS_DIFFER)
    if givers:
        return Judgement(Verdict.UNKNOWN, "slices", givers)
    return _all_equal(judge, call, states, replicated=False) or _open(states)


def _pieces(judge: GroupJudge, call: Collective, alone: Verdict) -> Judgement | None:
    """Judge an output whose piece *k* is what member *k* gave."""
    pieces = judge.differing(call, call.rank.rank, Side.OUTPUT)
    if not pieces:
        return _every_member(judge, call, alone)
    givers = [call.members[piece] for piece in sorted(pieces)]
    states = judge.states(call, givers)
    if any(verdict in INPUTS_EQUAL for verdict in states.values()):
        return Judgement(Verdict.ORIGIN, "piece", _members_with(states, INPUTS_EQUAL))
    if all(verdict in INPUTS_DIFFER for verdict in states.values()):
        return Judgement(Verdict.RECEIVER, because=tuple(givers))
    return _open(states)


def _source(judge: GroupJudge, call: Collective, alone: Verdict) -> Judgement | None:
    """Judge an output that is what the source gave; other members' buffers are no inputs."""
    if call.root is None or call.root == call.rank.rank:
        return _every_member(judge, call, alone)
    return _from_one(judge, call, call.root, alone)


def _send(judge: GroupJudge, call: Collective, alone: Verdict) -> Judgement | None:
    """Judge a received message from the matching send."""
    return _from_one(judge, call, call.key[1], alone)


def _from_one(judge: GroupJudge, call: Collective, source: int, alone: Verdict) -> Judgement:
    state = judge.states(call, [source])[source]
    if state is None or state not in (*INPUTS_EQUAL, *INPUTS_DIFFER):
        return Judgement(Verdict.UNKNOWN, "contributors", (source,))
    came_equal = alone in (Verdict.MATCH, Verdict.ABSORBED)
    if state in INPUTS_DIFFER:
        return Judgement(Verdict.ABSORBED if came_equal else Verdict.RECEIVER, because=(source,))
    return Judgement(Verdict.MATCH) if came_equal else Judgement(Verdict.ORIGIN, "one_member")


def _root_only(judge: GroupJudge, call: Collective, alone: Verdict) -> Judgement | None:
    """Judge a reduction to one root: what the others' buffers hold afterwards is no output."""
    if call.root is None or call.root == call.rank.rank:
        return _every_member(judge, call, alone)
    return Judgement(Verdict.MATCH if alone in INPUTS_EQUAL else Verdict.RECEIVER)


_RULES: Final = {
    Dependence.EVERY_MEMBER: _every_member,
    Dependence.SLICES: _slices,
    Dependence.PIECES: _pieces,
    Dependence.SOURCE: _source,
    Dependence.SEND: _send,
    Dependence.ROOT_ONLY: _root_only,
}


def _members_with(states: States, verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    return tuple(member for member, verdict in states.items() if verdict in verdicts)


def _changed(alone: Verdict) -> Judgement | None:
    """Judge a call whose relevant inputs are equal on all members."""
    if alone == Verdict.ABSORBED:
        return Judgement(Verdict.MATCH)
    return Judgement(Verdict.ORIGIN, "collective")


def _all_equal(judge: GroupJudge, call: Collective, states: States, *, replicated: bool) -> Judgement | None:
    """Judge an output that differs while the inputs of all members are equal; None when some are not.

    An output that is the same on all members and differs on one alone points at that rank, and so do
    members that disagree. A sum of two has no order, so a difference on both can be no matter of order.
    One shard alone proves neither.
    """
    if not states or not all(verdict in INPUTS_EQUAL for verdict in states.values()):
        return None
    others = _members_with(states, (Verdict.ORIGIN,))
    if not others:
        return Judgement(Verdict.ORIGIN, "one_member" if replicated else "one_shard")
    if replicated and not judge.agree(call, [call.rank.rank, *states]):
        return Judgement(Verdict.ORIGIN, "disagree")
    if len(states) == 1:
        return Judgement(Verdict.ORIGIN, "two_members")
    return Judgement(Verdict.ORIGIN, "collective")


def _open(states: States) -> Judgement:
    missing = tuple(member for member, verdict in states.items() if verdict not in INPUTS_EQUAL)
    return Judgement(Verdict.UNKNOWN, "contributors", missing)


def _read_streams(rank: RankComparison, step: int) -> tuple[_Stream, _Stream]:
    """Give the communication of a step in the order of run a, and in that of run b."""
    positions = _communication(rank, step)
    in_a, in_b = _launch_orders(rank, positions)
    stream = _read_stream(rank, positions[in_a])
    return stream, stream if np.array_equal(in_a, in_b) else _read_stream(rank, positions[in_b])


def _read_stream(rank: RankComparison, positions: NDArray[np.intp]) -> _Stream:
    stream = _Stream()
    events = rank.events(positions, ("callee", "meta"))
    from_a = rank.rows(positions)[0] >= 0
    columns = (from_a.tolist(), events["callee"].tolist(), events["meta"].tolist())
    known: dict[tuple[bool, int, int], tuple[Key, list[int]]] = {}  # hashing thousands of members takes long
    for position, *kind in zip(positions.tolist(), *columns, strict=True):
        is_of_a, number, meta = kind
        if (found := known.get((is_of_a, number, meta))) is None:
            trace = rank.a if is_of_a else rank.b
            callee, attributes = trace.names.callees[number], dict(trace.names.metas[meta].attributes)
            members = trace.header.groups.get(callee.group, ())
            key = _key(rank.rank, members, callee.op, attributes)
            found = known[is_of_a, number, meta] = key, stream.positions.setdefault(key, [])
        stream.place[position] = found[0], len(found[1])
        found[1].append(position)
    return stream


def _communication(rank: RankComparison, step: int) -> NDArray[np.intp]:
    """Give the positions of the communicating calls of a step: those of run a and those of run b alone."""
    trace, starts = rank.a, rank.a.starts
    parts = [np.empty(0, np.int64)]
    for record in np.flatnonzero(trace.index["step"] == step):
        first, stop = int(starts[record]), int(starts[record + 1])
        kinds = trace.columns(first, stop, ["kind"])["kind"]
        parts.append(first + np.flatnonzero(kinds == Kind.COLLECTIVE))
    of_a = rank.positions_of(np.concatenate(parts))
    of_b = rank.differing_in(step, step)
    of_b = of_b[rank.verdicts[of_b] == Verdict.ONLY_B]
    of_b = of_b[rank.events(of_b, ("kind",))["kind"] == Kind.COLLECTIVE]
    return np.concatenate([of_a[of_a >= 0], of_b]).astype(np.intp)


def _launch_orders(rank: RankComparison, positions: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Order calls by launch in run a, and in run b; a call of one run stands before the next of both.

    It has its place in both orders, or every later call would be taken for the same as another of the other
    members.
    """
    seqs, hashes = np.full((2, len(positions)), -1, np.int64), np.zeros(len(positions), np.uint64)
    for trace, rows, seq in zip((rank.a, rank.b), rank.rows(positions), seqs, strict=True):
        there = rows >= 0
        events = read_rows(trace, rows[there], ("seq", "callee"))
        seq[there], hashes[there] = events["seq"], trace.names.callee_hashes[events["callee"]]
    in_both = (seqs >= 0).all(axis=0)
    orders = []
    for lead in seqs:
        after = np.zeros(len(positions), np.int64)
        after[in_both] = np.argsort(np.argsort(lead[in_both]))
        for seq, other in (seqs, seqs[::-1]):
            after[other < 0] = np.searchsorted(np.sort(seq[in_both]), seq[other < 0])
        orders.append(np.lexsort((hashes, seqs.max(axis=0), in_both, after)))
    return orders


def _key(rank: int, members: Sequence[int], op: str, attributes: dict[str, str]) -> Key:
    """Name the stream that a call belongs to: its member set, or source, target and tag of a message."""
    kind = dependence(op)
    if kind is Dependence.SEND:
        return (-1, int(attributes.get("src", -1)), rank, int(attributes.get("tag", 0)))
    if kind is Dependence.NOTHING and "dst" in attributes:
        return (-1, rank, int(attributes["dst"]), int(attributes.get("tag", 0)))
    return tuple(sorted(members))

"""Judge calls that communicate by what they depend on: the contributors, not one member's own inputs.

A collective whose own inputs are equal and whose output differs is an origin only when the inputs of
every contributor are equal too. Members are joined on (member set, order on that communicator within
the step), never on a label or a scope. A message is judged from the matching send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison, read_rows
from detlab.schema import Kind, Verdict

SLICED: Final = ("reducescatter", "alltoall", "scatter")
"""Operations of which a member receives only a slice of what another member gives."""

INPUTS_DIFFER: Final = (Verdict.RECEIVER, Verdict.ABSORBED, Verdict.CHANGED)
INPUTS_EQUAL: Final = (Verdict.MATCH, Verdict.ORIGIN)

Key = tuple[int, ...]


@dataclass
class _Stream:
    """The communication of one rank in one step: rows of run a by communicator, in order of launch."""

    rows: dict[Key, list[int]] = field(default_factory=dict)
    place: dict[int, tuple[Key, int]] = field(default_factory=dict)

    def add(self, key: Key, row: int) -> None:
        rows = self.rows.setdefault(key, [])
        self.place[row] = key, len(rows)
        rows.append(row)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the group says about one call that looked like an origin from one rank.

    Attributes
    ----------
    verdict
        The verdict by the dependence rule.
    because
        Ranks whose differing inputs explain the output, or that are missing.
    """

    verdict: Verdict
    because: tuple[int, ...] = ()


class GroupJudge:
    """Judges collectives and messages across the ranks of one comparison.

    Parameters
    ----------
    ranks
        All ranks that were compared, with the verdicts that each of them has alone.
    """

    def __init__(self, ranks: Sequence[RankComparison]) -> None:
        self._by_rank = {rank.rank: rank for rank in ranks}
        self._streams: dict[tuple[int, int], _Stream] = {}

    def judge(self, rank: RankComparison, position: int) -> Judgement:
        """Judge one call that has equal inputs and another output on this rank."""
        row = int(rank.rows(np.array([position]))[0][0])
        event = read_rows(rank.a, np.array([row]), ("step", "callee"))
        step, op = int(event["step"][0]), rank.a.names.callees[int(event["callee"][0])].op
        key, order = self._stream(rank, step).place[row]
        contributors = self._contributors(rank, key, op)
        states = {member: self._inputs_of(member, step, key, order, op) for member in contributors}
        return _conclude(states, op)

    def _contributors(self, rank: RankComparison, key: Key, op: str) -> list[int]:
        if "recv" in op:
            return [key[1]] if key[1] >= 0 else []
        return [member for member in key if member != rank.rank]

    def _inputs_of(self, member: int, step: int, key: Key, order: int, op: str) -> Verdict | None:
        """Give the verdict that a contributor has alone; None when its call is not there."""
        rank = self._by_rank.get(member)
        if rank is None:
            return None
        rows = self._stream(rank, step).rows.get(key, [])
        if order >= len(rows):
            return None
        return Verdict(int(rank.verdicts[rank.positions_of(np.array(rows[order : order + 1]))[0]]))

    def _stream(self, rank: RankComparison, step: int) -> _Stream:
        found = self._streams.get((rank.rank, step))
        if found is None:
            found = self._streams[rank.rank, step] = _read_stream(rank, step)
        return found


def _read_stream(rank: RankComparison, step: int) -> _Stream:
    trace, stream = rank.a, _Stream()
    rows = _communication_rows(rank, step)
    events = read_rows(trace, rows, ("seq", "callee", "meta"))
    for at in np.argsort(events["seq"], kind="stable"):
        callee = trace.names.callees[int(events["callee"][at])]
        members = trace.header.groups.get(callee.group, ())
        attributes = dict(trace.names.metas[int(events["meta"][at])].attributes)
        stream.add(_key(rank.rank, members, callee.op, attributes), int(rows[at]))
    return stream


def _communication_rows(rank: RankComparison, step: int) -> NDArray[np.int64]:
    trace, starts = rank.a, rank.a.starts
    parts = [np.empty(0, np.int64)]
    for record in np.flatnonzero(trace.index["step"] == step):
        first, stop = int(starts[record]), int(starts[record + 1])
        kinds = trace.columns(first, stop, ["kind"])["kind"]
        parts.append(first + np.flatnonzero(kinds == Kind.COLLECTIVE))
    return np.concatenate(parts)


def _key(rank: int, members: Sequence[int], op: str, attributes: dict[str, str]) -> Key:
    """Name the stream that a call belongs to: its member set, or source, target and tag of a message."""
    if "send" in op:
        return (-1, rank, int(attributes.get("dst", -1)), int(attributes.get("tag", 0)))
    if "recv" in op:
        return (-1, int(attributes.get("src", -1)), rank, int(attributes.get("tag", 0)))
    return tuple(sorted(members))


def _conclude(states: dict[int, Verdict | None], op: str) -> Judgement:
    differing = tuple(m for m, verdict in states.items() if verdict in INPUTS_DIFFER)
    if differing and not _is_sliced(op):
        return Judgement(Verdict.RECEIVER, differing)
    if states and all(verdict in INPUTS_EQUAL for verdict in states.values()):
        return Judgement(Verdict.ORIGIN)
    open_members = tuple(m for m, verdict in states.items() if verdict not in INPUTS_EQUAL)
    return Judgement(Verdict.UNKNOWN, open_members)


def _is_sliced(op: str) -> bool:
    """Say so for ``c10d._reduce_scatter_base_.default`` and its like, however a library spells them."""
    name = op.split(".")[-2] if op.count(".") > 1 else op.split(".")[-1]
    return name.replace("_", "").startswith(SLICED)

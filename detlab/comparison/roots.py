"""Where differences begin: every origin, and every call that a difference enters without a recorded cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.communication import INPUTS_DIFFER, GroupJudge, Judged, Judgement
from detlab.comparison.lineage import Lineage, follow, touched_before, weak_producers
from detlab.comparison.ranks import RankComparison
from detlab.ops import is_deterministic
from detlab.schema import Callee, Flag, Kind, Phase, Side, Verdict


class Reason(NamedTuple):
    """Why a call is a root: the class of its finding and the sentence that explains it."""

    finding_class: str
    why: str


REASONS: Final = {
    "kernel": Reason(
        "kernel",
        "every recorded input of the call (tensors, scalars, generator) has equal bits in both runs, and its "
        "output has not",
    ),
    "first_visible": Reason(
        "kernel",
        "first visible here: its inputs have equal digests, but a digest of some of them cannot see every "
        "difference, so that the call which made these may be the real origin",
    ),
    "collective": Reason(
        "collective",
        "what every contributor gives has equal bits in both runs, and the output differs on several "
        "members: algorithm, topology or order of the reduction",
    ),
    "one_member": Reason(
        "rank",
        "what every contributor gives is equal, and the output differs on this rank alone: corruption, "
        "another buffer or hardware there, not the choice of algorithm",
    ),
    "piece": Reason(
        "collective", "it received a piece that its giver did not send: that giver's input is equal"
    ),
    "two_members": Reason(
        "unknown",
        "inputs are equal and outputs differ on both members, but a sum of two has no order: suspect a hash "
        "taken before completion, corruption, or an input that was not recorded",
    ),
    "one_shard": Reason(
        "unknown",
        "one member's shard differs while all inputs are equal: the algorithm and that rank cannot be told "
        "apart where no other member has the same output",
    ),
    "slices": Reason(
        "unknown",
        "a member's input differs, but whether in the slice that this rank receives was not recorded",
    ),
    "contributors": Reason("unknown", "a contributor's call was not recorded, so its input is not known"),
    "seeded": Reason(
        "rng", "a random op gives other numbers; the state of its generator was not recorded or is equal"
    ),
    "weak_random": Reason(
        "rng",
        "first visible here: an input came from a random op, and its digest cannot tell two masks apart: the "
        "seeds or generator states differ",
    ),
    "no_inputs": Reason("data", "the call takes no tensors, so what it gives comes from outside the model"),
    "contradiction": Reason(
        "unknown",
        "this op cannot give other bits for the same bits. In order of likelihood: something wrote to an "
        "input after it was hashed (a side stream, a gather that was not waited for); an unrecorded kernel "
        "made the output; the hardware of this rank",
    ),
    "weak_contradiction": Reason(
        "unknown",
        "this op cannot give other bits for the same bits: the digest of an input missed a difference, so "
        "the origin is a call that made one of its inputs",
    ),
    "open": Reason(
        "unknown", "its recorded inputs are equal, but an input of the call was not recorded or it is a view"
    ),
    "ambiguous": Reason("unknown", "several calls of the other run fit, and another pairing would match"),
    "no_evidence": Reason(
        "unknown", "its output differs and its inputs were not recorded: this call, or anything before it"
    ),
    "other_digest": Reason(
        "unknown", "the two runs recorded digests of different kinds, which say nothing together"
    ),
    "one_side": Reason("structure", "only one run makes this call: the programs took different paths"),
    "uninitialised": Reason("state", "it reads memory that no recorded call has written"),
    "generator": Reason("rng", "the state of the random generator differs before the first random op"),
    "data": Reason("data", "its inputs differ before anything was computed: other samples or another order"),
    "scalar": Reason(
        "upstream",
        "a number passed from Python differs (learning rate, loss scale, clip coefficient, offset), and no "
        "recorded host read before it does",
    ),
    "state": Reason("state", "state that was carried into this step differs"),
    "unrecorded_write": Reason(
        "upstream",
        "an input was equal when it was last used and differs now, with no recorded write in between: an "
        "unrecorded kernel (in place, custom, on a side stream) wrote it",
    ),
    "upstream": Reason(
        "upstream",
        "its inputs differ and no recorded call before it on this rank does: the difference was there before "
        "the first recorded call (parameters, buffers, data), or an unrecorded call made it",
    ),
}
"""Every reason a root can have; rules (a) to (e) of the order of judgement."""

_ONLY_FIRST: Final = ("no_evidence", "open", "other_digest")
"""Reasons that say little after a divergence: what is unknown there may as well have been received."""

_FACTS: Final = ("kind", "flags", "n_in", "phase", "callee", "evidence", "meta")
_INTEGERS: Final = ("int", "uint", "bool")


@dataclass(frozen=True, slots=True)
class Roots:
    """Roots of one rank that share reason, callee and phase.

    Attributes
    ----------
    rank, positions
        Where they are, ascending.
    """

    rank: RankComparison
    reason: str
    callee: Callee
    phase: Phase
    positions: NDArray[np.intp]


def find_roots(ranks: Sequence[RankComparison], judged: Judged, judge: GroupJudge) -> list[Roots]:
    """List every origin, and in each rank's first divergent step every call that a difference enters.

    Parameters
    ----------
    ranks
        The compared ranks, with communication judged by groups.
    judged
        What the groups said of communicating calls, by rank and position.
    judge
        Knows the inputs of every member's calls.
    """
    found: list[Roots] = []
    for rank in ranks:
        if len(rank.divergent()):
            reasons = _origin_reasons(rank, judged.get(rank.rank, {})) | _entry_reasons(rank, judged, judge)
            found += _grouped(rank, reasons)
    return found


def _origin_reasons(rank: RankComparison, judged: Mapping[int, Judgement]) -> dict[int, str]:
    origins = rank.counted(Verdict.ORIGIN)
    facts = rank.events(origins, ("kind", "flags", "n_in"))
    columns = (column.tolist() for column in facts.values())
    reasons: dict[int, str] = {}
    for position, kind, flags, n_in in zip(origins.tolist(), *columns, strict=True):
        if kind == Kind.COLLECTIVE:
            reasons[position] = judged[position].reason
        elif flags & Flag.SEEDED:
            reasons[position] = "seeded"
        elif flags & Flag.WEAK_INPUT:
            reasons[position] = "weak_random" if _from_random(rank, position) else "first_visible"
        else:
            reasons[position] = "kernel" if n_in else "no_inputs"
    return reasons


def _from_random(rank: RankComparison, position: int) -> bool:
    """Say whether a weak input of a call came straight from a random op."""
    producers = weak_producers(rank, position)
    if not producers:
        return False
    flags = rank.events(np.array(producers[:8], np.intp), ("flags",))["flags"]
    return bool((flags & np.uint16(Flag.SEEDED)).any())


def _entry_reasons(rank: RankComparison, judged: Judged, judge: GroupJudge) -> dict[int, str]:
    """Give the calls of the first divergent step that a difference enters, with the reason of each."""
    step = rank.first_step()
    assert step is not None
    lineage = follow(rank, step, step)
    first = int(rank.divergent()[0])
    of_group = judged.get(rank.rank, {})
    explained = {p for p, each in of_group.items() if each.verdict == Verdict.RECEIVER}
    entering = set(lineage.entries().tolist()) | ({first} if _enters(rank, first, lineage) else set())
    reasons: dict[int, str] = {}
    for position in sorted(entering - explained):
        if not _came_with_communication(rank, position, lineage, judge):
            reasons[position] = _entry_reason(rank, position, lineage)
    for position in lineage.positions[rank.verdicts[lineage.positions] == Verdict.UNKNOWN].tolist():
        reason = of_group[position].reason if position in of_group else _entry_reason(rank, position, lineage)
        if position == first or reason not in _ONLY_FIRST:
            reasons[position] = reason
    return reasons


def _enters(rank: RankComparison, position: int, lineage: Lineage) -> bool:
    """Say whether a rank's first divergence is a root: no origin itself, and it comes from no other call."""
    if rank.verdicts[position] == Verdict.ORIGIN:
        return False
    return all(source < 0 for _, source in lineage.of(position))


def _came_with_communication(
    rank: RankComparison, position: int, lineage: Lineage, judge: GroupJudge
) -> bool:
    """Say whether a set-aside collective before a call can have brought its difference.

    A collective that was hashed before completion shows nothing itself, and still stands in the path.
    """
    at_a = rank.rows(np.array([position]))[0][0]
    if at_a < 0 or not (lineage.unexplained(position)["side"] == Side.INPUT).all():
        return False
    return brought_by(rank, position, judge) is not None


def brought_by(rank: RankComparison, position: int, judge: GroupJudge) -> int | None:
    """Give the last unfinished collective before a call to which some member gave other bits."""
    first, stop = _step_rows(rank, position)
    if first < 0:
        return None
    columns = rank.a.columns(first, stop, ["kind", "flags"])
    unfinished = (columns["kind"] == Kind.COLLECTIVE) & (
        columns["flags"] & np.uint16(Flag.NOT_WAITED_FOR) != 0
    )
    for row in (first + np.flatnonzero(unfinished)[::-1]).tolist():
        at = int(rank.positions_of(np.array([row]))[0])
        if rank.verdicts[at] in INPUTS_DIFFER or judge.givers(rank, at):
            return at
    return None


def _step_rows(rank: RankComparison, position: int) -> tuple[int, int]:
    """Give the rows of run a from the start of a call's step up to the call."""
    row = int(rank.rows(np.array([position]))[0][0])
    if row < 0:
        return -1, -1
    starts, index = rank.a.starts, rank.a.index
    record = int(np.searchsorted(starts, row, side="right")) - 1
    same = np.flatnonzero(index["step"] == index["step"][record])
    return int(starts[same[0]]), row


def _entry_reason(rank: RankComparison, position: int, lineage: Lineage) -> str:
    verdict = Verdict(int(rank.verdicts[position]))
    columns = rank.events(np.array([position]), _FACTS)
    event = {name: int(column[0]) for name, column in columns.items()}
    if verdict in (Verdict.ONLY_A, Verdict.ONLY_B):
        return "one_side"
    if verdict == Verdict.UNKNOWN:
        return _unknown_reason(rank, position, event)
    return _input_reason(rank, position, event, lineage)


def _unknown_reason(rank: RankComparison, position: int, event: dict[str, int]) -> str:
    row_b = int(rank.rows(np.array([position]))[1][0])
    meta_b = int(rank.b.columns(row_b, row_b + 1, ["meta"])["meta"][0])
    op = rank.a.names.callees[event["callee"]].op
    if rank.a.names.metas[event["meta"]].algorithm != rank.b.names.metas[meta_b].algorithm:
        return "other_digest"
    if not event["evidence"] >> 4:
        return "no_evidence"
    if event["flags"] & (Flag.OPEN_INPUTS | Flag.VIEW):
        return "open"
    if is_deterministic(op):
        if not event["flags"] & Flag.WEAK_INPUT:
            return "contradiction"
        return "weak_random" if _from_random(rank, position) else "weak_contradiction"
    return "ambiguous"


def _input_reason(rank: RankComparison, position: int, event: dict[str, int], lineage: Lineage) -> str:
    changes = lineage.unexplained(position)
    sides = set(changes["side"].tolist())
    ignores = dict(rank.a.names.metas[event["meta"]].attributes).get("unread")
    if event["flags"] & Flag.FRESH_MEMORY and not event["flags"] & Flag.OPEN_INPUTS and ignores is None:
        return "uninitialised"
    if Side.GENERATOR in sides or (event["flags"] & Flag.SEEDED and Side.INPUT not in sides):
        return "generator"
    if event["phase"] == Phase.DATA:
        return "data"
    if sides == {Side.SCALARS} or (not sides and not event["n_in"]):
        return "scalar"
    if event["phase"] == Phase.STATE or event["kind"] == Kind.STATE:
        return "state"
    return _tensor_reason(rank, position, event, changes)


def _tensor_reason(
    rank: RankComparison, position: int, event: dict[str, int], changes: NDArray[np.void]
) -> str:
    tensors = changes[changes["side"] == Side.INPUT]
    dtypes = [tensor.dtype for tensor in rank.a.names.metas[event["meta"]].inputs]
    integers = [dtypes[int(i)].startswith(_INTEGERS) for i in tensors["index"] if int(i) < len(dtypes)]
    if integers and all(integers) and event["phase"] == Phase.FORWARD:
        return "data"
    if any(touched_before(rank, position, change) is not None for change in tensors):
        return "unrecorded_write"
    return "upstream"


def _grouped(rank: RankComparison, reasons: dict[int, str]) -> Iterator[Roots]:
    """Give the positions by reason, callee and phase."""
    if not reasons:
        return
    positions = np.array(sorted(reasons), np.intp)
    facts = rank.events(positions, ("phase", "callee"))
    in_a = rank.rows(positions)[0] >= 0
    groups: dict[tuple[str, bool, int, int], list[int]] = {}
    columns = (in_a.tolist(), facts["phase"].tolist(), facts["callee"].tolist())
    for position, from_a, phase, callee in zip(positions.tolist(), *columns, strict=True):
        groups.setdefault((reasons[position], from_a, phase, callee), []).append(position)
    for (reason, from_a, phase, number), members in groups.items():
        callee = (rank.a if from_a else rank.b).names.callees[number]
        yield Roots(rank, reason, callee, Phase(phase), np.array(members, np.intp))

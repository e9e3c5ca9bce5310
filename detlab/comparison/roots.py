"""Where differences begin: every origin, and every call that a difference enters without a recorded cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.communication import GroupJudge, Judged, Judgement
from detlab.comparison.later import later_roots
from detlab.comparison.lineage import Lineage, follow, touched_before, weak_producers
from detlab.comparison.ranks import RankComparison
from detlab.comparison.verdicts import INPUTS_DIFFER, ONE_SIDED
from detlab.ops import is_constant, is_deterministic, takes_host_scalar
from detlab.schema import Callee, Evidence, Flag, Kind, Phase, Side, Verdict

_LOOKED_AT: Final = 50
"""Calls of one callee and phase that are looked at one by one; the others get the reason of the last."""

_SAYS_LITTLE: Final = frozenset(
    ("no_evidence", "open", "open_scalar", "view", "other_digest", "statistic", "padding")
)
"""Reasons of an unknown that is a root only as a rank's first divergence: later it may have received."""


@dataclass(frozen=True, slots=True)
class Roots:
    """Roots of one rank that share reason, callee and phase.

    Attributes
    ----------
    rank, positions
        Where they are, ascending.
    reason
        A key of `detlab.comparison.reasons.REASONS`.
    """

    rank: RankComparison
    reason: str
    callee: Callee
    phase: Phase
    positions: NDArray[np.intp]


def find_roots(
    ranks: Sequence[RankComparison],
    judged: Judged,
    judge: GroupJudge,
    before: Sequence[RankComparison] = (),
) -> list[Roots]:
    """List every origin, and in each rank's first divergent step every call that a difference enters.

    Parameters
    ----------
    ranks
        The compared ranks, with communication judged by groups.
    judged
        What the groups said of communicating calls, by rank and position.
    judge
        Knows the inputs of every member's calls.
    before
        The ranks with more set aside, if there are any: a call that a difference enters in their first
        divergent step is a root still.
    """
    found: list[Roots] = []
    for rank, *others in zip(ranks, before, strict=True) if before else zip(ranks, strict=True):
        steps = {step for each in (rank, *others) if (step := each.first_step()) is not None}
        reasons = later_roots(rank, min(steps)) if steps else {}
        for step in sorted(steps, reverse=True):
            lineage = follow(rank, step, step)
            firsts = {p for each in (rank, *others) for p in _first_counted(each, lineage.positions)}
            search = _Search(rank, lineage, judged.get(rank.rank, {}), judge, tuple(sorted(firsts)))
            reasons |= search.reasons()
        found += grouped(rank, reasons)
    return found or [each for rank in ranks for each in _first_of(rank)]


def _first_counted(rank: RankComparison, positions: NDArray[np.intp]) -> list[int]:
    """Give the first of some differing positions that is not set aside, if any."""
    counted: list[int] = positions[rank.is_counted(positions)][:1].tolist()
    return counted


def _first_of(rank: RankComparison) -> list[Roots]:
    """Give a rank's first divergence, for runs of which every difference leads back to what is set aside."""
    divergent = rank.divergent()
    return list(grouped(rank, {int(divergent[0]): "aside"})) if len(divergent) else []


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for roots on one rank.

    Attributes
    ----------
    firsts
        Its first divergence; and what was the first before more was counted, which stays a root.
    """

    rank: RankComparison
    lineage: Lineage
    of_group: Mapping[int, Judgement]
    judge: GroupJudge
    firsts: tuple[int, ...]

    def reasons(self) -> dict[int, str]:
        """Give the reason of each root by its position."""
        return self._origins() | self._entries() | self._unknowns() | self._one_sided()

    def _origins(self) -> dict[int, str]:
        origins = self.rank.counted(Verdict.ORIGIN)
        facts = self.rank.events(origins, ("kind", "n_in", "phase", "evidence"))
        facts["flags"] = self.rank.flags_of_either(origins)
        columns = {name: column.tolist() for name, column in facts.items()}
        found = {}
        for at, position in enumerate(origins.tolist()):
            reason = self._origin(position, {name: column[at] for name, column in columns.items()})
            if reason:
                found[position] = reason
        return found

    def _origin(self, position: int, event: Mapping[str, int]) -> str:
        """Give the reason of an origin; empty when a weak input explains it."""
        if position in self.of_group:
            return self.of_group[position].reason
        if event["kind"] == Kind.STATE or event["phase"] == Phase.STATE:
            return "state"
        if event["flags"] & Flag.SEEDED:
            return "seeded"
        if event["flags"] & Flag.WEAK_INPUT:
            return self._weak(position, "first_visible")
        if not event["n_in"]:
            return "no_inputs"
        return "kernel" if event["evidence"] >> 4 == Evidence.EXACT else "kernel_seen"

    def _weak(self, position: int, otherwise: str) -> str:
        """Judge by the calls that made the weak inputs: divergent themselves, random, or neither."""
        producers = weak_producers(self.rank, position)
        if set(producers) & set(self.lineage.positions.tolist()):
            return ""
        if not producers:
            return otherwise
        flags = self.rank.events(np.array(producers[:8], np.intp), ("flags",))["flags"]
        return "weak_random" if (flags & np.uint16(Flag.SEEDED)).any() else otherwise

    def _entries(self) -> dict[int, str]:
        entering: set[int] = set()
        for first in self.firsts:
            entering |= set(self.lineage.entries(first).tolist())
            receives = self.rank.verdicts[first] in INPUTS_DIFFER
            if receives and all(source < 0 for _, source, _ in self.lineage.of(first)):
                entering.add(first)
        explained = {p for p, each in self.of_group.items() if each.verdict == Verdict.RECEIVER}
        entering -= explained | set(self.rank.counted(Verdict.ORIGIN).tolist())
        return self._by_kind(sorted(entering), self._entry_reason)

    def _by_kind(self, positions: Sequence[int], reason_of: Callable[[int], str]) -> dict[int, str]:
        """Give the reason of each position; of many calls of one callee only the first are looked at."""
        found: dict[int, str] = {}
        at = np.array(positions, np.intp)
        facts = self.rank.events(at, ("callee", "phase"))
        seen: dict[tuple[int, int], list[str]] = {}
        kinds = zip(facts["callee"].tolist(), facts["phase"].tolist(), strict=True)
        for position, kind in zip(positions, kinds, strict=True):
            reasons = seen.setdefault(kind, [])
            if len(reasons) < _LOOKED_AT:
                reasons.append(reason_of(position))
            found[position] = reasons[-1]
        return {position: reason for position, reason in found.items() if reason}

    def _entry_reason(self, position: int) -> str:
        return "" if self._came_with_communication(position) else self._input_reason(position)

    def _came_with_communication(self, position: int) -> bool:
        """Say whether a set-aside collective before a call can have brought its difference.

        A collective that was hashed before completion shows nothing itself, and still stands in the path.
        """
        only_tensors = (self.lineage.unexplained(position)["side"] == Side.INPUT).all()
        return bool(only_tensors) and brought_by(self.rank, position, self.judge) is not None

    def _unknowns(self) -> dict[int, str]:
        here = self.lineage.positions
        unknown = here[self.rank.verdicts[here] == Verdict.UNKNOWN]
        evidence = self.rank.events(unknown, ("evidence",))["evidence"] >> 4
        is_first = np.isin(unknown, self.firsts)
        found = self._by_kind(unknown[(evidence != 0) | is_first].tolist(), self._judged_reason)
        return {p: reason for p, reason in found.items() if p in self.firsts or reason not in _SAYS_LITTLE}

    def _judged_reason(self, position: int) -> str:
        judged = self.of_group.get(position)
        return (judged.reason if judged else "") or self._unknown_reason(position)

    def _one_sided(self) -> dict[int, str]:
        """Give the calls of one run only, unless a differing host read before them explains the branch."""
        here = self.lineage.positions[self.rank.is_counted(self.lineage.positions)]
        here = here[np.isin(self.rank.verdicts[here], ONE_SIDED)]
        reads = self.lineage.host_reads
        return {p: "one_side" for p in here.tolist() if not len(reads) or p < reads[0]}

    def _unknown_reason(self, position: int) -> str:
        reason = unknown_reason(self.rank, position)
        return self._weak(position, reason) if reason == "weak_contradiction" else reason

    def _input_reason(self, position: int) -> str:
        facts = _facts(self.rank, position)
        changes = self.lineage.unexplained(position)
        sides = set(changes["side"].tolist())
        if self._reads_fresh_memory(position, facts):
            return "uninitialised"
        if Side.GENERATOR in sides or (facts["flags"] & Flag.SEEDED and Side.INPUT not in sides):
            return "generator"
        if facts["phase"] == Phase.DATA:
            return "data"
        if sides == {Side.SCALARS} or (not sides and not facts["n_in"]):
            return "scalar"
        if facts["phase"] == Phase.STATE or facts["kind"] == Kind.STATE:
            return "state"
        return self._tensor_reason(position, facts, changes)

    def _reads_fresh_memory(self, position: int, facts: Mapping[str, Any]) -> bool:
        """Say whether a call reads what nobody wrote, and not merely overwrites or ignores it."""
        from_fresh = self.lineage.from_fresh(position)
        ignores = "unread" in dict(facts["meta"].attributes)
        flagged = facts["flags"] & Flag.FRESH_MEMORY and not facts["flags"] & Flag.OPEN_INPUTS
        return from_fresh or bool(flagged and not ignores)

    def _tensor_reason(self, position: int, facts: Mapping[str, Any], changes: NDArray[np.void]) -> str:
        tensors = changes[changes["side"] == Side.INPUT]
        inputs = facts["meta"].inputs
        integers = [inputs[int(i)].is_integer for i in tensors["index"] if int(i) < len(inputs)]
        if integers and all(integers) and facts["phase"] == Phase.FORWARD:
            return "data"
        if len(tensors) > 1 and sorted(tensors["digest_a"].tolist()) == sorted(tensors["digest_b"].tolist()):
            return "permuted"
        if any(touched_before(self.rank, position, change) is not None for change in tensors):
            return "unrecorded_write"
        return "upstream"


def unknown_reason(rank: RankComparison, position: int) -> str:
    """Give the reason why an unknown call of both runs is none of the other verdicts, by its own record."""
    facts = _facts(rank, position)
    row_b = rank.rows_at(position)[1]
    event_b = rank.b.columns(row_b, row_b + 1, ["meta", "evidence"])
    if facts["meta"].algorithm != rank.b.names.metas[int(event_b["meta"][0])].algorithm:
        return "other_digest"
    if not facts["evidence"] >> 4 or not event_b["evidence"][0] >> 4:
        return "no_evidence"
    if min(facts["evidence"] & 15, int(event_b["evidence"][0]) & 15) == Evidence.STATISTIC:
        return "statistic"
    reason = _open_reason(facts)
    inputs = min(facts["evidence"], int(event_b["evidence"][0])) >> 4
    return "unproven" if reason == "ambiguous" and inputs <= Evidence.STATISTIC else reason


def _facts(rank: RankComparison, position: int) -> dict[str, Any]:
    names = ("kind", "n_in", "phase", "callee", "evidence", "meta")
    at = np.array([position])
    event = {name: int(column[0]) for name, column in rank.events(at, names).items()}
    event["flags"] = int(rank.flags_of_either(at)[0])
    meta = rank.a.names.metas[event["meta"]]
    return {**event, "op": rank.a.names.callees[event["callee"]].op, "meta": meta}


def _open_reason(facts: Mapping[str, Any]) -> str:
    if facts["flags"] & Flag.VIEW:
        return "view"
    if facts["flags"] & Flag.OPEN_INPUTS:
        return "open_scalar" if takes_host_scalar(facts["op"]) else "open"
    if is_deterministic(facts["op"]) or is_constant(facts["op"]):
        weak = facts["flags"] & Flag.WEAK_INPUT or facts["evidence"] >> 4 < Evidence.EXACT
        return "weak_contradiction" if weak else "contradiction"
    return "ambiguous"


def brought_by(rank: RankComparison, position: int, judge: GroupJudge) -> int | None:
    """Give the last unfinished collective before a call to which some member gave other bits."""
    first, stop = _step_rows(rank, position)
    if first < 0:
        return None
    columns = rank.a.columns(first, stop, ["kind", "flags"])
    waiting = (columns["flags"] & np.uint16(Flag.NOT_WAITED_FOR)) != 0
    for row in (first + np.flatnonzero(waiting & (columns["kind"] == Kind.COLLECTIVE))[::-1]).tolist():
        at = int(rank.positions_of(np.array([row]))[0])
        if rank.verdicts[at] in INPUTS_DIFFER or judge.givers(rank, at):
            return at
    return None


def _step_rows(rank: RankComparison, position: int) -> tuple[int, int]:
    """Give the rows of run a from the start of a call's step up to the call."""
    row = rank.rows_at(position)[0]
    if row < 0:
        return -1, -1
    starts, index = rank.a.starts, rank.a.index
    record = int(np.searchsorted(starts, row, side="right")) - 1
    same = np.flatnonzero(index["step"] == index["step"][record])
    return int(starts[same[0]]), row


def grouped(rank: RankComparison, reasons: Mapping[int, str]) -> Iterator[Roots]:
    """Give the positions of one rank, each with its reason, by reason, callee and phase."""
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

"""Everything that can be said about one compared call, gathered from both runs and the calls around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detlab.comparison.call.advice import next_step
from detlab.comparison.call.links import Links, links_of
from detlab.comparison.call.members import Members, members_of
from detlab.comparison.call.peers import Peers
from detlab.comparison.call.recorded import Recorded, recorded_at
from detlab.comparison.call.refs import CallRef, call_ref, neighbours
from detlab.comparison.call.sides import SideState, side_state
from detlab.comparison.call.tensors import MAX_TENSORS, TensorPair, most_telling, pair_tensors
from detlab.comparison.call.unknown import why_unknown
from detlab.comparison.captured import Captured, captures_at
from detlab.comparison.contradictions import num_lanes
from detlab.comparison.ignored import why_aside
from detlab.comparison.notes import notes_on
from detlab.comparison.places import differing_at
from detlab.comparison.ranks import RankComparison
from detlab.comparison.verdicts import BOOKKEEPING
from detlab.errors import InputError
from detlab.ops import Dependence, dependence, is_lane_wise
from detlab.schema import Callee, Flag, Kind, Side, Site

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

NUM_NEIGHBOURS: Final = 4
"""So many calls before and after one are named."""

_MAX_CAPTURES: Final = 8


@dataclass(frozen=True, slots=True)
class Attribute:
    """What was chosen for a call, such as its reduce op or its kernel; None where a run does not say."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class CallDetails:
    """Everything that is known of one compared call; printed, it is about one screen of text.

    Attributes
    ----------
    number
        Which rank of the comparison it is on, counted from 0; its position there is ``call.position``.
    call
        What was called, where and with which verdict, with the columns of `Comparison.first`.
    labels
        The names of run a and run b.
    kind, group, how
        What kind of call it is (op, module, collective, host_read, optimizer, state), the label of its
        communicator, and how the calls of the two runs were matched (site, aligned, override).
    set_aside
        For each reason why it was set aside: its kind and what that means; empty when it counts.
    inputs, outputs
        What is known of all inputs and all outputs together.
    tensors
        One entry per tensor, scalar fold and generator state in both runs; of many, those that differ.
    num_tensors
        Of how many these are.
    num_lanes
        Lanes of a list op, which are judged one by one; 0 for every other call.
    differing_lanes, origin_lanes
        Lanes whose tensors differ, and those among them in which equal inputs gave other outputs.
    attributes
        What was chosen for the call, in both runs.
    call_sites
        The line of code, or the autograd node, in both runs; empty where not recorded.
    flags
        The flags of its event in run a and in run b, by name in lower case.
    why
        For an unknown: why none of the other verdicts can be given. Empty for every other call.
    notes
        What else is known from its tensors and from what was chosen for it, one sentence each.
    before, after
        The calls just before and just after it, in the order of the rank.
    links
        The calls that made its inputs, and the calls that take its outputs.
    members
        For a call that communicates: what each member of its communicator gave; None for every other.
    peers
        The same site on every other rank.
    findings, finding_classes
        Row numbers in `Comparison.findings` of the findings that name this site, and the class of each.
    findings_elsewhere
        Those of them that other ranks have, and this one has not.
    captures
        (rank, folder) of each capture of this site, those of this rank first.
    next
        What to do next, in words or as a line to paste.
    """

    number: int
    call: CallRef
    labels: tuple[str, str]
    kind: str
    group: str
    how: str
    set_aside: tuple[tuple[str, str], ...]
    inputs: SideState
    outputs: SideState
    tensors: tuple[TensorPair, ...]
    num_tensors: int
    num_lanes: int
    differing_lanes: tuple[int, ...]
    origin_lanes: tuple[int, ...]
    attributes: tuple[Attribute, ...]
    call_sites: tuple[str, str]
    flags: tuple[tuple[str, ...], tuple[str, ...]]
    why: str
    notes: tuple[str, ...]
    before: tuple[CallRef, ...]
    after: tuple[CallRef, ...]
    links: Links
    members: Members | None
    peers: Peers
    findings: tuple[int, ...]
    finding_classes: tuple[str, ...]
    findings_elsewhere: tuple[int, ...]
    captures: tuple[Captured, ...]
    next: str

    def to_json(self) -> dict[str, Any]:
        """Give all of it as JSON has it, with the sentences of the text form as ``says``."""
        from detlab.comparison.call.words import sentences

        plain = {
            name: getattr(self, name)
            for name in ("number", "kind", "group", "how", "why", "next", "num_tensors")
        }
        listed = (
            "labels",
            "call_sites",
            "notes",
            "findings",
            "finding_classes",
            "findings_elsewhere",
            "differing_lanes",
            "origin_lanes",
        )
        return {
            **self.call.to_json(),
            **plain,
            **{name: list(getattr(self, name)) for name in listed},
            "num_lanes": self.num_lanes,
            "says": list(sentences(self)),
            "set_aside": [{"kind": kind, "why": why} for kind, why in self.set_aside],
            "inputs": self.inputs.to_json(),
            "outputs": self.outputs.to_json(),
            "tensors": [pair.to_json() for pair in self.tensors],
            "attributes": [{"name": each.name, "a": each.a, "b": each.b} for each in self.attributes],
            "flags": [list(each) for each in self.flags],
            "before": [each.to_json() for each in self.before],
            "after": [each.to_json() for each in self.after],
            "links": self.links.to_json(),
            "members": self.members and self.members.to_json(),
            "peers": self.peers.to_json(),
            "captures": [each._asdict() for each in self.captures],
        }

    def __repr__(self) -> str:
        from detlab.comparison.call.text import screen

        return screen(self)


def call_details(cmp: Comparison, number: int, position: int) -> CallDetails:
    """Gather everything that can be said about one compared call.

    Parameters
    ----------
    cmp
        The comparison.
    number
        Which of its ranks, counted from 0.
    position
        Where the call stands among the verdicts of that rank.

    Raises
    ------
    InputError
        There is no such rank or position.
    """
    rank = _checked(cmp, number, position)
    a, b = recorded_at(rank, position)
    known = a or b
    assert known is not None  # a call stands in one run at least
    call = call_ref(rank, position)
    callee = _callee(rank, a, b)
    lanes = _num_lanes(known, callee.op)
    pairs = pair_tensors(a, b, lanes)
    differing, begun = _lanes(pairs, lanes)
    before, after = neighbours(rank, position, NUM_NEIGHBOURS)
    states = tuple(side_state(side, a, b, pairs) for side in (Side.INPUT, Side.OUTPUT))
    aside = tuple(why_aside(rank, position, cmp.counted))
    members = _members(cmp, rank, position, known, callee)
    findings = _findings(cmp, rank, call)
    captures = _captures(cmp, rank, position)
    return CallDetails(
        number=number,
        call=call,
        labels=(cmp.a.label, cmp.b.label),
        kind=Kind(known.event["kind"]).name.lower(),
        group=callee.group,
        how=rank.how(np.array([position]))[0],
        set_aside=aside,
        inputs=states[0],
        outputs=states[1],
        tensors=tuple(most_telling(pairs, MAX_TENSORS)),
        num_tensors=len(pairs),
        num_lanes=lanes,
        differing_lanes=differing,
        origin_lanes=begun,
        attributes=_attributes(a, b),
        call_sites=(a.meta.call_site if a else "", b.meta.call_site if b else ""),
        flags=(_flags(a), _flags(b)),
        why=why_unknown(rank, position, states, members),
        notes=tuple(notes_on(rank, position)),
        before=before,
        after=after,
        links=links_of(rank, position, pairs),
        members=members,
        peers=cmp._programs.peers(number, Site.parse(call.site), in_b=a is None),
        findings=findings,
        finding_classes=tuple(cmp.roots[each].finding_class for each in findings),
        findings_elsewhere=tuple(each for each in findings if rank.rank not in cmp.roots[each].ranks),
        captures=captures,
        next=next_step(cmp, call, states, findings, captures, aside),
    )


def _checked(cmp: Comparison, number: int, position: int) -> RankComparison:
    if not 0 <= number < len(cmp.ranks):
        raise InputError(f"there is no rank number {number}.", f"there are {len(cmp.ranks)}, counted from 0")
    rank = cmp.ranks[number]
    if not 0 <= position < len(rank.verdicts):
        raise InputError(
            f"rank {rank.rank} has no call at position {position}.",
            f"it has {len(rank.verdicts):,} compared calls, counted from 0",
        )
    return rank


def _callee(rank: RankComparison, a: Recorded | None, b: Recorded | None) -> Callee:
    known, trace = (a, rank.a) if a else (b, rank.b)
    assert known is not None  # a call stands in one run at least
    return trace.names.callees[known.event["callee"]]


def _num_lanes(known: Recorded, op: str) -> int:
    if not is_lane_wise(op):
        return 0
    lanes = num_lanes(known.meta, known.event["n_in"], known.event["n_out"])
    return lanes if lanes > 1 else 0


def _lanes(pairs: list[TensorPair], num_lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Say which lanes differ, and in which of them equal inputs gave other outputs."""
    if not num_lanes:
        return (), ()
    odd, unsaid = _lanes_by(pairs, "output", False), _lanes_by(pairs, "input", None)
    received = _lanes_by(pairs, "input", False)
    shared = any(pair.side in ("scalars", "generator") and pair.same is not True for pair in pairs)
    begun = set() if shared else odd - received - unsaid
    return tuple(sorted(odd | received)), tuple(sorted(begun))


def _lanes_by(pairs: list[TensorPair], side: str, same: bool | None) -> set[int]:
    return {pair.lane for pair in pairs if pair.side == side and pair.same is same and pair.lane is not None}


def _members(
    cmp: Comparison, rank: RankComparison, position: int, known: Recorded, callee: Callee
) -> Members | None:
    """Ask the members of a collective; a call that only one run makes has none to ask."""
    if known.event["kind"] != Kind.COLLECTIVE or dependence(callee.op) is Dependence.NOTHING:
        return None
    return members_of(cmp.ranks, cmp.judge, rank, position)


def _attributes(a: Recorded | None, b: Recorded | None) -> tuple[Attribute, ...]:
    """Put what was chosen side by side, without what only says how the call was recorded."""
    mine, theirs = (dict(each.meta.attributes) if each else {} for each in (a, b))
    names = sorted((mine.keys() | theirs.keys()) - BOOKKEEPING)
    return tuple(Attribute(name, mine.get(name), theirs.get(name)) for name in names)


def _flags(run: Recorded | None) -> tuple[str, ...]:
    return tuple(flag.name.lower() for flag in Flag if flag.name and run and run.event["flags"] & flag)


def _findings(cmp: Comparison, rank: RankComparison, call: CallRef) -> tuple[int, ...]:
    """List the findings that name a site; none where they mean another call, which has it in run b."""
    named = tuple(number for number, finding in enumerate(cmp.roots) if call.site in finding.sites)
    if not named or call.verdict != "match":
        return named
    return named if differing_at(rank, Site.parse(call.site)) is None else ()


def _captures(cmp: Comparison, rank: RankComparison, position: int) -> tuple[Captured, ...]:
    found = captures_at(rank, position, cmp._captured)
    return tuple(sorted(found, key=lambda each: (each.rank != rank.rank, each))[:_MAX_CAPTURES])

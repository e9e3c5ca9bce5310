"""Group roots that belong together into findings, each with its class, ranks, strength and next step."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Final, NamedTuple

import numpy as np

from detlab.catalog import known
from detlab.comparison.axes import Candidates, Racks, candidate_axes, fitting_axis
from detlab.comparison.captured import CapturedCalls, captures_at, recorder_of
from detlab.comparison.exact import CHANCE, LIKELY_BY_CHANCE
from detlab.comparison.notes import notes_on
from detlab.comparison.places import site_at
from detlab.comparison.ranks import RankComparison
from detlab.comparison.reasons import REASONS
from detlab.comparison.roots import Roots
from detlab.schema import Evidence, Phase, Site, Verdict

_LISTED: Final = ("scopes", "ranks", "receivers", "steps", "sites")
MAX_SITES: Final = 20
"""A finding lists at most this many sites; it counts all of them."""

_MAX_ASKED: Final = 32


@dataclass(frozen=True, slots=True)
class Finding:
    """Roots of one class and op at one kind of place.

    Attributes
    ----------
    finding_class
        kernel, collective, data, rng, state, structure, rank, environment, observer, upstream or unknown.
    op, scopes, phase
        What was called, and in which modules and part of the step.
    ranks, of_ranks
        Global ranks of run a that have it, and how many ranks were compared.
    receivers
        Ranks that diverge without a root of their own.
    steps, sites, num_sites
        Where it was seen; at most `MAX_SITES` sites are listed.
    evidence
        The least evidence among its calls.
    axis, chance
        The axis that the set of ranks fits (a parallel one, a node or a rack; all of them where several
        have that set), and how often a random set of as many ranks fits some axis as well; empty and
        None when no axis fits.
    matched_before, untested_after
        On the rank where it comes earliest: calls before it that match with evidence, and calls with
        differing inputs after it. Those are untested, not exonerated.
    why, next
        Why this class, and the cheapest experiment that would decide.
    accepted
        The reason why this difference is accepted, from a file of the user; empty when it is not.
    """

    finding_class: str
    op: str
    scopes: tuple[str, ...]
    phase: str
    ranks: tuple[int, ...]
    of_ranks: int
    receivers: tuple[int, ...]
    steps: tuple[int, ...]
    sites: tuple[str, ...]
    num_sites: int
    evidence: str
    axis: str
    chance: float | None
    matched_before: int
    untested_after: int
    why: str
    next: str
    accepted: str = ""

    @property
    def is_made_here(self) -> bool:
        """Whether its calls make the difference; in all other classes one comes in, or nobody knows."""
        return self.finding_class in ("kernel", "collective", "rank")

    @property
    def pattern(self) -> str:
        """Say which axis the ranks fit and how often ranks fit one by chance; empty when none does."""
        if self.axis in ("", "all") or self.chance is None:
            return ""
        likely = f": {CHANCE}" if self.chance > LIKELY_BY_CHANCE else ""
        return f"all of {self.axis}; {100 * self.chance:.0f}% of such rank sets fit some axis{likely}"

    def to_json(self) -> dict[str, Any]:
        """Give the finding as the JSON form has it."""
        content = {
            name: list(getattr(self, name)) if name in _LISTED else getattr(self, name)
            for name in self.__slots__
            if name != "finding_class"
        }
        return {"class": self.finding_class, **content, "num_ranks": len(self.ranks)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Finding:
        """Read what `to_json` gave."""
        values: dict[str, Any] = {
            name: tuple(content[name]) if name in _LISTED else content[name] for name in cls.__slots__[1:]
        }
        return cls(content["class"], **values)


class _Group(NamedTuple):
    """What roots have in common that make one finding; numbers in scopes, such as layers, are set aside."""

    reason: str
    op: str
    place: str
    phase: Phase

    @classmethod
    def of(cls, roots: Roots) -> _Group:
        return cls(roots.reason, roots.callee.op, re.sub(r"\d+", "*", roots.callee.scope), roots.phase)


def group_findings(
    roots: Sequence[Roots],
    ranks: Sequence[RankComparison],
    captures: CapturedCalls,
    racks: tuple[Racks, Racks] = ({}, {}),
) -> list[Finding]:
    """Group roots by reason, op, phase and kind of place.

    Parameters
    ----------
    roots
        Where differences begin.
    ranks
        All compared ranks.
    captures
        The captured calls of both runs.
    racks
        The rack of each host in run a and in run b.

    Returns
    -------
    Findings in the order of their first step.
    """
    groups: dict[_Group, list[Roots]] = defaultdict(list)
    for each in roots:
        groups[_Group.of(each)].append(each)
    with_root = {each.rank.rank for each in roots}
    receivers = tuple(rank.rank for rank in ranks if rank.rank not in with_root and len(rank.divergent()))
    ordered = sorted(groups.values(), key=_execution_order)
    axes = candidate_axes(ranks, racks) if ordered else {}
    return [_finding(members, ranks, receivers, captures, axes) for members in ordered]


def _execution_order(members: Sequence[Roots]) -> tuple[int, int, int]:
    """Order findings by their first step, then by where they come first on any rank that has them."""
    firsts = [
        (each.rank.step_at(int(each.positions[0])), int(each.positions[0]), each.rank.rank)
        for each in members
    ]
    return min(firsts)


def _finding(
    members: Sequence[Roots],
    ranks: Sequence[RankComparison],
    receivers: tuple[int, ...],
    captures: CapturedCalls,
    axes: Candidates,
) -> Finding:
    first = min(members, key=lambda roots: int(roots.positions[0]))
    rank, position = first.rank, int(first.positions[0])
    num_before = int(np.searchsorted(rank.differing, position))
    after = rank.verdicts[rank.differing[np.searchsorted(rank.differing, position, side="right") :]]
    on_ranks = tuple(sorted({roots.rank.rank for roots in members}))
    axis, chance = fitting_axis(axes, [each.rank for each in ranks], on_ranks)
    sites = _sites(members)
    finding_class, why = REASONS[first.reason]
    draft = Finding(
        finding_class=finding_class,
        op=first.callee.op,
        scopes=tuple(sorted({roots.callee.scope for roots in members})),
        phase=first.phase.name.lower(),
        ranks=on_ranks,
        of_ranks=len(ranks),
        receivers=receivers,
        steps=_steps(members),
        sites=tuple(map(str, sites)),
        num_sites=sum(len(roots.positions) for roots in members),
        evidence=min(map(_least_evidence, members)).name.lower(),
        axis=axis,
        chance=chance,
        matched_before=max(0, position - num_before - _num_unproven(rank, position)),
        untested_after=int((after == Verdict.RECEIVER).sum()),
        why="; ".join(
            [
                why,
                *notes_on(rank, position, first.reason),
                *([] if first.reason == "first_visible" else _known(first.callee.op, finding_class)),
                *_before(rank, position),
            ]
        ),
        next="",
    )
    return replace(draft, next=next_step(draft, sites[0], _captured(members, captures), first.reason))


def _known(op: str, finding_class: str) -> list[str]:
    """Name the entry of the catalogue for a call that is known not to repeat its bits."""
    entry = known(op) if finding_class in ("kernel", "collective") else None
    return [f"known to vary on {entry.device}: docs/op_catalog.md#{entry.anchor}"] if entry else []


def _before(rank: RankComparison, position: int) -> list[str]:
    """Say so where an unknown stands before an origin on its rank."""
    unknown = rank.counted(Verdict.UNKNOWN)
    stands = rank.verdicts[position] == Verdict.ORIGIN and (unknown < position).any()
    return [f"an unknown stands before it on rank {rank.rank}"] if stands else []


def _num_unproven(rank: RankComparison, position: int) -> int:
    """Count the calls of run a before a position whose outputs were not recorded."""
    trace = rank.a
    row = rank.rows_at(position)[0] if position else 0
    record = int(np.searchsorted(trace.starts, max(row, 0), side="right")) - 1
    start = int(trace.starts[record])
    inside = trace.columns(start, max(row, start), ["evidence"])["evidence"]
    whole = int(trace.index["no_output"][:record].sum(dtype=np.int64))
    return whole + int(((inside & 15) == 0).sum())


def _sites(members: Sequence[Roots]) -> list[Site]:
    """List the first sites, each once however many ranks have it."""
    sites: set[Site] = set()
    for roots in members:
        for position in roots.positions[:MAX_SITES]:
            sites.add(site_at(roots.rank, int(position)))
        if len(sites) >= MAX_SITES:
            break
    return sorted(sites)[:MAX_SITES]


def _steps(members: Sequence[Roots]) -> tuple[int, ...]:
    steps: set[int] = set()
    for roots in members:
        steps.update(roots.rank.events(roots.positions, ("step",))["step"].tolist())
    return tuple(sorted(steps))


def _least_evidence(roots: Roots) -> Evidence:
    """Give the lesser evidence of inputs and outputs over both runs; STRUCTURE for calls of one run only."""
    evidence = roots.rank.events(roots.positions, ("evidence",))["evidence"]
    return Evidence(int(np.minimum(evidence >> 4, evidence & 15).min()))


_ADVICE: Final = {
    "collective": "compare the order of reduction: are NCCL_ALGO, NCCL_PROTO and the topology the same?",
    "data": "compare seeds, the data order and the generator states that both runs started from",
    "rng": "compare seeds, the data order and the generator states that both runs started from",
    "structure": "compare the programs: versions, arguments, and the last host read before this call",
    "environment": "compare versions, autotuning caches and hosts: what chose the kernel or the layout?",
}
"""What to look at first, by class of finding."""


def _captured(members: Sequence[Roots], captures: CapturedCalls) -> str:
    """Give the folder of a capture of one of the first calls; empty where none was captured."""
    if not any(captures):
        return ""
    for roots in members[:_MAX_ASKED]:  # ranks mostly share their sites
        for position in roots.positions[:MAX_SITES].tolist():
            found = captures_at(roots.rank, position, captures)
            if found:
                return min(found, key=lambda each: each.rank != roots.rank.rank).path
    return ""


def next_step(finding: Finding, site: Site, captured: str = "", reason: str = "") -> str:
    """Name the cheapest experiment that would decide, ready to paste."""
    where = f'ranks="{",".join(map(str, finding.ranks[:4]))}"'
    if site.step >= 0:
        where = f'steps="{site.step}", {where}'
    if captured:
        return f"detlab replay {quote(captured)}"
    advice = _ADVICE.get(finding.finding_class)
    if advice:
        return advice
    if finding.finding_class == "kernel":
        return f"capture the call: {recorder_of(where, str(site))}"
    if finding.evidence == "none":
        return f"record the inputs too: detlab.Recorder(…, {where}, inputs=True)"
    if reason == "contributors":
        return "compare the ranks that contribute too: record or load all of them, and whole files"
    earlier = f"step {site.step - 1}" if site.step > 1 else "the loading of the checkpoint"
    return f"widen the window: record from {earlier}"

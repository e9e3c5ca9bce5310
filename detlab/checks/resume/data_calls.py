"""The data that traces recorded, as sequences over the steps: which batches in which order, and masks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from detlab.checks.result import Verified
from detlab.checks.resume.components import LOSS_MASK, ORDER
from detlab.checks.resume.numbers import since_resume
from detlab.checks.resume.samples import Samples, judge_order, window_of
from detlab.checks.resume.state import Judged
from detlab.checks.resume.words import MORE_COLUMNS, counted, listed
from detlab.comparison.text import PROVES
from detlab.ops import is_constant, is_seeded, makes_fresh_memory, overwrites_target
from detlab.run import Run, spans
from detlab.schema import Evidence, Phase
from detlab.store import RankTrace

_DATA_COLUMNS: Final = ("step", "callee", "call", "out_digest", "evidence", "n_in")


def judge_data(sequences: Sequence[DataSequence], first: int) -> Judged:
    """Judge the data that both runs recorded: what they took at each step, and in which order.

    Where the loss mask alone differs, the samples are the same and the mask was written to.

    Parameters
    ----------
    sequences
        As from `data_sequences`.
    first
        The first step of the resumed run.
    """
    found = Judged()
    masks = [each for each in sequences if "loss_mask" in each.name]
    others = [each for each in sequences if "loss_mask" not in each.name]
    differing = [each for each in others if each.ours != each.theirs]
    wrong = [each for each in masks if each.ours != each.theirs]
    if differing:
        worst = min(differing, key=lambda each: (each.first_difference, each.rank))
        found += _order(worst, [each.name for each in differing])
    elif others:
        found += Judged(verified=(_same(others, ORDER, "the same data in the same order"),))
    if wrong and not differing:
        found += Judged(findings=(_mask(wrong, others, first),))
    elif masks and not wrong:
        found += Judged(verified=(_same(masks, LOSS_MASK, "equal"),))
    return found


def data_sequences(reference: Run, resumed: Run, steps: Collection[int]) -> list[DataSequence]:
    """Give what each recorded data call gave, step by step, on each rank that both runs have.

    Parameters
    ----------
    reference, resumed
        The runs; of the reference all steps, also those before the resume.
    steps
        The steps that both recorded.
    """
    partners = resumed.by_coordinate
    return [
        each
        for place, trace in sorted(reference.by_coordinate.items())
        if place in partners
        for each in _sequences(trace, partners[place], steps)
    ]


@dataclass(frozen=True)
class DataSequence:
    """What one data call gave at each step on one rank.

    Attributes
    ----------
    name, rank
        The call, and its global rank in the reference.
    before
        What the reference took at the steps before those that both recorded.
    ours, theirs
        What both took at the others: folds of digests, by microbatch.
    evidence
        What equality of two of them proves.
    """

    name: str
    rank: int
    before: Mapping[int, tuple[int, ...]]
    ours: Mapping[int, tuple[int, ...]]
    theirs: Mapping[int, tuple[int, ...]]
    evidence: Evidence

    @property
    def first_difference(self) -> int:
        """The first step at which they differ; there is one."""
        return min(step for step in self.ours if self.ours[step] != self.theirs.get(step))


def _sequences(ours: RankTrace, theirs: RankTrace, steps: Collection[int]) -> list[DataSequence]:
    taken, again = (_taken(each) for each in (ours, theirs))
    a, b = _by_call(taken), _by_call(_without_replayed(taken, again, min(steps, default=-1)))
    found = []
    for key in sorted(a.keys() & b.keys()):
        common = {step for step in a[key] if step in b[key] and step in steps}
        if not common:
            continue
        least = min(level for side in (a, b) for step in common for _, level in side[key][step])
        if least <= int(Evidence.STRUCTURE):
            continue
        digests = [
            {step: tuple(digest for digest, _ in side[key][step]) for step in side[key]} for side in (a, b)
        ]
        found.append(
            DataSequence(
                key[0],
                ours.header.rank,
                {step: ids for step, ids in digests[0].items() if 0 <= step < min(common)},
                {step: digests[0][step] for step in common},
                {step: digests[1][step] for step in common},
                Evidence(least),
            )
        )
    return found


_Taken = dict[tuple[str, int], list[tuple[int, int, int]]]
"""Number, digest and evidence of data calls in their order, by name and step."""


def _taken(trace: RankTrace) -> _Taken:
    """Give what each data call gave."""
    found: _Taken = {}
    starts = trace.starts
    for record in np.flatnonzero(trace.index["phase"] == Phase.DATA).tolist():
        rows = trace.columns(int(starts[record]), int(starts[record + 1]), _DATA_COLUMNS)
        for step, callee, call, digest, evidence, n_in in zip(
            *(rows[name].tolist() for name in _DATA_COLUMNS), strict=True
        ):
            called = trace.names.callees[callee]
            if n_in or _is_made_up(called.op):  # computed here: what comes in from outside takes no tensor
                continue
            of_step = found.setdefault((called.scope or called.op, step), [])
            of_step.append((call, digest, evidence & 15))
    return found


def _without_replayed(ours: _Taken, theirs: _Taken, first: int) -> _Taken:
    """Leave out what a loader took before the data of the first step after a resume.

    One that cannot begin at a place takes all that was consumed once more and drops it. What the step then
    used is what was taken last.
    """
    found = dict(theirs)
    for key, calls in theirs.items():
        known = ours.get(key, [])
        if key[1] == first and 0 < len(known) < len(calls):
            used = calls[-len(known) :]
            found[key] = [(mine[0], *his[1:]) for mine, his in zip(known, used, strict=True)]
    return found


def _by_call(taken: _Taken) -> dict[tuple[str, int], dict[int, list[tuple[int, int]]]]:
    """Give digest and evidence of data calls by their name and number, step by step."""
    found: dict[tuple[str, int], dict[int, list[tuple[int, int]]]] = {}
    for (name, step), calls in taken.items():
        for call, digest, level in calls:
            found.setdefault((name, call), {}).setdefault(step, []).append((digest, level))
    return found


def _is_made_up(op: str) -> bool:
    """Say whether a call gives what its program says, such as zeros, and no data."""
    return is_constant(op) or makes_fresh_memory(op) or (overwrites_target(op) and not is_seeded(op))


def _order(each: DataSequence, names: Sequence[str]) -> Judged:
    """Judge the order of the data by the steps at which the reference took them."""
    seen: dict[tuple[int, ...], str] = {}
    for step, ids in sorted({**each.before, **each.ours}.items()):
        seen.setdefault(ids, f"of step {step}")
    unseen: dict[tuple[int, ...], str] = {}
    for ids in each.theirs.values():
        if ids not in seen:
            unseen.setdefault(ids, f"unknown {len(unseen) + 1}")
    known = seen | unseen
    ours = Samples(
        tuple((known[ids],) for _, ids in sorted({**each.before, **each.ours}.items())),
        tuple(sorted({**each.before, **each.ours})),
    )
    theirs = Samples(
        tuple((known[ids],) for _, ids in sorted(each.theirs.items())), tuple(sorted(each.theirs))
    )
    judged = judge_order(window_of(ours, theirs, None), "batches", PROVES[each.evidence])
    where = f"rank {each.rank}, {each.name}"
    changed = tuple(
        row | {"where": f"{where}, {row['where']}", "names": sorted(set(names))[:20]}
        for row in judged.findings
    )
    return replace(judged, findings=changed)


def _same(parts: Sequence[DataSequence], component: str, what: str) -> Verified:
    steps = sorted({step for each in parts for step in each.ours})
    names = sorted({each.name for each in parts})
    least = min(each.evidence for each in parts)
    return Verified(component, f"{listed(names, 4)} at steps {spans(steps)}: {what}", PROVES[least])


def _mask(wrong: Sequence[DataSequence], others: Sequence[DataSequence], first: int) -> dict[str, Any]:
    step = min(each.first_difference for each in wrong)
    ranks = sorted({each.rank for each in wrong if each.first_difference == step})
    equal = sorted({each.name for each in others})
    return {
        **dict.fromkeys(MORE_COLUMNS),
        "component": LOSS_MASK,
        "severity": "error",
        "found": f"{wrong[0].name} differs first at {since_resume(step, first)}, on "
        f"{counted(len(ranks), 'rank')}" + (f"; {listed(equal, 4)} equal at every step" if equal else ""),
        "expected": "the mask that the reference used",
        "where": f"rank {ranks[0]}, step {step}",
        "why": "the samples are the same and the mask is not: a cached mask that is modified in place "
        "depends "
        "on what was served before, and a resumed run begins with a fresh one",
        "next": "copy the mask before it is modified",
        "source": "NVIDIA/Megatron-LM#1269",
        "stage": "data",
        "kind": "different",
        "names": sorted({each.name for each in wrong}),
        "num_leaves": sum(each.ours[s] != each.theirs[s] for each in wrong for s in each.ours),
        "of_leaves": sum(len(each.ours) for each in wrong),
        "first_step": step,
        "evidence": PROVES[min(each.evidence for each in wrong)],
    }

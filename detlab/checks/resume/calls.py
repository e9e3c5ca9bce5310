"""The calls of the steps after a resume, judged by `detlab.compare`, with the state that explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from detlab.checks.result import Problem, Verified
from detlab.checks.resume.components import (
    FP8,
    LOSS_MASK,
    LOSS_SCALE,
    OPTIMIZER,
    ORDER,
    PARAMETERS,
    POSITION,
    RNG,
)
from detlab.checks.resume.data_calls import DataSequence, data_sequences, judge_data
from detlab.checks.resume.events import at_steps
from detlab.checks.resume.numbers import refuse_local_count, since_resume
from detlab.checks.resume.state import Judged
from detlab.checks.resume.words import MORE_COLUMNS, counted, listed
from detlab.comparison.findings import Finding
from detlab.comparison.pairwise import compare
from detlab.comparison.result import Comparison
from detlab.comparison.text import PROVES
from detlab.errors import NotComparable
from detlab.ops import is_seeded
from detlab.run import Run, spans
from detlab.schema import Coordinate, Evidence, Phase, Verdict
from detlab.store import RankTrace

CALLS: Final = "calls"
_PHASES: Final = {"backward": "gradients", "grad_reduce": "gradients", "optimizer": "update"}


@dataclass(frozen=True)
class Calls:
    """The calls after a resume.

    Attributes
    ----------
    cmp
        The comparison of the steps that both runs recorded.
    first
        The first step of the resumed run.
    reference, resumed
        The runs without their recorded states, all steps of the reference.
    """

    cmp: Comparison
    first: int
    reference: Run
    resumed: Run


def compare_calls(reference: Run, resumed: Run, offset: int | None) -> Calls:
    """Compare the calls of the steps that both runs recorded.

    Raises
    ------
    NotComparable
        The runs have different layouts, no step in common, or the resumed one seems to count its own steps.
    """
    a, b = reference, resumed
    steps = [step for step in b.steps if step >= 0]
    if not steps:
        raise NotComparable(
            f"{b.label} recorded no call of a step after the resume.", "record the steps after it too"
        )
    refuse_local_count(b.label, steps[0], offset)
    if offset:
        raise NotComparable(
            f"the steps of {b.label} are moved by {offset}, and a trace keeps its numbers.",
            "record it with its global step: Recorder(…, start_step=…)",
        )
    common = sorted({step for step in a.steps if step >= 0} & set(steps))
    if not common:
        raise NotComparable(
            f"{a.label} recorded steps {spans(a.steps)} and {b.label} {spans(b.steps)}: no step is in both.",
            "record the same steps; a resumed run needs its global step: Recorder(…, start_step=…)",
        )
    return Calls(compare(at_steps(a, common), at_steps(b, common)), steps[0], a, b)


def sequences_of(calls: Calls) -> list[DataSequence]:
    """Give what each recorded data call gave, step by step."""
    return data_sequences(calls.reference, calls.resumed, calls.cmp.steps)


def judge_calls(calls: Calls, before: Sequence[Mapping[str, Any]]) -> tuple[Judged, list[Problem]]:
    """Say what the calls after the resume show.

    A difference that a state explains, which is known to differ already, is told as propagated from it: its
    op is not blamed.

    Parameters
    ----------
    calls
        The comparison.
    before
        Findings about the state and the data.
    """
    cmp = calls.cmp
    problems = [Problem(where, what) for where, what in cmp.problems]
    order = judge_data(sequences_of(calls), calls.first)
    told = [row for row in (*before, *order.findings) if row["severity"] == "error"]
    has_data = any(row["component"] in (ORDER, LOSS_MASK) for row in told)
    only_before = _differs_before_the_resume_alone(calls)
    findings = [
        _before_the_resume(root) if _is_before(root, calls.first) else _finding(root, calls, told)
        for root in cmp.roots
        if not (root.finding_class == "data" and has_data and _is_data(root))
    ]
    if cmp.verdict == "diverged" and not findings and not order.findings:
        findings.append(_without_root(calls))
    verified: tuple[Verified, ...] = order.verified
    if (cmp.verdict != "diverged" or only_before) and cmp.num_calls > cmp.num_without_evidence:
        num = (
            cmp.num_calls - cmp.num_without_evidence - cmp.counts[Verdict.ONLY_A] - cmp.counts[Verdict.ONLY_B]
        )
        on = f"on {counted(cmp.num_ranks, 'rank')}"
        said = f"{counted(num, 'call')} of steps {spans(list(cmp.steps))} equal {on}"
        verified += (Verified(CALLS, said, PROVES[cmp.evidence]),)
    first = f"calls: resume is step {calls.first}, the first of the resumed run"
    untested = cmp.counts[Verdict.RECEIVER]
    takes = "takes" if untested == 1 else "take"
    notes = (
        first,
        f"{counted(untested, 'call')} after the first difference {takes} differing inputs: receivers, "
        "untested",
    )
    return Judged(
        order.findings + tuple(findings), verified, notes=notes if untested else notes[:1]
    ), problems


def _is_before(root: Finding, first: int) -> bool:
    """Say whether a root is what one run alone did between the resume and the first forward after it."""
    return root.finding_class == "structure" and root.phase == "data" and root.steps == (first,)


def _differs_before_the_resume_alone(calls: Calls) -> bool:
    """Say whether nothing differs but calls of one run before the first forward after the resume."""
    for rank in calls.cmp.ranks:
        positions = rank.divergent()
        if not len(positions):
            continue
        facts = rank.events(positions, ("step", "phase"))
        alone = np.isin(rank.verdicts[positions], (Verdict.ONLY_A, Verdict.ONLY_B))
        if not (alone & (facts["step"] == calls.first) & (facts["phase"] == Phase.DATA)).all():
            return False
    return True


def _before_the_resume(root: Finding) -> dict[str, Any]:
    """Tell of calls that belong to the end of the step before, or to the start of the resumed run."""
    return {
        **dict.fromkeys(MORE_COLUMNS),
        "component": CALLS,
        "severity": "note",
        "found": f"{root.op}: {counted(root.num_sites, 'call')} of one run alone before the first "
        "forward after the "
        "resume: the end of the step before, such as reading its loss, or the start of the resumed run",
        "where": root.sites[0],
        "stage": CALLS,
        "kind": "boundary",
        "names": list(root.sites),
        "num_leaves": root.num_sites,
        "first_step": root.steps[0],
        "evidence": root.evidence,
    }


def _is_data(root: Finding) -> bool:
    return root.phase == "data"


def _component(root: Finding) -> str:
    where = " ".join([root.op, *root.scopes])
    if root.finding_class == "data":
        return LOSS_MASK if "loss_mask" in where else ORDER
    if root.finding_class == "rng":
        return RNG
    return _PHASES.get(root.phase, "activations")


def _finding(root: Finding, calls: Calls, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write a root of the comparison, and the state that explains it where one does."""
    state = next((row for row in told if _explains(row, root)), None)
    at = since_resume(root.steps[0], calls.first)
    place = f"{root.op} in {root.scopes[0] or 'no module'} ({root.phase})"
    row = {
        **dict.fromkeys(MORE_COLUMNS),
        "component": _component(root),
        "severity": "error",
        "found": f"{root.finding_class}: {place} first differs at {at}, "
        f"on {counted(len(root.ranks), 'rank')}",
        "expected": "every call after the resume gives the bits of the reference",
        "where": root.sites[0],
        "why": root.why,
        "next": root.next,
        "stage": CALLS,
        "kind": "different",
        "names": list(root.sites),
        "num_leaves": root.num_sites,
        "first_step": root.steps[0],
        "evidence": root.evidence,
    }
    if state is None and not told:
        return row
    if state is None:
        return row | {
            "severity": "warning",
            "why": f"{root.why}; but a state differs ({told[0]['component']}), and whether this call reads "
            "it was not recorded: untested until that is restored",
            "next": "restore the state first, then compare again",
        }
    cause = listed(list(state["names"] or []), 2) or str(state["component"])
    return row | {
        "severity": "note",
        "found": f"propagated from state: {place} is the first call that shows it, at {at}",
        "kind": "propagated",
        "why": f"it takes a state that differs ({cause}): no nondeterminism of the call",
        "next": "",
    }


def _explains(row: Mapping[str, Any], root: Finding) -> bool:
    """Say whether a difference of state comes into a call by what is recorded of both.

    A call whose recorded inputs are all equal can still take the scales of FP8, which no argument shows;
    every other state comes in by a tensor, a number or a generator, and is no excuse for it.
    """
    component = str(row["component"])
    names = [str(name) for name in row["names"] or ()]
    has_state_inside = any(_is_inside(scope, name) for scope in root.scopes for name in names)
    if component == FP8:
        return has_state_inside
    if component == RNG:
        return root.finding_class == "rng" or is_seeded(root.op)
    if root.is_made_here:
        return False
    if component in (ORDER, LOSS_MASK, POSITION):
        return root.phase in ("data", "forward")
    if component in (*OPTIMIZER, "scheduler", LOSS_SCALE):
        return root.phase == "optimizer" or root.finding_class in ("state", "upstream")
    return component == PARAMETERS and has_state_inside


def _is_inside(scope: str, name: str) -> bool:
    """Say whether a state belongs to a module; both may stand below a wrapper of the other."""
    return bool(scope) and f".{scope}." in f".{name}."


def _without_root(calls: Calls) -> dict[str, Any]:
    counts = {
        verdict: num for verdict, num in calls.cmp.counts.items() if num and verdict is not Verdict.MATCH
    }
    said = ", ".join(f"{num:,} {verdict.name.lower()}" for verdict, num in counts.items())
    return {
        **dict.fromkeys(MORE_COLUMNS),
        "component": CALLS,
        "severity": "error",
        "found": f"the calls after the resume differ: {said}",
        "stage": CALLS,
        "kind": "different",
        "next": "detlab compare A B",
    }


def with_one_bit(calls: Calls) -> Comparison | None:
    """Compare one recorded segment with itself but for one bit of one output: a control of the comparison.

    Returns
    -------
    The comparison; None where no call has evidence of its output.
    """
    for trace in calls.cmp.b.ranks:
        for record in np.argsort(trace.index["num_rows"], kind="stable").tolist():
            changed = _flipped(trace, int(record))
            if changed is not None:
                place: Coordinate = trace.header.coordinate
                assert place == changed[1].header.coordinate
                runs = [
                    replace(calls.cmp.b, ranks=(each,), label=name)
                    for each, name in zip(changed, "ab", strict=True)
                ]
                return compare(*runs)
    return None


def _flipped(trace: RankTrace, record: int) -> tuple[RankTrace, RankTrace] | None:
    """Give a segment as a trace, and the same with one bit of an output flipped."""
    from detlab.schema import EVENT_DTYPE
    from detlab.store import NameTables, memory_trace

    start, stop = trace.starts[record], trace.starts[record + 1]
    columns = trace.columns(int(start), int(stop), EVENT_DTYPE.names or ())
    rows = np.zeros(int(stop - start), EVENT_DTYPE)
    for name in EVENT_DTYPE.names or ():
        rows[name] = columns[name]
    proven = np.flatnonzero(
        (rows["evidence"] & 15 >= Evidence.SCREEN) & (rows["flags"] == 0) & (rows["n_out"] > 0)
    )
    if not len(proven):
        return None
    names = NameTables()
    for callee in trace.names.callees:
        names.callee_id(callee)
    for meta in trace.names.metas:
        names.meta_id(meta)
    other = rows.copy()
    other["out_digest"][proven[0]] ^= np.uint64(1)
    return memory_trace(trace.header, names, rows), memory_trace(trace.header, names, other)

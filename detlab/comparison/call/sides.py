"""All inputs of one call together, or all its outputs: what their fold says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from detlab.comparison.call.recorded import Recorded
from detlab.comparison.call.tensors import SOFT, TensorPair, other_kinds
from detlab.schema import Evidence, Flag, Side


@dataclass(frozen=True, slots=True)
class SideState:
    """All inputs of a call together, or all its outputs.

    Attributes
    ----------
    same, evidence, why
        As in `TensorPair`.
    num_tensors
        Number of tensors, in the run that has more of them.
    num_parts
        Number of tensors, scalar folds and generator states that either run has.
    num_differing, num_unsaid
        How many of them differ, and of how many nothing can be said.
    is_weak
        Whether equality rests on a weak digest.
    is_open
        Whether some input was not recorded.
    """

    same: bool | None
    evidence: str
    why: str = ""
    num_tensors: int = 0
    num_parts: int = 0
    num_differing: int = 0
    num_unsaid: int = 0
    is_weak: bool = False
    is_open: bool = False

    def to_json(self) -> dict[str, Any]:
        """Give the state as JSON has it."""
        return asdict(self)


def side_state(side: Side, a: Recorded | None, b: Recorded | None, pairs: Sequence[TensorPair]) -> SideState:
    """Say what is known of all inputs, or of all outputs, as the verdict takes them: by their fold."""
    names = ("output", "results") if side is Side.OUTPUT else ("input", "scalars", "generator")
    mine = [pair for pair in pairs if pair.side in names]
    same, level, why = fold_statement(side, a, b)
    flag = Flag.WEAK_OUTPUT if side is Side.OUTPUT else Flag.WEAK_INPUT
    flags = (a.event["flags"] if a else 0) | (b.event["flags"] if b else 0)
    return SideState(
        same=same,
        evidence=level.name.lower(),
        why=why,
        num_tensors=max(each.event["n_out" if side is Side.OUTPUT else "n_in"] for each in (a, b) if each),
        num_parts=len(mine),
        num_differing=sum(pair.same is False for pair in mine),
        num_unsaid=sum(pair.same is None for pair in mine),
        is_weak=same is True and bool(flags & flag or any(pair.is_weak for pair in mine)),
        is_open=side is Side.INPUT and bool(flags & Flag.OPEN_INPUTS),
    )


def fold_statement(side: Side, a: Recorded | None, b: Recorded | None) -> tuple[bool | None, Evidence, str]:
    """Say whether one side as a whole is the same in both runs, on what evidence, and why not."""
    if a is None or b is None:
        return None, Evidence.NONE, f"only run {'b' if a is None else 'a'} makes this call"
    if a.meta.algorithm != b.meta.algorithm:
        return None, Evidence.NONE, other_kinds(a, b)
    shift, name = (0, "out_digest") if side is Side.OUTPUT else (4, "in_digest")
    levels = [Evidence(each.event["evidence"] >> shift & 15) for each in (a, b)]
    level, equal = min(levels), a.event[name] == b.event[name]
    if level == Evidence.NONE:
        return None, level, _no_evidence(side, levels, (a, b))
    if level == Evidence.STRUCTURE and equal:
        return None, Evidence.NONE, "only shapes and dtypes were recorded, no values"
    if level == Evidence.STATISTIC and not equal:
        return None, Evidence.NONE, SOFT
    return equal, level, ""


def _no_evidence(side: Side, levels: Sequence[Evidence], runs: Sequence[Recorded]) -> str:
    what = "outputs" if side is Side.OUTPUT else "inputs"
    if max(levels) != Evidence.NONE:
        return f"run {'b' if levels[1] == Evidence.NONE else 'a'} has no evidence of its {what}"
    if any(at == side for run in runs for at, _ in run.rows):
        return f"not all {what} have a digest"
    return f"its {what} have no digest"

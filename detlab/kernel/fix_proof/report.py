"""What a fix proof saw: a verdict, one table of three rows, and the same as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from textwrap import wrap
from typing import Any, Final

from detlab.kernel.statistics import ConditionResult, percent

SCHEMA: Final = "detlab.fix_proof/1"


class FixVerdict(StrEnum):
    """What the trials say of a fix."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Pair:
    """One output with the fix beside the same one without it.

    Attributes
    ----------
    problem
        Why the two cannot be compared; empty when they can.
    elements_different, max_ulp
        Between the first result of each side, see `detlab.kernel.differences.OutputResult`.
    is_equal
        Whether they are the same bits.
    """

    index: int
    problem: str
    elements_different: int
    max_ulp: int | None
    is_equal: bool

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        if self.is_equal:
            return "the same bits"
        ulp = "" if self.max_ulp is None else f", up to {self.max_ulp:,} ULP"
        return f"{self.elements_different:,} elements differ{ulp}"


@dataclass(frozen=True, slots=True, repr=False)
class FixProof:
    """The trials of a call without and with a fix.

    Attributes
    ----------
    op, site
        Which call it was.
    verdict, why
        The word, and the sentence with its numbers and its bound.
    unfixed, fixed
        The trials of each side.
    pairs
        One row an output that both sides give.
    is_among_unfixed
        Whether a result with the fix is bit by bit one of those without it; None without a trial.
    spread_ulp
        How far the results without the fix lie from their first, in ULP; None when no two numbers differ.
    chance_of_luck
        How likely so clean a side would be if the fix did nothing, see
        `detlab.kernel.fix_proof.chance_of_luck`; None when results differ with the fix.
    input_digests
        Of every tensor among the arguments: both sides began from these bits in every trial.
    problems
        What the reader must know before believing the rest, one sentence each.
    """

    op: str
    site: str
    verdict: FixVerdict
    why: str
    unfixed: ConditionResult
    fixed: ConditionResult
    pairs: tuple[Pair, ...]
    is_among_unfixed: bool | None
    spread_ulp: int | None
    chance_of_luck: float | None
    input_digests: tuple[int, ...]
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 when the fix holds as far as the trials reach, 1 when it fails, 2 when they prove nothing."""
        return {FixVerdict.HOLDS: 0, FixVerdict.FAILS: 1}.get(self.verdict, 2)

    def to_json(self) -> dict[str, Any]:
        """Give the document that ``detlab/schemas/fix_proof.json`` describes."""
        names = ("op", "site", "why", "is_among_unfixed", "spread_ulp", "chance_of_luck")
        told: dict[str, Any] = {"schema": SCHEMA, "verdict": self.verdict.value}
        return told | {
            **{name: getattr(self, name) for name in names},
            "unfixed": _row(self.unfixed),
            "fixed": _row(self.fixed),
            "pairs": [asdict(pair) for pair in self.pairs],
            "input_digests": [f"{digest:016x}" for digest in self.input_digests],
            "problems": [{"where": self.site, "what": problem} for problem in self.problems],
        }

    def __repr__(self) -> str:
        lines = [*_wrapped("verdict", f"{self.verdict}: {self.why}"), f"call      {self.op} at {self.site}"]
        lines.append(f"inputs    {len(self.input_digests)} tensors, the same bits before every trial of both")
        lines += _table(self)
        if self.chance_of_luck is not None and self.unfixed.distinct > 1:
            luck = f"{self.chance_of_luck:.2g}"
            lines.append(f"luck      if the fix did nothing, so clean a side had a probability of {luck}")
        if self.is_among_unfixed and len(self.pairs) == 1:
            lines.append("note      the result with the fix is one of the unfixed results")
        lines += [line for problem in self.problems for line in _wrapped("note", problem)]
        return "\n".join(lines)


def _wrapped(name: str, text: str) -> list[str]:
    return wrap(text, 100, initial_indent=f"{name:<10}", subsequent_indent=" " * 10)


def _row(row: ConditionResult) -> dict[str, Any]:
    ends = None if row.interval_95 is None else list(row.interval_95)
    return asdict(row) | {"interval_95": ends}


def _table(proof: FixProof) -> list[str]:
    head = ("", "trials", "distinct", "modal", "others at 95 %", "apart")
    spread = "" if proof.spread_ulp is None else f"up to {proof.spread_ulp:,} ULP"
    unfixed = _cells("unfixed vs unfixed", proof.unfixed, spread)
    same = "the same bits" if proof.fixed.trials and proof.fixed.distinct == 1 else ""
    rows = [head, unfixed, _cells("fixed vs fixed", proof.fixed, same)]
    for pair in proof.pairs:
        name = "fixed vs unfixed" + (f", output {pair.index}" if len(proof.pairs) > 1 else "")
        rows.append((name, "", "", "", "", str(pair)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers, row[5]]).rstrip())
    sides = (("unfixed", proof.unfixed), ("fixed", proof.fixed))
    return [*lines, *(f"{name:<9} {row.name}" for name, row in sides)]


def _cells(name: str, row: ConditionResult, apart: str) -> tuple[str, ...]:
    bound = "" if row.upper_bound_95 is None else f"below {percent(row.upper_bound_95)}"
    if row.upper_bound_95 is None and row.interval_95 is not None:
        bound = " to ".join(map(percent, row.interval_95))
    share = percent(row.modal_share) if row.trials else ""
    return name, f"{row.trials:,}", f"{row.distinct:,}", share, bound, apart

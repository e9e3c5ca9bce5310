"""What a replay saw, in one screen and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from detlab.kernel.differences import OutputResult
from detlab.kernel.statistics import ConditionResult, percent


class ReplayClass(StrEnum):
    """What the trials show."""

    RACE = "race"
    SELECTION = "selection"
    UNINITIALISED = "uninitialised"
    NOT_SEEN = "not_seen"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, repr=False)
class ReplayReport:
    """The trials of one captured call.

    Attributes
    ----------
    op, site
        Which call it was.
    outcome
        The class of what was seen.
    conditions
        One row per condition.
    outputs
        One row per output, then per mutated argument.
    traced_output_seen
        Whether what training saw is among the results; None when the capture does not say what that was.
    problems
        What the reader must know before believing the rest, one sentence each.
    """

    op: str
    site: str
    outcome: ReplayClass
    conditions: tuple[ConditionResult, ...]
    outputs: tuple[OutputResult, ...]
    traced_output_seen: bool | None
    problems: tuple[str, ...]

    @property
    def num_distinct(self) -> int:
        """Number of different results under the condition that gave most; 0 without a trial."""
        return max((row.distinct for row in self.conditions), default=0)

    @property
    def exit_code(self) -> int:
        """0 when nothing was seen, 1 when something was, 2 when the replay proves nothing."""
        return {ReplayClass.NOT_SEEN: 0, ReplayClass.INVALID: 2}.get(self.outcome, 1)

    def to_json(self) -> dict[str, object]:
        """Give the document that ``detlab/schemas/replay.json`` describes."""
        return {
            "schema": "detlab.replay/1",
            "class": self.outcome.value,
            "conditions": [asdict(row) for row in self.conditions],
            "outputs": [asdict(row) for row in self.outputs],
            "traced_output_seen": self.traced_output_seen,
            "problems": [{"where": self.site, "what": problem} for problem in self.problems],
        }

    def __repr__(self) -> str:
        rows = [("verdict", f"{self.outcome.replace('_', ' ')}: {self._verdict()}")]
        rows += [("call", f"{self.op} at {self.site}")]
        rows += [(f"output {row.index}", _output_text(row)) for row in self.outputs if row.distinct > 1]
        if self.traced_output_seen is not None:
            rows.append(("training", f"its result is {'' if self.traced_output_seen else 'not '}among these"))
        rows += [("note", problem) for problem in self.problems]
        return "\n".join(f"{name:<9} {text}" for name, text in rows)

    def _verdict(self) -> str:
        if not self.conditions:
            return "no trial was made"
        return "; ".join(map(_condition_text, self.conditions))


def _condition_text(row: ConditionResult) -> str:
    trials = f"{row.trials:,} trial{'' if row.trials == 1 else 's'} in this process ({row.name})"
    if row.upper_bound_95 is None:
        share = percent(row.modal_share)
        return (
            f"{row.distinct:,} distinct results of the same inputs in {trials}, the most frequent in {share}"
        )
    return f"no mismatch in {trials}; a rate above {percent(row.upper_bound_95)} is excluded at 95 %"


def _output_text(row: OutputResult) -> str:
    parts = [f"{row.distinct:,} distinct, {row.elements_different:,} elements differ"]
    if row.max_ulp is not None:
        parts.append(f"by up to {row.max_ulp:,} ULP")
    if row.quantum_log2 is not None:
        parts.append(f"always by a multiple of 2^{row.quantum_log2}")
    return ", ".join(parts)

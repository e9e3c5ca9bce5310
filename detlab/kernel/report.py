"""What a replay saw, in one screen and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from detlab.kernel.differences import OutputResult
from detlab.kernel.statistics import ConditionResult, percent


class ReplayClass(StrEnum):
    """What the trials show; under the conditions of training, its recorded result counts as one more."""

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
    other_conditions
        In what the conditions of training differ from those of the replay, in a few words; empty when they
        are the same as far as the capture records them.
    problems
        What the reader must know before believing the rest, one sentence each.
    """

    op: str
    site: str
    outcome: ReplayClass
    conditions: tuple[ConditionResult, ...]
    outputs: tuple[OutputResult, ...]
    traced_output_seen: bool | None
    other_conditions: str
    problems: tuple[str, ...]

    @property
    def num_distinct(self) -> int:
        """Number of different results under the condition that gave most; 0 without a trial."""
        return max((row.distinct for row in self.conditions), default=0)

    @property
    def differs_from_training(self) -> bool:
        """Whether training recorded another result of the same inputs under the same conditions."""
        return self.traced_output_seen is False and not self.other_conditions

    @property
    def exit_code(self) -> int:
        """0 when nothing was seen, 1 when something was, 2 when the replay proves nothing."""
        return {ReplayClass.NOT_SEEN: 0, ReplayClass.INVALID: 2}.get(self.outcome, 1)

    def to_json(self) -> dict[str, object]:
        """Give the document that ``detlab/schemas/replay.json`` describes."""
        training = [f"training: {' '.join(self._training())}"] if self.traced_output_seen is False else []
        return {
            "schema": "detlab.replay/1",
            "class": self.outcome.value,
            "conditions": [asdict(row) for row in self.conditions],
            "outputs": [asdict(row) for row in self.outputs],
            "traced_output_seen": self.traced_output_seen,
            "problems": [{"where": self.site, "what": problem} for problem in [*training, *self.problems]],
        }

    def __repr__(self) -> str:
        rows = [("verdict", self._verdict())]
        rows += [("call", [f"{self.op} at {self.site}"])]
        rows += [(f"output {row.index}", [_output_text(row)]) for row in self.outputs if row.distinct > 1]
        rows += [("training", self._training())] if self.traced_output_seen is not None else []
        rows += [("note", [problem]) for problem in self.problems]
        lines = [(name, text) for name, texts in rows for name, text in _with_name(name, texts)]
        return "\n".join(f"{name:<9} {text}" for name, text in lines)

    def _verdict(self) -> list[str]:
        """Give the verdict and its bound, one line each."""
        if not self.conditions:
            return [f"{self.outcome}: no trial was made"]
        texts = [text for row in self.conditions for text in _condition_texts(row)]
        if self.differs_from_training and self.num_distinct == 1 and self.exit_code == 1:
            found = "differs from training: equal inputs and conditions gave another result there;"
            return [found, *texts]
        return [f"{self.outcome.replace('_', ' ')}: {texts[0]}", *texts[1:]]

    def _training(self) -> list[str]:
        """Say what the result that training recorded means, one line each."""
        if self.traced_output_seen:
            return ["its result is among these"]
        if self.other_conditions:
            return [
                "its result is not among these: other conditions, no evidence either way;",
                self.other_conditions,
            ]
        if self.num_distinct > 1:
            return ["its result is one more, not among these, under the same conditions"]
        return [
            "its result is not among these, under the same conditions as far as the capture says:",
            "a race too rare for these trials, a choice made once a process, memory that nobody wrote,",
            "or a condition that no capture records",
        ]


def _with_name(name: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Put the name before the first of several lines only."""
    return [("" if number else name, text) for number, text in enumerate(texts)]


def _condition_texts(row: ConditionResult) -> list[str]:
    trials = f"{row.trials:,} trial{'' if row.trials == 1 else 's'} in this process ({row.name})"
    if row.upper_bound_95 is None:
        return [
            f"{row.distinct:,} distinct results of the same inputs in {trials},",
            f"the most frequent in {percent(row.modal_share)}",
        ]
    return [f"no mismatch in {trials};", f"a rate above {percent(row.upper_bound_95)} is excluded at 95 %"]


def _output_text(row: OutputResult) -> str:
    parts = [f"{row.distinct:,} distinct, {row.elements_different:,} elements differ"]
    if row.max_ulp is not None:
        parts.append(f"by up to {row.max_ulp:,} ULP")
    if row.quantum_log2 is not None:
        parts.append(f"always by a multiple of 2^{row.quantum_log2}")
    return ", ".join(parts)

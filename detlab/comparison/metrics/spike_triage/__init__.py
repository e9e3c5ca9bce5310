"""Triage: what went wrong in a run, whether it recurs, and what that says of its cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, Final

from detlab.comparison.metrics.spike_triage.conclusions import advise, conclude, explain
from detlab.comparison.metrics.spike_triage.notes import (
    tell_of_metrics,
    tell_of_others,
    tell_of_validations,
    with_numbers,
)
from detlab.comparison.metrics.spike_triage.rules import (
    NOT_COVERED,
    OTHER_RECIPE,
    Outcome,
    attempt_of,
    find_events,
    judge_attempt,
    own_attempts,
)
from detlab.comparison.metrics.spike_triage.text import summary
from detlab.comparison.metrics.spikes.events import Event
from detlab.comparison.metrics.spikes.series import kinds_of_names, record_steps
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run

Place = str | PathLike[str]
SCHEMA: Final = "detlab.triage/1"
_TRIED: Final = 10
"""So many events are held against the other runs to find one that they say something of."""


@dataclass(frozen=True, eq=False, repr=False)
class Triage:
    """What went wrong in a run, and what other passes over the same steps say of it.

    Attributes
    ----------
    run
        The run.
    spikes
        Everything that went wrong, by step: spikes, NaN and Inf, losses of zero or not printed.
    main
        The one that the conclusion is about; None: nothing went wrong.
    outcomes
        What each other run, and each later pass of the same run, says of it.
    conclusion
        ``deterministic``, ``samples``, ``recurs``, ``not reproduced``, ``diverged before onset``,
        ``not enough evidence`` or ``no spike``.
    why, next
        Sentences.
    notes
        What to know of the metrics: which say nothing, and where.
    problems
        (where, what) for each thing that is missing or damaged.
    """

    run: Run
    spikes: tuple[Event, ...]
    main: Event | None
    outcomes: tuple[Outcome, ...]
    conclusion: str
    why: str
    next: str
    notes: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]

    @cached_property
    def coverage(self) -> dict[str, Any]:
        """What was looked at: ``metrics``, number of ``records``, ``first_step`` and ``last_step``."""
        steps = record_steps(self.run.metrics)
        return {
            "metrics": list(kinds_of_names(with_numbers(self.run.metrics))),
            "records": len(steps),
            "first_step": int(steps[0]) if len(steps) else None,
            "last_step": int(steps[-1]) if len(steps) else None,
        }

    @property
    def exit_code(self) -> int:
        """0: nothing went wrong; 1: something did; 2: nothing did in what could be read of the run."""
        return 1 if self.spikes else 2 * bool(self.run.problems)

    def __repr__(self) -> str:
        return summary(self)

    def to_json(self) -> dict[str, Any]:
        """Give the triage as JSON, following ``schemas/triage.json``."""
        return {
            "schema": SCHEMA,
            "run": self.run.label,
            "spikes": [each.to_json() for each in self.spikes],
            "main": None if self.main is None else self.spikes.index(self.main),
            "conclusion": self.conclusion,
            "why": self.why,
            "next": self.next,
            "coverage": self.coverage,
            "reruns": [_outcome_json(each) for each in self.outcomes],
            "notes": list(self.notes),
            "problems": [{"where": where, "what": what} for where, what in self.problems],
        }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    first = outcome.first
    differs = None if first.step is None else {"step": first.step, "metrics": list(first.names)}
    return {
        "run": outcome.name,
        "recurs": outcome.recurs,
        "onset": None if outcome.event is None else outcome.event.onset,
        "first_difference": differs,
        "steps_common": first.num_common,
        "evidence": first.evidence,
    }


def triage(
    run: Run | Place | Sequence[Place],
    reference: Run | Place | Sequence[Place] | None = None,
    reruns: Sequence[Run | Place] = (),
) -> Triage:
    """Say what went wrong in a run, from its step metrics alone, and what it may come from.

    Parameters
    ----------
    run
        The run, or its logs.
    reference
        A run of the same recipe that it is held against, such as a good one of the day before.
    reruns
        Other runs over the same steps with the same data and recipe, such as resumed from a checkpoint. Later
        passes of the same run, after a restart, are taken as such by themselves.

    Raises
    ------
    InputError
        The run has no number of a loss or norm, and no message that a result is not finite.
    """
    loaded = as_run(run)
    others = [as_run(each) for each in ([] if reference is None else [reference]) + list(reruns)]
    spikes = find_events(loaded)
    if not spikes and not kinds_of_names(with_numbers(loaded.metrics)):
        raise InputError(
            f"{loaded.label} has no loss and no norm among its metrics.",
            "give the log of the rank that prints the steps; Megatron prints them on the last one",
        )
    main, outcomes = _choose(loaded, spikes, others)
    conclusion = conclude(main, outcomes)
    return Triage(
        loaded,
        tuple(spikes),
        main,
        tuple(outcomes),
        conclusion,
        explain(conclusion, main, outcomes),
        advise(loaded, main, conclusion, outcomes),
        (
            *tell_of_validations(loaded),
            *tell_of_others(loaded, main, others),
            *tell_of_metrics(loaded.metrics, spikes),
        ),
        tuple((each.label, what) for each in [loaded, *others] for what in each.problems),
    )


def _choose(run: Run, spikes: Sequence[Event], others: Sequence[Run]) -> tuple[Event | None, list[Outcome]]:
    """Choose the first event that other passes say something of, else the first that is sure."""
    order = sorted(spikes, key=lambda each: each.confidence == "low")
    chosen: tuple[Event | None, list[Outcome]] = (None, [])
    for event in order[:_TRIED]:
        attempts = [*own_attempts(run, event, spikes), *(attempt_of(run, each, event) for each in others)]
        outcomes = [judge_attempt(run, event, each) for each in attempts]
        if chosen[0] is None:
            chosen = event, outcomes
        if any(each.recurs not in (NOT_COVERED, OTHER_RECIPE) for each in outcomes):
            return event, outcomes
    return chosen

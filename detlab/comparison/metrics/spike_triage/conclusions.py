"""What follows from the outcomes of a triage: one word, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from detlab.comparison.metrics.spike_triage.recording_window import recording_window
from detlab.comparison.metrics.spike_triage.rules import (
    EQUAL,
    NEAR,
    NO,
    NOT_COVERED,
    OTHER_RECIPE,
    OTHER_VALUES,
    RECURS,
    SAMPLES,
    FirstDifference,
    Outcome,
    samples_at,
)
from detlab.comparison.metrics.spikes.events import NOT_FINITE, SPIKE, Event, counted
from detlab.run import Run

DETERMINISTIC: Final = "deterministic"
SAME_SAMPLES: Final = "samples"
RECURRING: Final = "recurs"
NOT_REPRODUCED: Final = "not reproduced"
DIVERGED: Final = "diverged before onset"
NOT_ENOUGH: Final = "not enough evidence"
NO_SPIKE: Final = "no spike"

MEANS: Final = {
    DETERMINISTIC: "It comes again with the same numbers: it follows from data or optimisation (NaN: data or "
    "software); hardware is unlikely.",
    SAME_SAMPLES: "It follows the samples and not the step: suspect the data; hardware is unlikely.",
    RECURRING: "It recurs, if not with numbers shown to be the same: likely data or optimisation; hardware "
    "is unlikely.",
    NOT_REPRODUCED: "It does not recur: suspect a race or hardware.",
    DIVERGED: "It does not recur, and the runs had parted before its onset: the first difference decides. "
    "Suspect a race or hardware there.",
    NOT_ENOUGH: "One pass over these steps cannot tell data and optimisation from a race or hardware.",
    NO_SPIKE: "No loss and no norm leaves its band upwards, and all that are printed are finite.",
}
"""Every conclusion, and what it means."""

_SHOWN: Final = 3


def conclude(event: Event | None, outcomes: Sequence[Outcome]) -> str:
    """Choose the conclusion.

    A pass that does not show the event outweighs those that do: what happens in one of two equal runs
    is not decided by data and recipe.
    """
    if event is None:
        return NO_SPIKE
    absent = [each for each in outcomes if each.recurs == NO]
    if any(_parted_before(each.first, event) for each in absent):
        return DIVERGED
    if absent:
        return NOT_REPRODUCED
    seen = {each.recurs for each in outcomes}
    order = ((EQUAL, DETERMINISTIC), (SAMPLES, SAME_SAMPLES), (OTHER_VALUES, RECURRING), (NEAR, RECURRING))
    return next((conclusion for recurs, conclusion in order if recurs in seen), NOT_ENOUGH)


def _parted_before(first: FirstDifference, event: Event) -> bool:
    return first.step is not None and first.step < event.onset


def _never_equal(first: FirstDifference) -> bool:
    return first.step is not None and first.last_equal is None


def explain(conclusion: str, event: Event | None, outcomes: Sequence[Outcome]) -> str:
    """Say why, in sentences."""
    return " ".join(_reasons(conclusion, event, outcomes))


def _reasons(conclusion: str, event: Event | None, outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield MEANS[conclusion]
    if event is None:
        return
    yield from (f"{each.name} {_told(each, event)}." for each in outcomes[:_SHOWN])
    resumed = [each for each in outcomes if each.recurs in RECURS and each.resumed_at is not None]
    if resumed and len(resumed) == sum(each.recurs in RECURS for each in outcomes):
        yield (
            f"{resumed[0].name} begins at step {resumed[0].resumed_at}: a fault before that step, if it is "
            "in the checkpoint, would come back as well."
        )
    if any(each.recurs == NO and _never_equal(each.first) for each in outcomes):
        yield "Runs that were never equal may be of another recipe, seed or data: then this says nothing."
    if len(outcomes) > _SHOWN:
        yield f"And {len(outcomes) - _SHOWN} more."
    recurring = sum(each.recurs in RECURS for each in outcomes)
    absent = [each for each in outcomes if each.recurs == NO]
    if recurring and absent:
        yield f"It recurs in {recurring} of {recurring + len(absent)} passes: it comes and goes."
        if any(each.recurs == EQUAL for each in outcomes):
            yield (
                "With the same numbers again, which a race hardly gives: look for what these passes share "
                "and the others do not, such as a device, data or a recipe."
            )
    for each in [each for each in absent if not _parted_before(each.first, event)][:1]:
        yield from _without_divergence(each, event)


def _told(outcome: Outcome, event: Event) -> str:
    """Say what another run shows, after its name."""
    first, match = outcome.first, outcome.event
    at = f"step {match.onset}" if match else ""
    other_rank = f" on rank {match.rank}" if match and match.rank not in (None, event.rank) else ""
    words = {
        EQUAL: f"has it again at step {event.onset}{_on_rank(event)}, {_equal_words(first)}",
        OTHER_VALUES: f"{_same_step(match, event)}{other_rank}{_other_values(first)}: "
        f"{_parted(first, event)}",
        SAMPLES: f"has it at {at}, at the same consumed samples",
        NEAR: f"has it nearby, at {at}; {_parted(first, event)}",
        NO: f"does not have it{f' (but one at {at})' if match else ''}: {_parted(first, event)}",
        NOT_COVERED: f"does not cover {_steps(event)}" + (f" (it has one at {at})" if match else ""),
        OTHER_RECIPE: f"does not have it, but was asked for something else ({', '.join(first.settings)} "
        f"differ{'s' if len(first.settings) == 1 else ''}), so that this says nothing of race or hardware",
    }
    return words[outcome.recurs]


def _steps(event: Event) -> str:
    one = event.onset == event.peak
    return f"step {event.onset}" if one else f"steps {event.onset} to {event.peak}"


def _same_step(match: Event | None, event: Event) -> str:
    if match is None or match.kind == event.kind:
        return "has it at the same step"
    return f"goes wrong at the same step, if in another way ({match.metric}: {match.kind})"


def _other_values(first: FirstDifference) -> str:
    return "" if first.step is None else ", with other values"


def _on_rank(event: Event) -> str:
    return "" if event.rank is None else f" on rank {event.rank}"


def _equal_words(first: FirstDifference) -> str:
    compared = f"in every metric of {counted(first.num_common, 'common step')}"
    return {
        "exact": f"with the same bits {compared}",
        "printed": f"with the same numbers {compared} (equal as printed, which does not prove equal bits)",
        "none": "by its message; no step metrics were compared",
    }[first.evidence]


def _parted(first: FirstDifference, event: Event) -> str:
    """Say where two runs part, as far as the numbers show."""
    if first.num_averages:
        return f"{_found(first, event)} (losses that are means over other steps were not compared)"
    return _found(first, event)


def _found(first: FirstDifference, event: Event) -> str:
    if not first.num_common:
        return "they have no step in common to compare"
    kind = "" if first.is_exact else ", as printed"
    if first.step is None:
        return f"no difference in {counted(first.num_common, 'common step')} up to step {event.peak}{kind}"
    names = ", ".join(first.names[:_SHOWN])
    where = "before the onset" if first.step < event.onset else "the onset itself"
    where = where if first.step <= event.onset else "after the onset"
    equal = "" if first.last_equal is None else f"; equal up to step {first.last_equal}{kind}"
    return f"the first difference is at step {first.step} ({names}), {where}{equal}"


def _without_divergence(outcome: Outcome, event: Event) -> Iterator[str]:
    """Say what follows where a spike is in one run only, and nothing differs before."""
    what = "NaN" if event.kind == NOT_FINITE else event.kind if event.kind == SPIKE else "loss like that"
    yield f"A {what} with no earlier divergence cannot happen in a deterministic pair:"
    if outcome.first.is_exact and outcome.first.num_common:
        yield (
            "these metrics are equal bit for bit before it, so that the difference began in that step or in "
            "what no metric shows, or the recipes differ."
        )
    else:
        yield (
            "the difference began in that step or the backward or optimizer before it, printed numbers are "
            "too coarse to show a smaller one earlier, or the recipes differ; numbers of full precision "
            "(TensorBoard files) decide."
        )


def advise(run: Run, event: Event | None, conclusion: str, outcomes: Sequence[Outcome]) -> str:
    """Say what to do next, ready to paste."""
    if event is None:
        return ""
    parted = [each.first.step for each in outcomes if each.recurs == NO]
    steps = [step for step in parted if step is not None]
    window = recording_window(run, event, min(steps, default=None))
    where = f"steps {window.first} to {window.last}: {window.call}"
    parts = {
        DETERMINISTIC: f"look at the batch{_samples(run, event)}; to see the calls, record {where}",
        SAME_SAMPLES: f"look at the batch{_samples(run, event)}; to see the calls, record {where}",
        RECURRING: f"look at the data{_samples(run, event)} and the learning rate; record {where}",
        NOT_ENOUGH: f"run it again {window.start}, with the same data and "
        f"recipe, and record {where}; then detlab triage RUN --rerun AGAIN",
    }
    twice = f"record two runs over {where}, and compare them"
    told = parts.get(conclusion, twice)
    if conclusion == DETERMINISTIC and event.rank is not None:
        told += f"; if rank {event.rank} had the same device each time, run it on another one"
    return f"{told}; {window.resume}" if window.resume else told


def _samples(run: Run, event: Event) -> str:
    samples = samples_at(run, event)
    return "" if samples is None else f" (samples {samples[0]} to {samples[1]})"

"""The triage table: whether what went wrong recurs in another run, and where the two first differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import polars as pl

from detlab.comparison.metrics.averages import means_of_other_steps, spans_of
from detlab.comparison.metrics.pairs import last_points, pair_runs, points_of
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, judge
from detlab.comparison.metrics.spike_triage.message_events import message_events
from detlab.comparison.metrics.spike_triage.state_events import state_events
from detlab.comparison.metrics.spikes.events import NOT_FINITE, SPIKE, Event, spike_events
from detlab.comparison.metrics.spikes.series import log_interval, named, names_in, record_steps, trunk
from detlab.readers.metrics.names import choose_names, is_measurement
from detlab.run import Run

EQUAL, OTHER_VALUES, SAMPLES, NEAR, NO = "equal", "other values", "samples", "near", "no"
NOT_COVERED, OTHER_RECIPE = "not covered", "other recipe"
"""What another run says of an event: it recurs at the same step with the same values; with others; at the
same samples and another step; near the step; it does not; the run has not those steps; it was asked for
something else, so that it says nothing when the event does not recur."""

RECURS: Final = (EQUAL, OTHER_VALUES, SAMPLES, NEAR)

_NEAR_INTERVALS: Final = 10
"""Onsets so many log intervals apart are near each other."""

_SETTING: Final = r"(?i)learning[ _-]?rate|^lr\b|batch[ _-]?size|weight[ _-]?decay|\bconsumed[ _-]"
"""Metrics that say what a run was asked for; consumed samples, which data it saw."""
_SAMPLES: Final = r"(?i)consumed[ _-]?samples"


class Attempt(NamedTuple):
    """Another pass over the steps of a run: another run, or a later segment of the same run.

    Attributes
    ----------
    name
        For people.
    run
        The metrics of this pass alone.
    events
        What went wrong in it.
    """

    name: str
    run: Run
    events: Sequence[Event]


class FirstDifference(NamedTuple):
    """The first step at which two runs differ in a metric that is evidence.

    Attributes
    ----------
    step
        None: they do not, where both have numbers.
    names
        Metrics that differ at it.
    settings
        Of all steps up to a limit, the metrics that differ and say what a run was asked for.
    is_exact
        Whether the bits of all numbers compared are known; else equality is of printed digits.
    last_equal
        The last step before it that both have; None: none.
    num_common
        Number of steps compared.
    compared
        The metrics compared.
    num_averages
        Number of losses left out because they are means over other steps.
    """

    step: int | None
    names: tuple[str, ...]
    settings: tuple[str, ...]
    is_exact: bool
    last_equal: int | None
    num_common: int
    compared: tuple[str, ...] = ()
    num_averages: int = 0

    @property
    def evidence(self) -> str:
        """What equality of the numbers proves: ``exact``, ``printed``, or ``none`` where none meet."""
        return ("exact" if self.is_exact else "printed") if self.num_common else "none"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What another run says of an event.

    Attributes
    ----------
    name
        The other run.
    recurs
        One of the constants above.
    event
        The event of the other run that it is held against; None: there is none.
    first
        Where both first differ.
    resumed_at
        The first step of the other run, where steps before it are in a checkpoint that it came from; None: it
        ran from the start.
    """

    name: str
    recurs: str
    event: Event | None
    first: FirstDifference
    resumed_at: int | None = None


def find_events(run: Run) -> list[Event]:
    """Find everything that went wrong in one run, in the order of segments and onsets."""
    found = [*message_events(run), *state_events(run.metrics), *spike_events(run.metrics)]
    return sorted(found, key=lambda each: (each.segment, each.onset, each.kind == SPIKE))


def first_difference(a: Run, b: Run, limit: int) -> FirstDifference:
    """Find the first step at which two runs differ in a metric that is evidence.

    Parameters
    ----------
    a, b
        The runs.
    limit
        Steps after this one are not looked at.
    """
    pairs = pair_runs(_evidence(a, limit), _evidence(b, limit))
    averages = means_of_other_steps(pairs, spans_of(a), spans_of(b))
    judged = judge(pairs.filter(~averages)).filter(pl.col("outcome").is_in(COMPARED))
    differing = judged.filter(pl.col("outcome").is_in(DIFFERENT))
    step: int | None = differing["step"].min()  # type: ignore[assignment]
    names = differing.filter(pl.col("step") == pl.col("step").min())["name"].unique(maintain_order=True)
    settings = choose_names(differing, lambda name: name.cast(pl.String).str.contains(_SETTING))
    earlier = judged if step is None else judged.filter(pl.col("step") < step)
    return FirstDifference(
        step,
        tuple(names.cast(pl.String)),
        tuple(settings),
        bool(judged["exact"].all()),
        earlier["step"].max(),  # type: ignore[arg-type]
        judged["step"].n_unique(),
        tuple(names_in(judged)["name"].cast(pl.String)),
        int(averages.sum()),
    )


def _evidence(run: Run, limit: int) -> pl.DataFrame:
    names = choose_names(run.metrics, lambda name: ~is_measurement(name))
    rows = run.metrics.filter(named(names), pl.col("step") <= limit)
    return last_points(points_of(replace(run, metrics=rows)))


def own_attempts(run: Run, event: Event, events: Sequence[Event]) -> Iterator[Attempt]:
    """Give the later segments of a run that passed over the onset again."""
    for segment in run.metrics["segment"].unique().sort():
        rows = run.metrics.filter(pl.col("segment") == segment)
        if segment > event.segment and rows["step"].min() <= event.onset:  # type: ignore[operator]
            own = [each for each in events if each.segment == segment]
            name = f"{run.label} after the restart at step {rows['step'].min()!r}"
            yield Attempt(name, replace(run, metrics=rows), own)


def attempt_of(run: Run, other: Run, event: Event) -> Attempt:
    """Take another run as a pass over the steps of a run.

    One that begins later, from a checkpoint, is judged as what follows on the steps before its first.
    """
    metrics = other.metrics
    start = metrics["step"].min()
    before = trunk(run.metrics, event.segment).filter(pl.col("step") < start) if len(metrics) else metrics
    if before.is_empty():
        return Attempt(other.label, other, find_events(other))
    before = before.with_columns(segment=pl.lit(0, pl.UInt16))
    after = metrics.with_columns((pl.col("segment") + 1).cast(pl.UInt16))
    spliced = replace(other, metrics=pl.concat([before, after]))
    return Attempt(other.label, other, [each for each in find_events(spliced) if each.segment])


def judge_attempt(run: Run, event: Event, attempt: Attempt) -> Outcome:
    """Say whether an event recurs in another pass."""
    ours = replace(run, metrics=trunk(run.metrics, event.segment))
    first = first_difference(ours, attempt.run, max(event.peak, event.onset))
    match = _nearest(event, attempt.events)
    start = record_steps(attempt.run.metrics)[:1]
    is_later = bool(len(start)) and start[0] > event.onset  # from a state that the event may have spoilt
    recurs = NOT_COVERED if is_later else _recurs(ours, event, attempt, first, match)
    return Outcome(attempt.name, recurs, match, first, _resumed_at(attempt.run))


def _resumed_at(run: Run) -> int | None:
    steps = record_steps(run.metrics)
    return int(steps[0]) if len(steps) and steps[0] > log_interval(steps) else None


def _recurs(run: Run, event: Event, attempt: Attempt, first: FirstDifference, match: Event | None) -> str:
    is_compared = event.metric in first.compared
    if first.step is None and match is None and is_compared and _shows(attempt.run, event):
        return EQUAL
    if match is not None and _at_one_step(event, match):
        is_message = match.rank is not None and match.rank == event.rank and not match.before
        proven = is_compared or is_message or (first.num_common > 0 and not first.num_averages)
        return EQUAL if first.step is None and match.rank == event.rank and proven else OTHER_VALUES
    if match is not None and _at_one_sample(run, event, attempt.run, match):
        return SAMPLES
    every = log_interval(record_steps(run.metrics))
    if match is not None and abs(match.onset - event.onset) <= _NEAR_INTERVALS * every:
        return NEAR
    if not _covers(attempt.run, event, every):
        return NOT_COVERED
    return OTHER_RECIPE if first.settings else NO


def _covers(run: Run, event: Event, every: int) -> bool:
    """Say whether a run would show an event: its records reach the peak, and none steps over the event.

    Records that are farther apart than the event is long miss it, or show it only as a part of a mean.
    """
    steps = record_steps(run.metrics)
    if not len(steps) or steps[0] > event.onset or steps[-1] < event.peak:
        return False
    if event.kind == NOT_FINITE and event.recovery is None:
        return True
    last = event.peak + 1 if event.recovery is None else event.recovery
    return log_interval(steps) <= max(every, last - event.onset)


def _nearest(event: Event, others: Sequence[Event]) -> Event | None:
    """Find the event whose onset is nearest: of the same kind, or of another that begins at the same step."""
    alike = [each for each in others if each.kind == event.kind]
    if not any(_at_one_step(event, each) for each in alike):
        alike = [each for each in others if _at_one_step(event, each)] or alike
    return min(alike, key=lambda each: (abs(each.onset - event.onset), each.rank != event.rank), default=None)


def _shows(run: Run, event: Event) -> bool:
    """Say whether a run has the metric of an event at its onset and its peak."""
    rows = run.metrics.filter(named(event.metrics))
    return {event.onset, event.peak} <= set(rows["step"])


def _at_one_step(a: Event, b: Event) -> bool:
    """Say whether both begin between the same records."""
    starts = [each.onset - 1 if each.before is None else each.before for each in (a, b)]
    return max(starts) < min(a.onset, b.onset)


def _at_one_sample(run: Run, a: Event, other: Run, b: Event) -> bool:
    ours, theirs = samples_at(run, a), samples_at(other, b)
    return ours is not None and theirs is not None and max(ours[0], theirs[0]) < min(ours[1], theirs[1])


def samples_at(run: Run, event: Event) -> tuple[int, int] | None:
    """Give how many samples were consumed before the onset and at it; None where nothing says."""
    names = choose_names(run.metrics, lambda name: name.cast(pl.String).str.contains(_SAMPLES))
    start = event.onset - 1 if event.before is None else event.before
    near = pl.col("step").is_between(start, event.onset) & pl.col("value").is_not_null()
    rows = run.metrics.filter(named(names), near)
    rows = trunk(rows, event.segment) if len(rows) else rows
    values = [rows.filter(pl.col("step") == step)["value"] for step in (start, event.onset)]
    if not all(len(each) for each in values):
        return None
    return int(values[0][0]), int(values[1][0])

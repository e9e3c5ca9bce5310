"""Events: what went wrong in one run, and the spikes of several metrics put together into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.spikes import Excursion, find_spikes
from detlab.comparison.metrics.spikes.series import Ints, log_interval, record_steps
from detlab.readers.metrics.names import is_loss
from detlab.run import spans
from detlab.text import plural

SPIKE, NOT_FINITE, ZERO, NOT_PRINTED = "spike", "not finite", "zero", "not printed"
"""Kinds of events: out of the band upwards; NaN or Inf; a loss of exactly 0; a loss that is not there and
may be zero, negative or NaN."""

_TOUCH: Final = 4
"""Excursions of two metrics with at most so many log intervals between them are one event."""
GAP: Final = 1.5
"""A distance of two records above so many log intervals is a stretch that the log does not show."""
_SURE: Final = 32
"""A band that rests on so many records is known well."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that went wrong.

    Attributes
    ----------
    kind
        `SPIKE`, `NOT_FINITE`, `ZERO` or `NOT_PRINTED`.
    metric, rank, segment
        The loss where one takes part; rank None: not of one rank.
    onset, peak, recovery
        Steps: the first record of any metric of the event, the highest of ``metric``, and the first from
        which all metrics stay back; recovery None: they do not.
    before
        Step of the last record before the onset; None: there is none, or no metric says.
    led_by, lead_steps
        The metric that began, and by how many steps before the rise to the peak of the others; "" and 0
        where one metric alone, or all at once.
    height
        Of the peak, in MADs; None where no band is known.
    confidence
        ``high``, ``medium`` or ``low``.
    says
        The event in a sentence or two.
    metrics
        Every metric that takes part.
    """

    kind: str
    metric: str
    rank: int | None
    segment: int
    onset: int
    peak: int
    recovery: int | None
    before: int | None
    led_by: str
    lead_steps: int
    height: float | None
    confidence: str
    says: str
    metrics: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {
            "kind": self.kind,
            "metric": self.metric,
            "metrics": list(self.metrics),
            "rank": self.rank,
            "segment": self.segment,
            "after": self.before,
            "onset": self.onset,
            "peak": self.peak,
            "recovery": self.recovery,
            "led_by": self.led_by or None,
            "lead_steps": self.lead_steps,
            "height_mads": None if self.height is None else round(self.height, 1),
            "confidence": self.confidence,
            "says": self.says,
        }


def spike_events(metrics: pl.DataFrame) -> Iterator[Event]:
    """Find spikes; those of a loss and a norm that overlap or nearly touch are one event."""
    found = find_spikes(metrics)
    for segment in sorted({each.segment for each in found}):
        steps = record_steps(metrics, segment)
        every = log_interval(steps)
        parts = [each for each in found if each.segment == segment]
        for group in _touching(parts, _TOUCH * every):
            yield _spike_event(group, record_steps(metrics), every)


def _touching(parts: Sequence[Excursion], distance: int) -> Iterator[list[Excursion]]:
    group: list[Excursion] = []
    for part in parts:
        if group and part.onset > max(each.last for each in group) + distance:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _spike_event(parts: Sequence[Excursion], steps: Ints, every: int) -> Event:
    leader = min(parts, key=lambda each: each.onset)
    main = max(parts, key=lambda each: (is_a_loss(each.name), each.height or 0.0, each.top))
    other = main if main.name != leader.name else _first_of_others(parts, leader)
    lead = other.rise - leader.onset if other else 0
    recoveries = [each.recovery for each in parts]
    recovery = None if None in recoveries else max(each for each in recoveries if each is not None)
    gaps = _gaps(steps, every, leader.before, recovery or max(each.last for each in parts))
    confidence = _confidence(parts, any(gap[1] == leader.onset for gap in gaps))
    event = Event(
        kind=SPIKE,
        metric=main.name,
        rank=the_rank([each.rank for each in parts]),
        segment=leader.segment,
        onset=leader.onset,
        peak=main.peak,
        recovery=recovery,
        before=leader.before,
        led_by=leader.name if lead > 0 else "",
        lead_steps=max(lead, 0),
        height=main.height,
        confidence=confidence,
        says="",
        metrics=tuple(dict.fromkeys(each.name for each in parts)),
    )
    return replace(event, says=" ".join(_spike_words(event, parts, main, leader, gaps)))


def _first_of_others(parts: Sequence[Excursion], leader: Excursion) -> Excursion | None:
    others = [each for each in parts if each.name != leader.name]
    return min(others, key=lambda each: each.rise, default=None)


def the_rank(ranks: Sequence[int | None]) -> int | None:
    """Give the one rank that all name; None where there are several."""
    return ranks[0] if len(set(ranks)) == 1 else None


def is_a_loss(name: str) -> bool:
    """Say whether one name is that of a loss."""
    return bool(pl.select(is_loss(pl.lit(name))).item())


def _confidence(parts: Sequence[Excursion], after_gap: bool) -> str:
    """Say how sure an event is: few points or a gap before it say little, two metrics together more."""
    if after_gap or all(each.has_few_points for each in parts):
        return "low"
    num_before = max(each.num_before for each in parts)
    return "high" if num_before >= _SURE else "medium"


def _spike_words(
    event: Event,
    parts: Sequence[Excursion],
    main: Excursion,
    leader: Excursion,
    gaps: Sequence[tuple[int, int]],
) -> Iterator[str]:
    ranks = sorted({each.rank for each in parts if each.rank is not None})
    on_rank = f" (rank{'s' if len(ranks) > 1 else ''} {spans(ranks)})" if ranks else ""
    rose = f"{main.name}{on_rank} rose from {main.base:.4g} to {main.top:.4g} at step {event.peak}"
    height = "" if event.height is None else f", {event.height:,.0f} MADs"
    yield f"{rose}{height}; onset {_onset_words(event)} by {leader.name}."
    told = {main.name}
    for each in parts:
        if each.name not in told:
            yield f"{each.name} rose from {each.base:.4g} to {each.top:.4g} at step {each.peak}."
            told.add(each.name)
    if event.led_by:
        yield f"{event.led_by} led by {counted(event.lead_steps, 'step')}."
    yield f"{_staying(parts, main)}." if event.recovery is None else f"Recovered at step {event.recovery}."
    if event.confidence == "low":
        yield f"This rests on few points: {counted(leader.num_before, 'record')} before the onset."
    yield from (f"No record for {first}..{last}." for first, last in gaps[:3])


def _staying(parts: Sequence[Excursion], main: Excursion) -> str:
    """Say that a metric did not recover, and, where it went on for long after that, where it got to."""
    stays = main if main.recovery is None else next(each for each in parts if each.recovery is None)
    if stays.latest is None or stays.end == stays.last:
        return "It did not recover"
    return f"It did not recover: {stays.name} is {stays.latest:.4g} at step {stays.end}, the last"


def counted(number: int, what: str) -> str:
    """Write a number of things."""
    return f"{number} {plural(what, number)}"


def _onset_words(event: Event) -> str:
    """Name the onset; where the log does not show every step, the steps that it lies between."""
    if event.before is None or event.onset - event.before <= 1:
        return f"at step {event.onset}"
    return f"between iterations {event.before} and {event.onset}"


def _gaps(steps: Ints, every: int, start: int, stop: int) -> list[tuple[int, int]]:
    """List the stretches without a record between two steps, and the one right after them."""
    low = int(np.searchsorted(steps, start))
    high = int(np.searchsorted(steps, stop, side="right"))
    near = steps[low:high]
    wide = np.flatnonzero(np.diff(near) > GAP * every)
    return [(int(near[i]), int(near[i + 1])) for i in wide]

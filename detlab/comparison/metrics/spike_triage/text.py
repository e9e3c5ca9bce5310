"""A triage as one screen of text: the conclusion first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from detlab.comparison.text import left_out_text, wrapped

if TYPE_CHECKING:
    from detlab.comparison.metrics.spike_triage import Triage
    from detlab.comparison.metrics.spikes.events import Event

_MAX_SPIKES: Final = 5
_MAX_NOTES: Final = 4
_MAX_PROBLEMS: Final = 3
_MAX_NAMES: Final = 6


def summary(triage: Triage) -> str:
    """Write the triage on one screen."""
    lines = [_headline(triage), f"why: {triage.why}"]
    lines += [f"  next: {triage.next}"] if triage.next else []
    others = [each for each in triage.spikes if each is not triage.main]
    lines += [_spike_line(each) for each in others[:_MAX_SPIKES]]
    if len(others) > _MAX_SPIKES:
        lines.append(f"… and {len(others) - _MAX_SPIKES} more: see .spikes")
    lines.append(_coverage_line(triage))
    lines += _some([f"note: {note}" for note in triage.notes], _MAX_NOTES, "notes")
    lines += _some(
        [f"problem: {where}: {what}" for where, what in triage.problems], _MAX_PROBLEMS, "problems"
    )
    return "\n".join(map(wrapped, lines))


def _headline(triage: Triage) -> str:
    name, main = triage.run.label, triage.main
    if main is None:
        return f"NO SPIKE in {name}{', as far as it could be read' if triage.run.problems else ''}."
    return f"{triage.conclusion.upper()}: {name}: {main.says} (confidence: {main.confidence})"


def _coverage_line(triage: Triage) -> str:
    seen = triage.coverage
    if not seen["records"]:
        return "looked at messages alone: there are no step metrics"
    names = ", ".join(seen["metrics"][:_MAX_NAMES]) or "no loss and no norm"
    more = f" and {len(seen['metrics']) - _MAX_NAMES} more" if len(seen["metrics"]) > _MAX_NAMES else ""
    records = f"{seen['records']:,} records, steps {seen['first_step']} to {seen['last_step']}"
    return f"looked at {names}{more} in {records}{left_out_text((triage.run,))}"


def _spike_line(event: Event) -> str:
    return f"also: {event.says} (confidence: {event.confidence})"


def _some(lines: list[str], limit: int, what: str) -> list[str]:
    more = [f"… and {len(lines) - limit} more: see .{what}"] if len(lines) > limit else []
    return [*lines[:limit], *more]

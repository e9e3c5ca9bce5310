"""From metrics to traces: which steps to record, and from which checkpoint."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from detlab.comparison.metrics.spikes.events import NOT_FINITE, Event
from detlab.comparison.metrics.spikes.series import log_interval, record_steps
from detlab.run import Run

_SAVED = r"^checkpoint saved$"


class RecordingWindow(NamedTuple):
    """Steps to record.

    Attributes
    ----------
    first, last
        Steps, both recorded.
    resume
        How to get there, in words.
    """

    first: int
    last: int
    resume: str

    @property
    def start(self) -> str:
        """Where to run from, in words: no checkpoint is before the first step."""
        return "from the start" if self.first <= 1 else f"from a checkpoint before step {self.first}"

    @property
    def call(self) -> str:
        """The call to paste."""
        return f'dl.Recorder("…", steps="{self.first}-{self.last}")'


def recording_window(run: Run, event: Event, split: int | None) -> RecordingWindow:
    """Choose the steps that show where an event comes from.

    The cause is often the backward pass or the optimizer of the step before, and a record stands for all
    steps since the one before it: so it begins a log interval and one step before the split.

    Parameters
    ----------
    run
        The run.
    event
        What went wrong.
    split
        The first step that differs between two runs; None: not known. One after the onset is no help.
    """
    steps = record_steps(run.metrics, event.segment)
    every = log_interval(steps)
    last = event.onset if split is None else min(split, event.onset)
    first = last - every - 1
    if last == event.onset and event.before is not None:
        first = min(first, event.before - 1)
    lowest = min(1, int(steps[0])) if len(steps) else 1
    first = max(first, lowest)
    if event.kind == NOT_FINITE and last == event.onset:
        last = event.peak  # a message that names no step: it is known no closer
    return RecordingWindow(first, last, _resume(run, first))


def _resume(run: Run, first: int) -> str:
    """Name the last checkpoint from which a run can reach a step."""
    if run.log is None:
        return ""
    saved = run.log.messages.filter(
        pl.col("kind").cast(pl.String).str.contains(_SAVED), pl.col("step") < first
    ).sort("step", "line", maintain_order=True)
    if saved.is_empty():
        return ""
    row = saved.row(-1, named=True)
    return f"resume from the checkpoint of step {row['step']} ({row['source']}, line {row['line']})"

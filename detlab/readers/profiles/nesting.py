"""Which event stands around which on a thread, and what follows: the time of its own, phase, op, step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NONE: Final = -1


def parents(thread: Ints, start: Floats, duration: Floats) -> Ints:
    """Give for each event the innermost event around it on the same thread; -1 where there is none.

    Parameters
    ----------
    thread, start, duration
        One number an event. Times are floats, and of a clock that counts from 1970 they are known to a
        quarter of a microsecond only: an event may end that much after the one around it.

    Returns
    -------
    Positions of events. Of two that overlap without nesting neither is around the other.
    """
    end = start + duration
    found = np.full(len(start), NONE, np.int64)
    order = np.lexsort((np.arange(len(start)), -end, start, thread))
    slack = float(np.spacing(np.abs(end).max())) * 2 if len(end) else 0.0
    open_events: list[int] = []
    now: int | None = None
    starts, ends, threads = start.tolist(), end.tolist(), thread.tolist()
    for event in order.tolist():
        if threads[event] != now:
            now, open_events = threads[event], []
        last = ends[event] - slack
        while open_events and (ends[open_events[-1]] < last or ends[open_events[-1]] <= starts[event]):
            open_events.pop()
        if open_events:
            found[event] = open_events[-1]
        open_events.append(event)
    return found


def own_time(parent: Ints, duration: Floats) -> Floats:
    """Give the time of each event without that of the events directly in it; never below zero."""
    inside = parent >= 0
    nested = np.bincount(parent[inside], duration[inside], minlength=len(duration))
    return np.maximum(duration - nested, 0.0)


def inherited(parent: Ints, marks: Ints) -> Ints:
    """Give for each event its own mark or that of the innermost event around it that has one.

    Parameters
    ----------
    parent
        As `parents` gives it.
    marks
        Any number from 0 on; -1 for none.
    """
    marks, above = marks.copy(), parent.copy()
    while True:  # the distance doubles each time: as many rounds as the depth has binary digits
        lacking = (marks == NONE) & (above >= 0)
        if not lacking.any():
            return marks
        at = above[lacking]
        marks[lacking] = marks[at]
        above[lacking] = above[at]


def windows(starts: Sequence[float], ends: Sequence[float], at: Floats) -> Ints:
    """Give for each time the position of the window that it lies in; -1 for none.

    Windows are sorted by their start; of several around one time the last to start counts.
    """
    begins, stops = np.asarray(starts, np.float64), np.asarray(ends, np.float64)
    found = np.searchsorted(begins, at, side="right") - 1
    inside = (found >= 0) & (at < stops[np.maximum(found, 0)]) if len(begins) else np.zeros(len(at), bool)
    return np.where(inside, found, NONE).astype(np.int64)

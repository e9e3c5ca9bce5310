"""Some steps of a rank's trace as a trace of its own: what was not asked for is not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detlab.store.batches import Batches
from detlab.store.reader import RankTrace
from detlab.store.selection import Selection

_Parts = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class SelectedEvents:
    """Some rows of some batches, numbered anew.

    Attributes
    ----------
    source
        All batches.
    numbers
        Number in the source of each batch that is left.
    parts
        The rows that are left of each, in order.
    """

    source: Batches
    numbers: tuple[int, ...]
    parts: tuple[_Parts, ...]

    def read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give some columns of what is left of one batch."""
        columns = self.source.read(self.numbers[number], names)
        first, *others = self.parts[number]
        if not others:
            return {name: column[first] for name, column in columns.items()}
        return {
            name: np.concatenate([column[part] for part in self.parts[number]])
            for name, column in columns.items()
        }

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class SelectedDetails:
    """The detail rows of selected events; the batches are those of the events.

    Attributes
    ----------
    source
        All batches of details.
    events
        The selected events that they belong to.
    is_whole
        For each batch whether all of its events are left, so that no row has to be looked at.
    """

    source: Batches
    events: SelectedEvents
    is_whole: tuple[bool, ...]

    def read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give some columns of the details of one batch."""
        at = self.events.numbers[number]
        columns = self.source.read(at, names)
        if self.is_whole[number]:
            return columns
        kept = np.isin(self.source.read(at, ["seq"])["seq"], self.events.read(number, ["seq"])["seq"])
        return {name: column[kept] for name, column in columns.items()}

    def __len__(self) -> int:
        size = len(self.source)
        return sum(number < size for number in self.events.numbers)  # a cut stream lacks the last ones


def select_steps(trace: RankTrace, steps: Selection) -> RankTrace:
    """Give the same trace with the segments of some steps only; the index tells where they lie."""
    return select_segments(trace, np.array([step in steps for step in trace.index["step"].tolist()], bool))


def select_segments(trace: RankTrace, chosen: NDArray[np.bool_]) -> RankTrace:
    """Give the same trace with some of its segments only.

    Parameters
    ----------
    trace
        The trace of one rank.
    chosen
        For each record of its index whether it is kept.
    """
    if chosen.all():
        return trace
    index = trace.index[chosen]
    numbers, first, member = np.unique(index["batch"], return_index=True, return_inverse=True)
    parts = tuple(_parts(index[member == at]) for at in range(len(numbers)))
    sizes = [sum(part.stop - part.start for part in each) for each in parts]
    whole = tuple(sizes[at] == index["batch_rows"][row] for at, row in enumerate(first.tolist()))
    events = SelectedEvents(trace.events, tuple(numbers.tolist()), parts)
    return replace(
        trace,
        index=_renumbered(index, {"batch": member, "batch_rows": np.array(sizes)[member]}),
        events=events,
        details=SelectedDetails(trace.details, events, whole),
    )


def _parts(records: NDArray[np.void]) -> _Parts:
    """Give the rows of some records of one batch, neighbours as one slice."""
    found: list[slice] = []
    for start, size in zip(records["row"].tolist(), records["num_rows"].tolist(), strict=True):
        if found and found[-1].stop == start:
            found[-1] = slice(found[-1].start, start + size)
        else:
            found.append(slice(start, start + size))
    return tuple(found)


def _renumbered(index: NDArray[np.void], columns: Mapping[str, NDArray[Any]]) -> NDArray[np.void]:
    """Give index records of batches that have other numbers and sizes now."""
    found = index.copy()
    for name, column in columns.items():
        found[name] = column
    ends = np.cumsum(found["num_rows"].astype(np.int64))
    first = np.flatnonzero(np.diff(found["batch"].astype(np.int64), prepend=-1))
    before = np.repeat(np.concatenate([[0], ends])[first], np.diff(np.append(first, len(found))))
    found["row"] = ends - found["num_rows"] - before
    return found

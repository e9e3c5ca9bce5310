"""The one frame of profiles, whatever they were read from, and what a file of one gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

KINDS: Final = (
    "op",
    "range",
    "device_range",
    "kernel",
    "memcpy",
    "memset",
    "runtime",
    "sync",
    "python",
    "other",
)
"""What took the time: a framework op; a range that somebody named, on the host or projected onto the device;
a kernel, copy or fill of the device; a call of the driver; waiting; a Python function; anything else."""

DEVICE_KINDS: Final = ("kernel", "memcpy", "memset")
"""Kinds that keep a device busy."""

PHASES: Final = ("forward", "backward", "optimizer")

PROFILE_SCHEMA: Final[dict[str, Any]] = {
    "name": pl.Categorical,
    "kind": pl.Enum(KINDS),
    "start_us": pl.Float64,
    "duration_us": pl.Float64,
    "self_us": pl.Float64,
    "count": pl.Int64,
    "step": pl.Int64,
    "rank": pl.Int64,
    "phase": pl.Enum(PHASES),
    "op": pl.Categorical,
    "report": pl.Categorical,
    "thread": pl.Categorical,
    "device": pl.Int64,
    "stream": pl.Int64,
    "correlation": pl.Int64,
    "external": pl.Int64,
    "shapes": pl.Categorical,
    "parent": pl.Int64,
    "launch": pl.Int64,
}
"""Columns of a profile; what a file does not tell is null.

``name`` as written; ``kind`` (see `KINDS`); ``start_us`` on the profiler's own clock; ``duration_us`` over
all of ``count``, what is nested in it included; ``self_us`` without what is nested in it on the same thread;
``step`` of the profiler; ``rank``; ``phase`` where marks of autograd or of the optimizer tell it; ``op``, the
innermost op or range around it or, of work of a device, the one that launched it; ``report`` of nsys or
category of Kineto; ``thread`` of the host, or stream as Kineto has it; ``device`` and ``stream``;
``correlation`` and ``external`` join a launch with its kernel and its op; ``shapes`` of the inputs as JSON;
``parent``, the row of the event around it on the same thread; ``launch``, the row on the host that
launched it.
"""


@dataclass(frozen=True, eq=False)
class Profile:
    """What one file of a profiler holds.

    Attributes
    ----------
    source
        The file.
    format
        Of what profiler: ``kineto`` or ``nsys``.
    events
        A row for each event or each row of a summary, with the columns of `PROFILE_SCHEMA`.
    problems
        What is missing or damaged, one sentence each; what is whole is in the frame.
    notes
        What was left out on purpose, and why.
    facts
        What else the file says of itself.
    """

    source: str
    format: str
    events: pl.DataFrame
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


class Rows:
    """Collects rows column by column, and packs them from time to time so that memory stays bounded."""

    def __init__(self, columns: Sequence[str], packed_rows: int = 1 << 16) -> None:
        self._columns = {name: PROFILE_SCHEMA[name] for name in columns}
        self._size = packed_rows
        self._packed: list[pl.DataFrame] = []
        self._rows: list[tuple[Any, ...]] = []

    def add(self, row: tuple[Any, ...]) -> None:
        """Take one row, in the order of the columns."""
        self._rows.append(row)
        if len(self._rows) >= self._size:
            self._pack()

    def frame(self) -> pl.DataFrame:
        """Give all rows, in the order in which they came."""
        self._pack()
        return pl.concat([pl.DataFrame(schema=self._columns), *self._packed], rechunk=True)

    def _pack(self) -> None:
        values = zip(*self._rows, strict=True) if self._rows else iter(())
        series = [
            pl.Series(name, column, kind, strict=False)
            for (name, kind), column in zip(self._columns.items(), values, strict=False)
        ]
        if series:
            self._packed.append(pl.DataFrame(series))
        self._rows = []


def completed(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows every column of a profile, in its order; what a reader does not know is null."""
    lacking = {name: pl.lit(None, kind) for name, kind in PROFILE_SCHEMA.items() if name not in rows.columns}
    return rows.with_columns(**lacking).select(
        pl.col(name).cast(kind) for name, kind in PROFILE_SCHEMA.items()
    )

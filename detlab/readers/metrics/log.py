"""What log files say beside numbers: messages, restarts, and how each file was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

MESSAGE_SCHEMA: Final[dict[str, Any]] = {
    "kind": pl.Categorical,
    "step": pl.Int64,
    "rank": pl.Int64,
    "node": pl.String,
    "device": pl.Int64,
    "value": pl.Float64,
    "text": pl.String,
    "source": pl.Categorical,
    "line": pl.Int64,
}
"""Columns of `Log.messages`: what kind of message, the step, rank, node, device and value that it names
(null where it names none), its text, and where it stands."""

SEGMENT_SCHEMA: Final[dict[str, Any]] = {
    "segment": pl.UInt16,
    "source": pl.String,
    "first_step": pl.Int64,
    "last_step": pl.Int64,
    "num_steps": pl.Int64,
    "first_line": pl.Int64,
    "why": pl.String,
}
"""Columns of `Log.segments`: one row per stretch without a restart, and what showed that it begins there."""

FILE_SCHEMA: Final[dict[str, Any]] = {
    "source": pl.String,
    "format": pl.String,
    "num_records": pl.Int64,
    "why": pl.String,
}
"""Columns of `Log.files`: one row per file with the format that it was read as and what showed it."""


@dataclass(frozen=True, slots=True)
class Log:
    """What the files of a run say beside its step metrics.

    Attributes
    ----------
    messages, segments, files
        Frames with the columns of `MESSAGE_SCHEMA`, `SEGMENT_SCHEMA` and `FILE_SCHEMA`.
    conflicts
        One sentence for each step whose metric was printed with two values.
    """

    messages: pl.DataFrame
    segments: pl.DataFrame
    files: pl.DataFrame
    conflicts: tuple[str, ...] = ()

"""Console logs: find the lines that hold records, and let the dialect of the log take them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.readers.metrics.frame import join_metrics, printed_metrics
from detlab.readers.metrics.lines import Progress, line_frames
from detlab.readers.metrics.log import MESSAGE_SCHEMA
from detlab.readers.metrics.messages import MARKERS, find_messages

Memory = dict[str, Any]
"""What a dialect keeps from one chunk of a file to the next."""

FIELD_SCHEMA: Final[dict[str, Any]] = {
    "line": pl.Int64,
    "step": pl.Int64,
    "rank": pl.Int64,
    "name": pl.Categorical,
    "text": pl.String,
    "unit": pl.Categorical,
}
"""What a dialect makes of lines: one row per number, in the order of the file."""


def as_they_are(metrics: pl.DataFrame) -> pl.DataFrame:
    """Conclude nothing from the numbers that are not there."""
    return metrics


class Dialect(NamedTuple):
    """How one program writes its steps to the console.

    Attributes
    ----------
    name
        What the program calls itself.
    markers
        Literal texts, one of which stands in every line that `parse` wants to see.
    record
        Regular expression that a line with a record matches, and no other line.
    parse
        Takes the lines with a marker (``line``, ``text``, ``whole``) and the memory of the file to a frame
        of the `FIELD_SCHEMA`. A number that the end of the file may have cut is left out.
    conclude
        Takes all metrics of the file to the same with what follows from numbers that are not there.
    significant
        Number of significant digits, for a format that drops trailing zeros.
    """

    name: str
    markers: tuple[str, ...]
    record: str
    parse: Callable[[pl.DataFrame, Memory], pl.DataFrame]
    conclude: Callable[[pl.DataFrame], pl.DataFrame] = as_they_are
    significant: int | None = None


class Detected(NamedTuple):
    """The dialect of a file, and what showed it."""

    dialect: Dialect
    why: str


def detect(path: Path, dialects: Sequence[Dialect]) -> Detected | None:
    """Find the dialect with the most records in the first part of a file that has any.

    Raises
    ------
    TraceError
        The file is not text.
    """
    for lines in line_frames(path):
        hits = {dialect.name: _records(lines, dialect) for dialect in dialects}
        order = sorted(dialects, key=lambda each: -len(hits[each.name]))
        best = hits[order[0].name]
        if len(best):
            others = [f"{len(hits[each.name])} of {each.name}" for each in order[1:] if len(hits[each.name])]
            also = f"; it also has records like {', '.join(others)}" if others else ""
            return Detected(order[0], f"line {best['line'][0]} is a record of {order[0].name}{also}")
    return None


def _records(lines: pl.DataFrame, dialect: Dialect) -> pl.DataFrame:
    marked = lines.filter(pl.col("text").str.contains_any(list(dialect.markers)))
    return marked.filter(pl.col("text").str.contains(dialect.record))


class ConsoleLog(NamedTuple):
    """What one file holds."""

    metrics: pl.DataFrame
    messages: pl.DataFrame


def read_console(path: Path, dialect: Dialect | None, progress: Progress | None = None) -> ConsoleLog:
    """Read one log from its first to its last line, in memory for one piece of it.

    Parameters
    ----------
    path
        The file.
    dialect
        How its records are written; None: only its messages are read.
    progress
        Told how many bytes were read.

    Raises
    ------
    TraceError
        The file is not text.
    """
    metrics: list[pl.DataFrame] = []
    messages = [pl.DataFrame(schema=MESSAGE_SCHEMA)]
    for found, said in _pieces(path, dialect, progress):
        metrics.append(found.with_columns(source=pl.lit(path.name, pl.Categorical)))
        messages.append(said.with_columns(source=pl.lit(path.name, pl.Categorical)))
    whole = join_metrics(metrics)
    return ConsoleLog(dialect.conclude(whole) if dialect else whole, pl.concat(messages))


def _pieces(
    path: Path, dialect: Dialect | None, progress: Progress | None
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    memory: Memory = {}
    for lines in line_frames(path, progress):
        said = find_messages(lines.filter(pl.col("text").str.contains_any(MARKERS)))
        found = pl.DataFrame(schema=FIELD_SCHEMA)
        if dialect:
            marked = lines.filter(pl.col("text").str.contains_any(list(dialect.markers)))
            found = dialect.parse(marked, memory) if len(marked) else found
        yield printed_metrics(found, significant=dialect.significant if dialect else None), said

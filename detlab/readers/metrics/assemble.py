"""From the files of one run to its metrics: in order, in segments, without the copies of other ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from detlab.readers.metrics.frame import join_metrics
from detlab.readers.metrics.log import FILE_SCHEMA, MESSAGE_SCHEMA, SEGMENT_SCHEMA, Log
from detlab.readers.metrics.names import is_measurement
from detlab.readers.metrics.restarts import starts_record, without_copies


class FileContent(NamedTuple):
    """What was read from one file.

    Attributes
    ----------
    source, format, why
        Name of the file, the format it was read as, and what showed it.
    metrics
        Its metrics, with segments from 0.
    messages
        Its messages.
    problems
        What is missing or damaged in it.
    started, ended
        When it was begun and last written to, in seconds since 1970; None when it does not say.
    during
        Times of the first and last record of a console log; None when its lines have none.
    beside
        It was written during the same time as the file before it, and its segments are those of that.
    """

    source: str
    format: str
    why: str
    metrics: pl.DataFrame
    messages: pl.DataFrame
    problems: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    beside: bool = False
    during: tuple[float, float] | None = None


def in_natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Give a key that sorts ``log_9`` before ``log_10``."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


def assemble(files: Sequence[FileContent]) -> tuple[pl.DataFrame, Log]:
    """Make one run of its files.

    Parameters
    ----------
    files
        In the order in which they were written. A file whose steps and values another one has as well is
        the same output, kept by another rank.

    Returns
    -------
    metrics
        The columns of `METRIC_SCHEMA`, in the order of files and lines.
    log
        Messages, segments and files.
    """
    kept: list[FileContent] = []
    notes: list[str] = []
    files = _logs_in_order(files)
    for file in files:
        twin = next((each.source for each in kept if _is_copy(file, each)), "")
        notes.append(f"{file.why}; a copy of {twin}" if twin else file.why)
        if not twin:
            kept.append(file)
    metrics, conflicts = without_copies(_numbered(kept))
    return metrics, Log(
        pl.concat([pl.DataFrame(schema=MESSAGE_SCHEMA), *(file.messages for file in files)]),
        _segments(metrics),
        _files(files, notes),
        conflicts,
    )


def _numbered(files: Sequence[FileContent]) -> pl.DataFrame:
    """Count the segments through all files of a format: no restart lies between a log and a table."""
    parts: list[pl.DataFrame] = []
    places: dict[str, tuple[int, int]] = {}
    for file in files:
        if len(file.metrics):
            first, after = places.get(file.format, (0, 0))
            first = first if file.beside else after
            parts.append(file.metrics.with_columns((pl.col("segment") + first).cast(pl.UInt16)))
            places[file.format] = first, max(after, int(parts[-1]["segment"].max()) + 1)  # type: ignore[arg-type]
    return join_metrics(parts)


def _logs_in_order(files: Sequence[FileContent]) -> list[FileContent]:
    """Put console logs whose records have times in the order of these, and those of one time side by side."""
    ordered = iter(
        sorted((each for each in files if each.during), key=lambda each: each.during or (0.0, 0.0))
    )
    told: list[FileContent] = []
    latest: dict[str, float] = {}
    for file in (next(ordered) if each.during else each for each in files):
        start, end = file.during or (0.0, 0.0)
        last = latest.get(file.format)
        beside = file.beside or (file.during is not None and last is not None and start < last)
        if file.during is not None:
            latest[file.format] = max(end, last or 0.0)
        told.append(file._replace(beside=beside))
    return told


def _is_copy(file: FileContent, before: FileContent) -> bool:
    """Say whether a file has the same steps as another, with the same numbers but for measurements.

    One whose records are all of a later time is none: the same steps ran again.
    """
    if file.during and before.during and not file.beside and file.during[0] > before.during[1]:
        return False
    mine, other = file.metrics, before.metrics
    ends = [(frame["step"].min(), frame["step"].max(), frame["step"].n_unique()) for frame in (mine, other)]
    if not len(mine) or ends[0] != ends[1]:
        return False
    key = ["step", "rank", "name", "value"]
    numbers = [frame.filter(~is_measurement(pl.col("name"))).select(key).unique() for frame in (mine, other)]
    return not len(numbers[0].join(numbers[1], on=key, how="anti", nulls_equal=True))


def _segments(metrics: pl.DataFrame) -> pl.DataFrame:
    rows = metrics.group_by("segment", maintain_order=True).agg(
        pl.col("source").first().cast(pl.String),
        first_step=pl.col("step").min(),
        last_step=pl.col("step").max(),
        num_steps=pl.col("step").n_unique(),
        first_line=pl.col("line").min(),
    )
    new_file = pl.col("source") != pl.col("source").shift()
    back = pl.col("first_step") <= pl.col("last_step").shift()
    whence = pl.format("steps go back from {} to {}", pl.col("last_step").shift(), "first_step")
    why = (
        pl.when(pl.col("segment") == 0)
        .then(pl.lit("the first record"))
        .when(new_file & back)
        .then(pl.format("another file; {}", whence))
        .when(new_file)
        .then(pl.lit("another file"))
        .when(back)
        .then(whence)
        .otherwise(pl.lit("the log says that training starts or a checkpoint was loaded"))
    )
    return rows.with_columns(why=why).select(pl.col(name).cast(kind) for name, kind in SEGMENT_SCHEMA.items())


def _files(files: Sequence[FileContent], notes: Sequence[str]) -> pl.DataFrame:
    rows = [
        {
            "source": file.source,
            "format": file.format,
            "num_records": int(file.metrics.select(starts_record().sum()).item()),
            "why": note,
        }
        for file, note in zip(files, notes, strict=True)
    ]
    return pl.DataFrame(rows, FILE_SCHEMA)

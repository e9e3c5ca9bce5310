"""Console logs: find the lines that hold records, and let the dialect of the log take them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.progress import Told
from detlab.readers.metrics.frame import exact_metrics, join_metrics, printed_metrics, ten_to
from detlab.readers.metrics.lines import line_frames
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
"""What a dialect makes of lines: one row per number, in the order of the file; it may add a ``note``."""

NUMBER: Final = r"(?:[-+]?(?:\d+(?:,\d{3})*\.?\d*(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?)\b))"
"""Regular expression of a number as programs print it."""

WORD_START: Final = r"(?<before>^|[^A-Za-z_])"
"""Regular expression of what may stand before a record: any prefix, and a number that it is glued to."""

_TIME: Final = r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)"

_CUT: Final = r"[-+.,\deE]+[\r\n]*$"
"""What may be the first half of a number; every line has an end of its own here."""


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
        of the `FIELD_SCHEMA`. A number that the end of the file may have cut was taken off before.
    conclude
        Takes all metrics of the file to the same with what follows from numbers that are not there.
    numbers
        Takes what `parse` gave to metrics, for a program that rounds in another way than its digits show.
    besides
        Regular expression that a line matches which looks like a record and is none; "": there are none.
    """

    name: str
    markers: tuple[str, ...]
    record: str
    parse: Callable[[pl.DataFrame, Memory], pl.DataFrame]
    conclude: Callable[[pl.DataFrame], pl.DataFrame] = as_they_are
    numbers: Callable[[pl.DataFrame], pl.DataFrame] = printed_metrics
    besides: str = ""


class Detected(NamedTuple):
    """The dialect of a file, and what showed it."""

    dialect: Dialect
    why: str


def detect(path: Path, dialects: Sequence[Dialect]) -> Detected | None:
    """Find the dialect with the most records in the first part of a file that has any.

    Records with a loss count before all others, which may be what a library says between them.

    Raises
    ------
    TraceError
        The file is not text.
    """
    for lines in line_frames(path):
        hits = {dialect.name: _records(lines, dialect) for dialect in dialects}
        losses = {name: int(found["text"].str.contains("loss").sum()) for name, found in hits.items()}
        order = sorted(dialects, key=lambda each: (-losses[each.name], -len(hits[each.name])))
        best = hits[order[0].name]
        if len(best):
            others = [f"{len(hits[each.name])} of {each.name}" for each in order[1:] if len(hits[each.name])]
            also = f"; it also has records like {', '.join(others)}" if others else ""
            return Detected(order[0], f"line {best['line'][0]} is a record of {order[0].name}{also}")
    return None


def _records(lines: pl.DataFrame, dialect: Dialect) -> pl.DataFrame:
    marked = lines.filter(pl.col("text").str.contains_any(list(dialect.markers)))
    return find_records(marked, dialect.record, dialect.besides)


def find_records(lines: pl.DataFrame, record: str, besides: str = "") -> pl.DataFrame:
    """Keep the lines with a record; one on which several were printed becomes a row for each.

    Parameters
    ----------
    lines
        ``line``, ``text`` and any others.
    record, besides
        Those of the dialect.

    Returns
    -------
    The columns of the lines, and ``glued`` (Boolean: another record follows on the same line).
    """
    has_record = pl.col("text").str.contains(record)
    found = lines.filter(has_record).with_columns(glued=pl.lit(False))
    if len(found) and found.select((pl.col("text").str.count_matches(record) > 1).any()).item():
        marked = pl.col("text").str.replace_all(record, "${before}\n${0}").str.split("\n")
        cut = found.with_row_index("row").with_columns(marked).explode("text").filter(has_record)
        found = cut.with_columns(glued=(pl.col("row") == pl.col("row").shift(-1)).fill_null(False)).drop(
            "row"
        )
    return found.filter(~pl.col("text").str.contains(besides)) if besides else found


def take_apart(records: pl.DataFrame, head: str, field: str) -> pl.DataFrame:
    """Make a row of each field of records.

    The last one of a record that another is glued to is left out: what stands before that other one, a task
    number or a date, may have become a part of it.

    Parameters
    ----------
    records
        ``line``, ``text``, ``glued`` and, where it is known, ``rank``.
    head
        Regular expression with the groups ``step`` and ``fields``.
    field
        Regular expression of one field in ``fields``, with the groups ``name``, ``text`` and
        perhaps ``unit``.

    Returns
    -------
    The columns of `FIELD_SCHEMA`.
    """
    fields = (
        records.with_columns(pl.col("text").str.extract_groups(head))
        .unnest("text")
        .with_columns(pl.col("step").cast(pl.Int64, strict=False), pl.col("fields").str.extract_all(field))
        .with_columns(
            pl.col("fields").list.head(pl.col("fields").list.len() - pl.col("glued").cast(pl.Int64))
        )
        .explode("fields")
        .with_columns(pl.col("fields").str.extract_groups(field))
        .unnest("fields")
        .drop_nulls(["step", "name"])
    )
    return as_fields(fields)


def as_fields(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows the columns of `FIELD_SCHEMA`, null where they have none."""
    lacking = [pl.lit(None).alias(name) for name in FIELD_SCHEMA if name not in rows.columns]
    return rows.with_columns(lacking).select(pl.col(name).cast(kind) for name, kind in FIELD_SCHEMA.items())


def exact_where(metrics: pl.DataFrame, known: pl.Expr | pl.Series, width: int = 64) -> pl.DataFrame:
    """Say of some printed metrics that their text gives every bit of a number of this width."""
    exact = exact_metrics(metrics, width=width)
    finite = pl.col("value").is_finite()
    return metrics.with_columns(
        pl.when(finite & known).then(exact[name]).otherwise(pl.col(name)).alias(name)
        for name in ("width", "bits", "resolution")
    )


def rounded_where(metrics: pl.DataFrame, rounded: pl.Expr | pl.Series, unit: pl.Expr | float) -> pl.DataFrame:
    """Say of some printed metrics that they were rounded to multiples of a unit before."""
    which = pl.col("value").is_finite() & rounded
    resolution = unit if isinstance(unit, pl.Expr) else pl.lit(unit)
    return metrics.with_columns(
        pl.when(which).then(resolution).otherwise("resolution").alias("resolution"),
        pl.when(which).then(0).otherwise("width").cast(pl.UInt8).alias("width"),
        pl.when(~which).then("bits").alias("bits"),
    )


def significant_metrics(fields: pl.DataFrame, digits: int) -> pl.DataFrame:
    """Make metrics of numbers with so many significant digits, of which trailing zeros are not printed."""
    size = pl.col("value").abs()
    # polars gives 2.9999999999999996 for the logarithm of 1000: go beyond it, and back where that is too far
    power = pl.when(size > 0).then((size.log10() + 1e-12).floor()).otherwise(0).cast(pl.Int32, strict=False)
    power = power - (ten_to(power) > size).cast(pl.Int32) * (size > 0)
    return rounded_where(printed_metrics(fields), pl.lit(True), ten_to(power - (digits - 1)))


class ConsoleLog(NamedTuple):
    """What one file holds, and the times of its first and last record where it has them."""

    metrics: pl.DataFrame
    messages: pl.DataFrame
    problems: tuple[str, ...] = ()
    during: tuple[float, float] | None = None


def read_console(path: Path, dialect: Dialect | None, progress: Told | None = None) -> ConsoleLog:
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
    problems: list[str] = []
    times: list[str] = []
    for found, said in _pieces(path, dialect, progress, problems, times):
        metrics.append(found.with_columns(source=pl.lit(path.name, pl.Categorical)))
        messages.append(said.with_columns(source=pl.lit(path.name, pl.Categorical)))
    whole = join_metrics(metrics)
    concluded = dialect.conclude(whole) if dialect else whole
    return ConsoleLog(concluded, pl.concat(messages), tuple(problems), _during(times))


def _during(times: Sequence[str]) -> tuple[float, float] | None:
    """Give the first and last time in seconds; of no zone, as only the times of one run are held together."""
    try:
        known = [datetime.fromisoformat(each).replace(tzinfo=UTC).timestamp() for each in times]
    except ValueError:  # digits that are no date
        return None
    return (known[0], known[-1]) if known else None


def _pieces(
    path: Path, dialect: Dialect | None, progress: Told | None, problems: list[str], times: list[str]
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    memory: Memory = {}
    for lines in line_frames(path, progress, problems):
        said = find_messages(lines.filter(pl.col("text").str.contains_any(MARKERS)))
        found = pl.DataFrame(schema=FIELD_SCHEMA)
        if dialect:
            marked = _uncut(lines).filter(pl.col("text").str.contains_any(list(dialect.markers)))
            found = dialect.parse(marked, memory) if len(marked) else found
            stamps = (
                marked.filter(pl.col("line").is_in(found["line"].implode())) if len(found) else marked[:0]
            )
            ends = stamps.select(pl.col("text").gather([0, -1]).str.extract(_TIME)) if len(stamps) else stamps
            times.extend(ends["text"].drop_nulls())
        yield dialect.numbers(found) if dialect else printed_metrics(found), said


def _uncut(lines: pl.DataFrame) -> pl.DataFrame:
    """Take off the number at the end of a last line that the end of the file may have cut there."""
    if lines["whole"][-1]:
        return lines
    uncut = pl.when("whole").then("text").otherwise(pl.col("text").str.replace(_CUT, ""))
    return lines.with_columns(uncut.alias("text"))

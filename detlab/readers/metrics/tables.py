"""Tables of metrics: CSV, JSON lines and parquet, as W&B, MLflow and own scripts export them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from detlab.errors import TraceError
from detlab.readers.metrics.files import FileFormat, FileNumbers, count_segments
from detlab.readers.metrics.frame import exact_metrics, join_metrics, missing_metrics
from detlab.readers.metrics.numbers import written_metrics
from detlab.readers.metrics.table_files import LINE, has_step, is_table, load_table, step_name

_KEYS: Final = ("key", "metric", "name", "tag")
"""Columns of the names of metrics where each number has a row of its own; the other one is ``value``."""

_RUNS: Final = ("run_uuid", "run_id", "run")
_BOOKKEEPING: Final = (
    r"(?i)^(_?step|(train/|trainer/)?global_step|iteration|iter|rank|_?timestamp|_?runtime|_wandb|"
    r"wall[_ ]?time|relative time.*|is_nan|run_uuid|run_id)$"
)
_RANGE: Final = r"__(MIN|MAX)$"
_OF_RUN: Final = re.compile(r"^(.*\S) - (\S.*)$")
_TAG: Final = re.compile(r"tag-(.+)$")
_EMPTY: Final = ("", "null", "None", "none", "N/A", "NA")
_SHOWN: Final = 3
_FLOAT32: Final = (pl.Float32, pl.Float16)


class _Rows(NamedTuple):
    """A number a row.

    Attributes
    ----------
    rows
        ``at`` (the row of the table), ``line``, ``step``, ``rank``, ``name``, and ``text`` (null: nothing
        was written) or, of a table with types, ``value`` and ``width``.
    notes
        What was left out.
    """

    rows: pl.DataFrame
    notes: tuple[str, ...]


def recognise(path: Path, head: bytes) -> str:
    """Look at the name of the file, or for a column of steps."""
    if is_table(path, head):
        return "its name or first bytes are those of a table"
    return "its first line has a column of steps" if has_step(head) else ""


def read(path: Path) -> FileNumbers:
    """Read a table with a column of steps and one for each metric, or with a row for each number.

    A segment begins where the steps of a metric go back. Where a column has a number in most rows, it is
    absent in a row without one: a writer may leave the cell of a NaN empty.

    Raises
    ------
    TraceError
        The file cannot be read as a table, has no column of steps, no number, or several runs.
    """
    table = load_table(path)
    key = next((name for name in _KEYS if {name, "value"} <= {*table.frame.columns}), None)
    step = step_name(table.frame.columns)
    if step is None:
        known = ", ".join(name for name in table.frame.columns[:8] if name != LINE)
        raise TraceError(
            f"{path} has no column of steps; its columns are: {known}.",
            "export the table with a column step, _step, global_step or iteration",
        )
    frame = _with_steps(table.frame, step)
    found = _long(path, frame, key) if key else _wide(path, frame)
    rows = found.rows.filter(pl.col("step").is_not_null())
    rows = rows.sort("at", maintain_order=True)
    rows = rows.with_columns(segment=pl.Series(count_segments(rows), dtype=pl.UInt16))
    metrics, odd = _metrics(rows)
    if not len(metrics):
        raise TraceError(f"{path} has no number beside a step.", "export the table with the metrics in it")
    bad, without = _without_step(table.frame[step].cast(pl.String), frame["step"].null_count())
    notes = (f"steps are of the column {step}", *found.notes, *without)
    problems = [*table.problems, *bad, *odd]
    return FileNumbers(metrics, tuple(f"{path.name}{problem}" for problem in problems), "; ".join(notes))


def _without_step(cells: pl.Series, num_left_out: int) -> tuple[list[str], list[str]]:
    """Give the problem of rows whose step is no whole number, and the note of those that have none."""
    none = int((cells.is_null() | cells.is_in(_EMPTY)).sum())
    bad = num_left_out - none
    return (
        [f": {bad} rows have no whole number in the column {cells.name}; they are left out"] if bad else [],
        [f"{none} rows without a step are left out"] if none else [],
    )


def _with_steps(frame: pl.DataFrame, step: str) -> pl.DataFrame:
    """Add ``at``, ``line``, ``step`` and ``rank``; a table with its last step first is turned round."""
    steps = pl.col(step).cast(pl.Float64, strict=False)
    whole = pl.when(steps == steps.floor()).then(steps)
    frame = frame.select(
        pl.exclude("at", "line", "rank", "step"),
        line=pl.col(LINE),
        step=whole.cast(pl.Int64, strict=False),
        rank=pl.col("rank").cast(pl.Int64, strict=False)
        if "rank" in frame.columns
        else pl.lit(None, pl.Int64),
    )
    change = frame["step"].drop_nulls().diff()
    if (change < 0).sum() > (change > 0).sum() and (change < 0).sum() > 1:
        frame = frame.reverse()
    return frame.with_row_index("at")


def _wide(path: Path, frame: pl.DataFrame) -> _Rows:
    """Take each column with numbers as a metric."""
    base = frame.select("at", "line", "step", "rank")
    own = {*base.columns, LINE}
    names = pl.Series([name for name in frame.columns if name not in own], dtype=pl.String)
    ranges = names.filter(names.str.contains(_RANGE))
    names = names.filter(~names.str.contains(_RANGE))
    titles, notes = _titles(path, names)
    parts, left_out = [], []
    for name, title in zip(names, titles, strict=True):
        if re.search(_BOOKKEEPING, title):
            continue
        part = _column(frame[name])
        if part is None:
            left_out.append(name)
        else:
            parts.append(pl.concat([base, part.with_columns(name=pl.lit(title))], how="horizontal"))
    if len(ranges):
        notes.append(f"{len(ranges)} columns of W&B's MIN and MAX are left out")
    if left_out:
        notes.append(f"{len(left_out)} columns without numbers are left out: {', '.join(left_out[:_SHOWN])}")
    rows = pl.concat(parts, how="diagonal") if parts else base.clear().with_columns(name=pl.lit(""))
    return _Rows(rows, tuple(notes))


def _titles(path: Path, names: pl.Series) -> tuple[list[str], list[str]]:
    """Give the names of the metrics: W&B puts the run before them, and TensorBoard has them in the file's."""
    pairs = [_OF_RUN.match(name) for name in names if not re.search(_BOOKKEEPING, name)]
    runs = {pair[1] for pair in pairs if pair}
    if pairs and all(pairs) and len(runs) == 1:
        titles = [pair[2] if (pair := _OF_RUN.match(name)) else name for name in names]
        return titles, [f"columns are of the run {runs.pop()}"]
    if pairs and all(pairs) and len(runs) > 1:
        return names.to_list(), [f"columns are of {len(runs)} runs, and keep the names of these"]
    tag = _TAG.search(path.stem)
    return [tag[1] if tag and name == "Value" else name for name in names], []


def _column(column: pl.Series) -> pl.DataFrame | None:
    """Give the numbers of a column as ``text``, or as ``value`` and ``width``; None where it has none."""
    if column.dtype == pl.String:
        if not _is_number(column).any():
            return None
        return pl.DataFrame({"text": _told(column)})
    if column.dtype.is_numeric():
        width = 32 if column.dtype in _FLOAT32 else 64
        return pl.DataFrame(
            {"value": column.cast(pl.Float64), "width": pl.repeat(width, len(column), eager=True)}
        )
    return None


def _is_number(text: pl.Series) -> pl.Series:
    return text.cast(pl.Float64, strict=False).is_not_null()


def _told(text: pl.Series) -> pl.Series:
    """Keep the cells that are to have a row: null for one that may be left out.

    An empty cell is left out where a metric has numbers in fewer than half of the rows; a null that was
    written is not.
    """
    dense = 2 * _is_number(text).sum() >= len(text)
    return text if dense else pl.select(pl.when(text != "").then(text)).to_series().alias("text")


def _long(path: Path, frame: pl.DataFrame, key: str) -> _Rows:
    """Take each row as the number of one metric, in the order of time where that is known."""
    run = next((name for name in _RUNS if name in frame.columns), None)
    if run and frame[run].n_unique() > 1:
        raise TraceError(
            f"{path} holds {frame[run].n_unique()} runs in its column {run}.",
            "export one run into each table",
        )
    if "timestamp" in frame.columns:
        order = frame["timestamp"].cast(pl.Float64, strict=False).arg_sort()
        frame = frame[order].drop("at").with_row_index("at")
    rows = frame.select("at", "line", "step", "rank", name=pl.col(key).cast(pl.String))
    numbers = _column(frame["value"])
    if numbers is None:
        return _Rows(rows.clear(), ())
    if "is_nan" in frame.columns:
        numbers = _with_nans(numbers, frame["is_nan"].cast(pl.String).str.to_lowercase().is_in(["1", "true"]))
    return _Rows(pl.concat([rows, numbers], how="horizontal").filter(pl.col("name").is_not_null()), ())


def _with_nans(numbers: pl.DataFrame, are_nan: pl.Series) -> pl.DataFrame:
    """Put NaN where MLflow's database has 0 and says so beside it."""
    if "text" in numbers.columns:
        return numbers.with_columns(text=pl.when(are_nan).then(pl.lit("NaN")).otherwise("text"))
    return numbers.with_columns(value=pl.when(are_nan).then(pl.lit(np.nan)).otherwise("value"))


def _metrics(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Make metrics of the numbers that there are; and sentences about cells that are none."""
    parts: list[pl.DataFrame] = []
    odd: list[str] = []
    if "text" in rows.columns:
        written = rows.filter(pl.col("text").is_not_null())
        number = _is_number(written["text"])
        empty = written["text"].is_in(_EMPTY)
        parts.append(written_metrics(written.filter(number).drop("value", "width", strict=False)))
        parts.append(_absent(written.filter(empty)))
        odd = _odd(written.filter(~number & ~empty))
    if "value" in rows.columns:
        for width in (32, 64):
            own = rows.filter(pl.col("width") == width)
            dense = own.group_by("name").agg(most=2 * pl.col("value").count() >= pl.len())
            own = own.join(dense, on="name", maintain_order="left")
            parts.append(exact_metrics(own.filter(pl.col("value").is_not_null()), width=width))
            parts.append(_absent(own.filter(pl.col("value").is_null() & pl.col("most"))))
    return join_metrics(parts), odd


def _absent(rows: pl.DataFrame) -> pl.DataFrame:
    note = "an empty cell: not logged, or NaN"
    return missing_metrics(rows.with_columns(state=pl.lit("absent"), note=pl.lit(note)))


def _odd(rows: pl.DataFrame) -> list[str]:
    told = [
        f", line {row['line']}: {row['name']} is '{row['text']:.40}', which is no number"
        for row in rows.head(_SHOWN).iter_rows(named=True)
    ]
    more = len(rows) - _SHOWN
    return [*told, f": and {more} more cells that are no numbers"] if more > 0 else told


TABLE: Final = FileFormat("table", recognise, read)

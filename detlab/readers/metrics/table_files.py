"""CSV, JSON lines and parquet as frames; text stays as it was written, and parquet keeps its types."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from detlab.errors import TraceError
from detlab.readers.metrics.json_numbers import Written, parse_json, read_json
from detlab.readers.metrics.numbers import may_be_cut

STEPS: Final = (
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "step",
    "iteration",
    "iter",
    "_step",
)
"""Columns of steps in the order of trust, in upper or lower case; W&B's ``_step`` counts calls of ``log``."""

LINE: Final = "line of the file"
"""The column of `Table.frame` with the number of the line; null in parquet, which has none."""

_SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_PARQUET: Final = b"PAR1"
_SHOWN: Final = 3

csv.field_size_limit(1 << 24)


class Table(NamedTuple):
    """A table with its header as names of columns.

    Attributes
    ----------
    frame
        A row a row, and its `LINE`. A cell of text is null where its line is too short for it, or its
        object has no such key.
    problems
        One sentence for each line that could not be read, from its place on.
    """

    frame: pl.DataFrame
    problems: tuple[str, ...] = ()


def step_name(columns: Sequence[str]) -> str | None:
    """Choose the column of steps."""
    lower = {name.lower(): name for name in reversed(columns)}
    return next((lower[step] for step in STEPS if step in lower), None)


def is_table(path: Path, head: bytes) -> bool:
    """Say whether the name of a file is that of a table, or it is parquet."""
    return path.suffix.lower() in _SUFFIXES or head.startswith(_PARQUET)


def has_step(head: bytes) -> bool:
    """Say whether the first line is a header or an object with steps."""
    text = head.decode("utf-8-sig", "replace").lstrip()
    first = text.partition("\n")[0].strip()
    if text.startswith(("{", "[")):
        keys = re.findall(r'"([^"]+)" *:', text[:4096] if text.startswith("[") else first)
        return step_name(keys) is not None and (text.startswith("[") or first.endswith("}"))
    names = [name.strip(' "') for name in re.split(_separator(first), first)]
    return len(names) > 1 and step_name(names) is not None


def load_table(path: Path) -> Table:
    """Read a file whole.

    Raises
    ------
    TraceError
        It is empty, or no table of a known kind.
    """
    with path.open("rb") as file:
        head = file.read(1 << 12)
    if head.startswith(_PARQUET) or path.suffix.lower() == ".parquet":
        return Table(_parquet(path))
    start = head.decode("utf-8-sig", "replace").lstrip()[:1]
    if start == "[":
        content = read_json(path)
        return _of_objects([(None, each) for each in content], ())
    if start == "{":
        return _json_lines(path)
    if not start:
        raise TraceError(f"{path} is empty.", "export the table again, or leave the file out")
    return _csv(path)


def _parquet(path: Path) -> pl.DataFrame:
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
        table.validate(full=True)
        columns = dict(zip(table.column_names, table.columns, strict=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        finding = str(error).partition("\n")[0].rstrip(".")
        raise TraceError(
            f"{path} cannot be read as parquet ({finding}).", "copy the file again; it was cut or damaged"
        ) from None
    frame = pl.DataFrame({name: _column(column) for name, column in columns.items() if _is_cell(column.type)})
    return frame.with_columns(pl.lit(None, pl.Int64).alias(LINE))


def _is_cell(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_cell(kind.value_type)
    kinds = pa.types
    known = (kinds.is_string, kinds.is_large_string, kinds.is_floating, kinds.is_integer, kinds.is_boolean)
    return any(holds(kind) for holds in known)


def _column(values: pa.ChunkedArray) -> pl.Series:
    kind = values.type
    column = pl.from_arrow(values.cast(kind.value_type) if pa.types.is_dictionary(kind) else values)
    assert isinstance(column, pl.Series)
    return column


def _json_lines(path: Path) -> Table:
    objects: list[tuple[int | None, Any]] = []
    problems: list[str] = []
    lines = path.read_bytes().decode("utf-8-sig", "replace").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            objects.append((number, parse_json(line)))
        except json.JSONDecodeError:
            cut = number == len(lines)
            problems.append(
                f", line {number}: {'the last line was cut' if cut else 'no JSON object'}; it is left out"
            )
        except RecursionError:
            problems.append(f", line {number}: nests too deep; it is left out")
    return _of_objects(objects, _first(problems))


def _of_objects(objects: Sequence[tuple[int | None, Any]], problems: tuple[str, ...]) -> Table:
    rows = [(line, each) for line, each in objects if isinstance(each, dict)]
    names = dict.fromkeys(name for _, each in rows for name in each)
    columns = {name: pl.Series([_cell(each, name) for _, each in rows], dtype=pl.String) for name in names}
    lines = pl.Series([line for line, _ in rows], dtype=pl.Int64)
    return Table(pl.DataFrame({**columns, LINE: lines}), problems)


def _cell(row: dict[str, Any], name: str) -> str | None:
    """Give a number or text as it was written, null as a word, and None for what a cell cannot hold."""
    if name not in row:
        return None
    value = row[name]
    return "null" if value is None else str(value) if isinstance(value, Written | str) else None


def _csv(path: Path) -> Table:
    problems: list[str] = []
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = file.readline()
        file.seek(0)
        lines = list(_csv_rows(csv.reader(file, delimiter=_separator(first))))
    ended = path.read_bytes()[-1:] in (b"\n", b"\r")
    header = [name.strip() for name in lines[0][1]]
    rows: list[tuple[int, list[str | None]]] = []
    for number, row in lines[1:]:
        if len(row) == len(header):
            rows.append((number, [cell.strip() for cell in row]))
        elif number == lines[-1][0] and not ended and len(row) < len(header):
            problems.append(f", line {number}: the last line was cut; it is left out")
        else:
            problems.append(
                f", line {number}: {len(row)} fields, where the header has {len(header)}; it is left out"
            )
    if (
        rows
        and not ended
        and rows[-1][0] == lines[-1][0]
        and may_be_cut(pl.Series([row[-1] for _, row in rows]))
    ):
        rows[-1][1][-1] = None
        problems.append(f", line {rows[-1][0]}: the last number may have been cut; it is left out")
    names = [name if header.index(name) == at else f"{name} ({at + 1})" for at, name in enumerate(header)]
    cells = list(zip(*(row for _, row in rows), strict=True)) or [()] * len(names)
    columns = {name: pl.Series(column, dtype=pl.String) for name, column in zip(names, cells, strict=True)}
    numbers = pl.Series([number for number, _ in rows], dtype=pl.Int64)
    return Table(pl.DataFrame({**columns, LINE: numbers}), _first(problems))


def _csv_rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Give the rows that are not blank, with the number of the line on which each ends."""
    for row in reader:
        if any(row):
            yield reader.line_num, row


def _separator(line: str) -> str:
    return max(",\t;", key=line.count)


def _first(problems: list[str]) -> tuple[str, ...]:
    more = len(problems) - _SHOWN
    told = problems[:_SHOWN]
    return (*told, f": and {more} more lines that cannot be read") if more > 0 else tuple(told)

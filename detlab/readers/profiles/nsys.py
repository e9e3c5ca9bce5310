"""Nsight Systems: CSV files of ``nsys stats``, with several tables in one file and names of every age."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from detlab.errors import TraceError
from detlab.progress import Told
from detlab.readers.profiles.frame import Profile, Rows, completed
from detlab.readers.profiles.nesting import parents
from detlab.text import plural

_UNITS: Final = {
    "ns": 1e-3, "nsec": 1e-3, "us": 1.0, "usec": 1.0, "µs": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6,
}  # fmt: skip
"""Microseconds in each unit that a column may name; ``nsys stats --timeunit`` chooses it."""

_UNIT: Final = re.compile(r"^(.*?)\s*\(([^()]*)\)$")

_MAX_LINE: Final = 100_000
"""Characters of a line that are looked at; the module csv refuses a cell that is much longer."""

_COLUMNS: Final = (
    "name", "kind", "report", "start_us", "duration_us", "self_us", "count", "thread", "op", "stream",
    "correlation",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How one report writes its rows.

    Attributes
    ----------
    report
        Its name in ``nsys stats --help-reports``.
    kind
        What its rows are about; "" where a column says it.
    name, total, count
        Columns, in lower case and without unit; ``count`` is "" where each row is one event.
    """

    report: str
    kind: str
    name: str
    total: str
    count: str
    also: tuple[str, ...] = ()

    def fits(self, columns: Sequence[str]) -> bool:
        """Say whether a header has what this report has."""
        return {self.name, self.total, *([self.count] if self.count else []), *self.also} <= set(columns)


LAYOUTS: Final = (
    Layout("nvtx_gpu_proj_sum", "device_range", "range", "total proj time", "range instances"),
    Layout("nvtx_kern_sum", "kernel", "kernel name", "total time", "kern inst", ("nvtx range",)),
    Layout("nvtx_sum", "range", "range", "total time", "instances"),
    Layout("cuda_gpu_sum", "", "operation", "total time", "instances", ("category",)),
    Layout("cuda_gpu_mem_time_sum", "memcpy", "operation", "total time", "count"),
    Layout("cuda_gpu_mem_time_sum", "memcpy", "operation", "total time", "operations"),
    Layout("cuda_gpu_mem_time_sum", "memcpy", "operation", "total time", "instances"),
    Layout("cuda_gpu_kern_sum", "kernel", "name", "total time", "instances"),
    Layout("cuda_api_sum", "runtime", "name", "total time", "num calls"),
    Layout("cuda_api_sum", "runtime", "name", "total time", "calls"),
    Layout("nvtx_pushpop_trace", "range", "name", "duration", "", ("durnonchild",)),
    Layout("cuda_gpu_trace", "kernel", "name", "duration", "", ("start", "corrid", "strm")),
)
"""Reports by their columns, the more particular ones first. In order of age ``nvtxsum``, ``gpukernsum`` and
so on became ``nvtx_sum``, ``cuda_gpu_kern_sum``, and ``Average`` became ``Avg (ns)``; the columns read here
kept their names (docs.nvidia.com/nsight-systems/AnalysisGuide, "Statistical Reports")."""

_RENAMED: Final = {
    "nvtxsum": "nvtx_sum", "nvtxppsum": "nvtx_pushpop_sum", "nvtxgpuproj": "nvtx_gpu_proj_sum",
    "gpukernsum": "cuda_gpu_kern_sum", "kernexecsum": "cuda_kern_exec_sum", "nvtxkernsum": "nvtx_kern_sum",
    "cudaapisum": "cuda_api_sum", "gpumemtimesum": "cuda_gpu_mem_time_sum", "gpusum": "cuda_gpu_sum",
    "osrtsum": "osrt_sum", "gputrace": "cuda_gpu_trace", "nvtxpptrace": "nvtx_pushpop_trace",
}  # fmt: skip
"""Names of reports before 2022.4, and what they are called since."""

_IS_NOTICE: Final = re.compile(
    r"Processing \[|Generating |Using |Exporting |\*\* |SKIPPED|NOTICE|WARNING|ERROR"
)
_NOTICE: Final = re.compile(r"(?:/|\()(\w+?)(?:\.py\]|\):?\s*$)")
"""``Processing [a.sqlite] with [/opt/…/reports/nvtx_sum.py]...`` or ``** NVTX Range Summary (nvtx_sum):``."""


def load_nsys(path: Path, told: Told | None = None) -> Profile:
    """Read the tables of one CSV file of ``nsys stats``.

    Parameters
    ----------
    path
        The file; notice lines and empty ones are passed over, one file may hold several tables.
    told
        Told how many characters have been read.

    Raises
    ------
    TraceError
        It holds no table that is known.
    """
    reading = _Reading(path.name)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reading.take_all(csv.reader(_lines(stream, told), strict=True))
    if not reading.reports:
        raise _no_table(path, reading)
    return Profile(
        str(path),
        "nsys",
        _nested(completed(reading.rows.frame())),
        tuple(reading.problems()),
        tuple(reading.notes),
        (("reports", ", ".join(dict.fromkeys(reading.reports))),),
    )


def _nested(rows: pl.DataFrame) -> pl.DataFrame:
    """Find the range around each range of a trace; ranges of other reports are sums, and have none."""
    at = rows.select((pl.col("report") == "nvtx_pushpop_trace").arg_true()).to_series()
    if not len(at):
        return rows
    traced = rows[at]
    thread = traced["thread"].to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    start = traced["start_us"].fill_null(0.0).to_numpy()
    around = parents(thread, start, traced["duration_us"].to_numpy())
    known = at.to_frame("row").with_columns(parent=pl.Series(around))
    found = known.filter(pl.col("parent") >= 0).with_columns(
        parent=at.gather(known.filter(pl.col("parent") >= 0)["parent"]).cast(pl.Int64)
    )
    joined = (
        rows.drop("parent").with_row_index("row").join(found, on="row", how="left", maintain_order="left")
    )
    return joined.select(rows.columns)


def _lines(stream: Any, told: Told | None) -> Iterator[str]:
    """Give lines without null characters, on which the module csv would stop."""
    for line in stream:
        if told:
            told(len(line))
        yield line.replace("\0", "�")[:_MAX_LINE]


def _no_table(path: Path, reading: _Reading) -> TraceError:
    known = ", ".join(dict.fromkeys(layout.report for layout in LAYOUTS))
    also = f" {reading.notes[0]}." if reading.notes else ""
    return TraceError(
        f"{path.name} holds no table of nsys stats that is read here ({known}).{also}",
        "write one: nsys stats --report nvtx_sum,cuda_gpu_kern_sum --format csv FILE.nsys-rep > profile.csv",
    )


class _Reading:
    """Takes the rows of one file one by one, and knows which table they stand in."""

    def __init__(self, file: str) -> None:
        self.rows = Rows(_COLUMNS)
        self.reports: list[str] = []
        self.notes: list[str] = []
        self._file, self._said, self._damage, self._bad = file, "", "", 0
        self._layout: Layout | None = None
        self._report = ""
        self._columns: dict[str, tuple[int, float]] = {}

    def take_all(self, table: Any) -> None:
        """Take all lines, up to one that is no CSV."""
        try:
            for cells in table:
                self.take(cells)
        except csv.Error as error:
            self._damage = f"line {table.line_num:,} is no CSV: {error}; what stands before it is used"

    def take(self, cells: list[str]) -> None:
        """Take one line: a notice, the header of a table, or a row of one."""
        header = _columns(cells)
        if not any(cell.strip() for cell in cells):
            self._layout = None
        elif header:
            self._begin(header)
        elif self._is_notice(cells):
            return
        elif self._layout:
            self._add(self._layout, cells)

    def problems(self) -> list[str]:
        """Say what could not be used."""
        num = self._bad
        bad = [f"{num:,} {plural('row', num)} without a time cannot be used"] if num else []
        return [f"{self._file}: {each}" for each in (*([self._damage] if self._damage else []), *bad)]

    def _is_notice(self, cells: list[str]) -> bool:
        line = ",".join(cells).strip()
        is_one = bool(_IS_NOTICE.match(line))
        if is_one:
            found = _NOTICE.search(line.rstrip(". "))
            self._said, self._layout = found[1] if found else "", None
            if line.startswith(("SKIPPED", "ERROR")):
                self.notes.append(f"{self._file} says: {line}")
        return is_one

    def _begin(self, header: dict[str, tuple[int, float]]) -> None:
        self._layout = next((each for each in LAYOUTS if each.fits(list(header))), None)
        self._columns = header
        said, self._said = _RENAMED.get(self._said, self._said), ""
        self._report = said or (self._layout.report if self._layout else "")
        if self._layout:
            self.reports.append(self._report)
        else:
            named = said or f"with the columns {', '.join(header)}"
            self.notes.append(f"the table {named} is not read")

    def _add(self, layout: Layout, cells: list[str]) -> None:
        """Take a row; a name that is last may hold commas that nobody quoted."""
        at = self._columns[layout.name][0]
        if at == len(self._columns) - 1 and len(cells) > len(self._columns):
            cells = [*cells[:at], ",".join(cells[at:])]
        total, count = (
            self._number(cells, layout.total),
            self._number(cells, layout.count) if layout.count else 1.0,
        )
        if total is None or count is None or total < 0 or len(cells) <= at:
            self._bad += 1
            return
        name, kind = cells[at].strip(), self._kind(layout, cells)
        self.rows.add(
            (
                name,
                kind,
                self._report,
                self._number(cells, "start"),
                total,
                self._number(cells, "durnonchild"),
                int(count),
                self._text(cells, "tid"),
                self._text(cells, "nvtx range"),
                self._whole(cells, "strm"),
                self._whole(cells, "corrid"),
            )
        )

    def _kind(self, layout: Layout, cells: list[str]) -> str:
        if self._report == "osrt_sum":  # calls of the operating system, in the columns of cuda_api_sum
            return "other"
        said = (self._text(cells, "category") or self._text(cells, layout.name) or "").lower()
        if layout.kind in ("", "memcpy") or said.startswith("[cuda mem"):
            return "memset" if "memset" in said else "memcpy" if "mem" in said else "kernel"
        return layout.kind

    def _number(self, cells: list[str], column: str) -> float | None:
        """Read a number in microseconds, or as it is where its column has no unit of time."""
        if column not in self._columns:
            return None
        at, unit = self._columns[column]
        try:
            number = float(re.sub(r"[,_\s\u202f\u00a0']", "", cells[at])) * unit
        except (ValueError, IndexError):
            return None
        return number if math.isfinite(number) and abs(number) < 1e18 else None

    def _whole(self, cells: list[str], column: str) -> int | None:
        number = self._number(cells, column)
        return int(number) if number is not None else None

    def _text(self, cells: list[str], column: str) -> str | None:
        at = self._columns.get(column, (len(cells), 1.0))[0]
        return cells[at].strip() or None if at < len(cells) else None


def _columns(cells: Sequence[str]) -> dict[str, tuple[int, float]]:
    """Give the columns of a header by name, each with its position and its unit; nothing of another line."""
    found: dict[str, tuple[int, float]] = {}
    for at, cell in enumerate(cells):
        parts = _UNIT.match(cell.strip())
        name, unit = (parts[1], parts[2].strip().lower()) if parts else (cell.strip(), "")
        found.setdefault(name.strip().lower(), (at, _UNITS.get(unit, 1.0)))
    names = set(found)
    is_sum = bool(names & {"total time", "total proj time"}) and bool(names & {"name", "range", "operation",
                                                                             "kernel name"})  # fmt: skip
    is_trace = {"start", "duration"} <= names and "name" in names
    return found if is_sum or is_trace else {}

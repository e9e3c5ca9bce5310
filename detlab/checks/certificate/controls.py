"""Negative controls of the comparison: one planted bit must be found, or its silence proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison import compare, compare_metrics
from detlab.run import Run
from detlab.schema import Coordinate, Evidence, Kind
from detlab.store import RankTrace
from detlab.store.batches import Batches
from detlab.store.index import INDEXED_COLUMNS, index_batch

_OUTPUT_NIBBLE: Final = 15


@dataclass(frozen=True, slots=True)
class _OneBit:
    """Batches of events in which the output digest of one event has its lowest bit turned."""

    source: Batches
    number: int
    row: int

    def read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        columns = self.source.read(number, names)
        if number != self.number or "out_digest" not in columns:
            return columns
        turned = columns["out_digest"].copy()
        turned[self.row] ^= np.uint64(1)
        return columns | {"out_digest": turned}

    def __len__(self) -> int:
        return len(self.source)


class Control(NamedTuple):
    """What came out of one control.

    Attributes
    ----------
    is_possible, is_caught
        Whether there was a bit to turn, and whether the comparison named its place first.
    says
        What was turned, or why nothing was.
    """

    is_possible: bool
    is_caught: bool
    says: str


def trace_control(a: Run, b: Run) -> Control:
    """Turn one bit of one output of run b; it is caught where this call is named as the first of its rank."""
    found = _planted(a, b)
    if found is None:
        return Control(False, False, "no output with exact evidence is there in which a bit could be turned")
    run, coordinate, seq = found
    first = compare(a, run).first.filter(pl.col("coordinate") == str(coordinate))
    says = f"a bit that was turned in event {seq} of {coordinate}"
    return Control(True, first["seq_b"].to_list() == [seq], says)


def _planted(a: Run, run: Run) -> tuple[Run, Coordinate, int] | None:
    """Give run b with one bit turned in the middle of the last rank and steps that both runs have."""
    steps = sorted(set(a.steps) & set(run.steps))
    for place in reversed(range(len(run.ranks))):
        trace = run.ranks[place]
        row = _fitting_row(trace, steps) if trace.header.coordinate in a.by_coordinate else None
        if row is not None:
            ranks = (*run.ranks[:place], _turned(trace, row), *run.ranks[place + 1 :])
            seq = int(trace.columns(row, row + 1, ["seq"])["seq"][0])
            return replace(run, ranks=ranks), trace.header.coordinate, seq
    return None


def _fitting_row(trace: RankTrace, steps: Sequence[int]) -> int | None:
    """Give the row of an op whose outputs have exact evidence and no flag, about the middle of some steps."""
    starts = trace.starts
    records = np.flatnonzero(np.isin(trace.index["step"], steps)).tolist()
    middle = records[len(records) // 2] if records else 0
    for record in sorted(records, key=lambda each: abs(each - middle)):
        columns = trace.columns(int(starts[record]), int(starts[record + 1]), ["kind", "evidence", "flags"])
        fits = (columns["kind"] == Kind.OP) & (columns["flags"] == 0)
        fits &= (columns["evidence"] & _OUTPUT_NIBBLE) == Evidence.EXACT
        if fits.any():
            return int(starts[record]) + int(np.flatnonzero(fits)[fits.sum() // 2])
    return None


def _turned(trace: RankTrace, row: int) -> RankTrace:
    """Give the trace with one bit turned, and the segment's digest as a recorder would have written it."""
    bounds, starts = trace.batch_starts(), trace.starts
    number = int(np.searchsorted(bounds, row, side="right")) - 1
    record = int(np.searchsorted(starts, row, side="right")) - 1
    turned = replace(trace, events=_OneBit(trace.events, number, row - int(bounds[number])))
    columns = turned.columns(int(starts[record]), int(starts[record + 1]), INDEXED_COLUMNS)
    index = trace.index.copy()
    index["values"][record] = index_batch(columns, trace.names.callee_hashes, trace.names.meta_hashes)[
        "values"
    ][0]
    return replace(turned, index=index)


def metrics_control(a: Run, b: Run) -> Control:
    """Turn the last bit of one number of run b; it is caught where this number is named as the first."""
    row = _fitting_number(compare_metrics(a, b).values, b.metrics)
    if row is None:
        return Control(False, False, "no number whose bits are known was compared")
    is_it = pl.int_range(pl.len()) == row["number"]
    turned = b.metrics.with_columns(
        bits=pl.when(is_it).then(pl.col("bits") ^ 1).otherwise(pl.col("bits")),
        value=pl.when(is_it).then(_neighbour(row)).otherwise(pl.col("value")),
        state=pl.when(is_it).then(pl.lit("value", b.metrics.schema["state"])).otherwise(pl.col("state")),
    )
    first = compare_metrics(a, replace(b, metrics=turned)).first
    named = first.select("step", pl.col("name").cast(pl.String)).rows()
    says = f"a bit that was turned in {row['name']} of step {row['step']}"
    return Control(True, (row["step"], str(row["name"])) in named, says)


def _fitting_number(values: pl.DataFrame, metrics: pl.DataFrame) -> dict[str, Any] | None:
    """Give the row of a number that was compared bit by bit, from the segment that counts."""
    key = ["name", "rank", "step", "segment"]
    compared = values.filter(pl.col("outcome") == "bit-equal", pl.col("width_b") > 0)
    places = compared.select(*key[:3], segment="segment_b").with_columns(pl.col("name").cast(pl.String))
    rows = metrics.with_row_index("number").with_columns(pl.col("name").cast(pl.String))
    rows = rows.filter(pl.col("state").is_in(["value", "zero"]), pl.col("width") > 0)
    fitting = rows.join(places, on=key, how="semi", nulls_equal=True, maintain_order="left")
    return fitting.row(len(fitting) // 2, named=True) if len(fitting) else None


def _neighbour(row: dict[str, Any]) -> float:
    """Give the number whose bits are those of a row with the last one turned."""
    kind, size = (np.float32, np.uint32) if row["width"] == 32 else (np.float64, np.uint64)
    return float(np.array(row["bits"] ^ 1, size).view(kind))

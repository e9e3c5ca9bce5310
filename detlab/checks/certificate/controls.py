"""Negative controls of the comparison: one planted bit must be found, or its silence proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison import compare, compare_metrics
from detlab.run import Run
from detlab.schema import Evidence, Kind
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


def trace_control(a: Run, b: Run) -> str:
    """Turn one bit of one output of run b and compare again.

    Returns
    -------
    Empty where the comparison names this very call as the first that differs on its rank; otherwise one
    sentence that says what it missed.
    """
    found = _planted(b)
    if found is None:
        return "no output with exact evidence was recorded in which a bit could be turned"
    run, rank, seq = found
    first = compare(a, run).first.filter(pl.col("rank") == rank)
    if first["seq_b"].to_list() == [seq]:
        return ""
    return f"a bit that was turned in event {seq} of rank {rank} was not found"


def _planted(run: Run) -> tuple[Run, int, int] | None:
    """Give the run with one bit turned in the middle of its last rank that has a fitting event."""
    for place in reversed(range(len(run.ranks))):
        trace = run.ranks[place]
        row = _fitting_row(trace)
        if row is not None:
            ranks = (*run.ranks[:place], _turned(trace, row), *run.ranks[place + 1 :])
            seq = int(trace.columns(row, row + 1, ["seq"])["seq"][0])
            return replace(run, ranks=ranks), trace.header.rank, seq
    return None


def _fitting_row(trace: RankTrace) -> int | None:
    """Give the row of an op whose outputs have exact evidence and no flag, about the middle of the trace."""
    starts = trace.starts
    middle = len(trace.index) // 2
    for record in sorted(range(len(trace.index)), key=lambda each: abs(each - middle)):
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


def metrics_control(a: Run, b: Run, names: Sequence[str]) -> str:
    """Turn the last bit of one number of run b and compare again; returns as `trace_control` does.

    Parameters
    ----------
    names
        The metrics that were compared.
    """
    rows = b.metrics.with_row_index("number").filter(
        pl.col("name").cast(pl.String).is_in(list(names))
        & (pl.col("state") == "value")
        & (pl.col("width") > 0)
    )
    if not len(rows):
        return "no number whose bits are known could be turned"
    row = rows.row(len(rows) // 2, named=True)
    is_it = pl.int_range(pl.len()) == row["number"]
    turned = b.metrics.with_columns(
        bits=pl.when(is_it).then(pl.col("bits") ^ 1).otherwise(pl.col("bits")),
        value=pl.when(is_it).then(_neighbour(row)).otherwise(pl.col("value")),
    )
    first = compare_metrics(a, replace(b, metrics=turned)).first
    if {"step": row["step"], "name": row["name"]} in first.select(
        "step", pl.col("name").cast(pl.String)
    ).to_dicts():
        return ""
    return f"a bit that was turned in {row['name']} of step {row['step']} was not found"


def _neighbour(row: dict[str, Any]) -> float:
    """Give the number whose bits are those of a row with the last one turned."""
    kind, size = (np.float32, np.uint32) if row["width"] == 32 else (np.float64, np.uint64)
    return float(np.array(row["bits"] ^ 1, size).view(kind))

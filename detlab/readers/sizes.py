"""How large a trace is before any of it is loaded: bytes on disk and events of each rank."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.errors import TraceError
from detlab.readers import megatron_bridge, native, rank_local
from detlab.readers.bridge_layout import read_layout
from detlab.readers.json_lines import head
from detlab.store.index import read_index
from detlab.store.layout import RankFiles, find_ranks

SIZE_COLUMNS: Final[dict[str, Any]] = {
    "rank": pl.Int64,
    "num_bytes": pl.Int64,
    "num_events": pl.Int64,
    "is_estimate": pl.Boolean,
    "first_step": pl.Int64,
    "last_step": pl.Int64,
    "problem": pl.String,
}
"""Columns of `read_sizes`."""

_HEAD_BYTES: Final = 1 << 20
"""How much of a file is looked at to estimate how many lines it has."""

_Row = dict[str, Any]


def read_sizes(path: str | PathLike[str]) -> pl.DataFrame:
    """Read how large the trace of each rank is, without reading its events.

    Parameters
    ----------
    path
        A run of any known format of traces.

    Returns
    -------
    One row per rank: ``rank``, ``num_bytes`` (of its files), ``num_events`` (by the index of detlab's own
    traces, as far as the file reaches; an estimate by the first lines for others; null where neither tells),
    ``is_estimate``, ``first_step`` and ``last_step`` (null where only the events tell), ``problem`` (that the
    file of events ends before its index does; null where nothing is known to be missing).

    Raises
    ------
    TraceError
        There is nothing there, or no trace that any reader knows.
    """
    place = Path(path)
    if not place.exists():
        raise TraceError(f"{place} does not exist.", "give the folder that the recorder wrote into")
    for reader, rows in ((native, _native), (megatron_bridge, _streams), (rank_local, _rank_files)):
        if reader.matches(place):
            return pl.DataFrame(sorted(rows(place), key=lambda row: int(row["rank"])), SIZE_COLUMNS)
    raise TraceError(f"{place} holds no trace that detlab knows.", "give a folder that load_run can read")


def _native(place: Path) -> Iterator[_Row]:
    for rank in find_ranks(place):
        files = RankFiles(place, rank)
        row: _Row = {"rank": rank, "num_bytes": files.num_bytes(), "is_estimate": False}
        index = read_index(files.index)
        if index is not None:
            size = files.events.stat().st_size if files.events.is_file() else 0
            row |= _indexed(index, index[index["end"] <= size])
        yield row


def _indexed(index: NDArray[np.void], whole: NDArray[np.void]) -> _Row:
    """Sum up the records of an index whose events are there."""
    num_events = int(whole["num_rows"].sum(dtype=np.int64))
    row: _Row = {"num_events": num_events}
    if len(whole):
        row |= {"first_step": int(whole["step"].min()), "last_step": int(whole["step"].max())}
    if len(whole) < len(index):
        of_all = int(index["num_rows"].sum(dtype=np.int64))
        row["problem"] = f"its file of events was cut: {num_events:,} of {of_all:,} events are there"
    return row


def _streams(place: Path) -> Iterator[_Row]:
    for stream in read_layout(megatron_bridge.streams_in(place), place).streams:
        row = _lines(stream.path)
        if row["num_events"]:
            row["num_events"] -= 1  # the first line is the header
        yield {"rank": stream.rank, **row}


def _rank_files(place: Path) -> Iterator[_Row]:
    for rank, file in rank_local.files_in(place).items():
        yield {"rank": rank, **_lines(file)}


def _lines(file: Path) -> _Row:
    """Give the size of a file of lines, and how many it has; of a compressed one the size alone."""
    size = file.stat().st_size
    if file.suffix == ".gz":
        return {"num_bytes": size, "num_events": None, "is_estimate": False}
    start = head(file, _HEAD_BYTES)
    whole = start.count(b"\n")
    if len(start) == size:
        return {"num_bytes": size, "num_events": whole, "is_estimate": False}
    lines = round(size * whole / (start.rfind(b"\n") + 1)) if whole else 1
    return {"num_bytes": size, "num_events": lines, "is_estimate": True}

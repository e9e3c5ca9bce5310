"""Write one rank's trace: append-only, each batch readable as soon as it is flushed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from detlab.errors import RecordingError
from detlab.schema import DETAIL_DTYPE, EVENT_DTYPE
from detlab.store.batches import COMPRESSION_KEY
from detlab.store.header import RankHeader
from detlab.store.index import index_batch, segment_starts, write_index_start
from detlab.store.layout import MAX_BATCH_ROWS, RankFiles, arrow_schema
from detlab.store.names import NameTables


class TraceWriter:
    """The files of one rank, written in the order names, details, events, index.

    A killed process leaves every flushed batch readable, and its names before it.

    Parameters
    ----------
    folder
        The run's folder; created when it is not there.
    header
        What this rank knows of itself.
    compress
        Compress the batches with zstd: about half the size, slower to compare.

    Raises
    ------
    RecordingError
        This rank has files there already; a trace is never overwritten.
    """

    def __init__(self, folder: Path, header: RankHeader, *, compress: bool = True) -> None:
        files = RankFiles(folder, header.rank)
        folder.mkdir(parents=True, exist_ok=True)
        if files.header.exists() or files.events.exists():
            raise RecordingError(
                f"{files.header} exists: rank {header.rank} was recorded there before.",
                "record into a new folder, or remove the old run first",
            )
        self.names = NameTables()
        self._folder, self._header = folder, header
        header.save(folder)
        self._names_file: BinaryIO = files.names.open("xb", buffering=0)
        self._index_file = _start_index(files.index)
        codec = "zstd" if compress else None
        self._events = _Stream(files.events, EVENT_DTYPE, codec)
        self._details = _Stream(files.details, DETAIL_DTYPE, codec)
        self._pending = np.empty(0, EVENT_DTYPE)
        self._pending_details = np.empty(0, DETAIL_DTYPE)

    def add_group(self, label: str, members: tuple[int, ...]) -> None:
        """Register a communicator that was met while recording, its members in group order."""
        if self._header.groups.get(label) != members:
            self._header = replace(self._header, groups={**self._header.groups, label: members})
            self._header.save(self._folder)

    def append(self, events: NDArray[np.void], details: NDArray[np.void] | None = None) -> None:
        """Append events in the order of their completion, and the detail rows that belong to them."""
        self._pending = np.concatenate([self._pending, events])
        if details is not None:
            self._pending_details = np.concatenate([self._pending_details, details])
        while len(self._pending) > MAX_BATCH_ROWS:
            self._write_batch(self._next_cut())

    def _next_cut(self) -> int:
        """Give the number of rows of the next batch: whole segments, or a piece of a larger one."""
        starts = segment_starts({name: self._pending[name] for name in ("step", "microbatch", "phase")})
        whole = starts[starts <= MAX_BATCH_ROWS][-1]
        return int(whole) or MAX_BATCH_ROWS

    def flush(self) -> None:
        """Make all that was appended so far readable, as at the end of a step."""
        if len(self._pending):
            self._write_batch(len(self._pending))

    def _write_batch(self, num_rows: int) -> None:
        rows, self._pending = self._pending[:num_rows], self._pending[num_rows:]
        belongs = np.isin(self._pending_details["seq"], rows["seq"])
        details, self._pending_details = self._pending_details[belongs], self._pending_details[~belongs]
        self._names_file.write(self.names.unwritten_lines())
        self._details.write(details)
        number, offset, end = self._events.write(rows)
        columns = {name: rows[name] for name in EVENT_DTYPE.names or ()}
        place = (number, offset, end)
        records = index_batch(columns, self.names.callee_hashes, self.names.meta_hashes, place)
        self._index_file.write(records.tobytes())

    def close(self) -> None:
        """Flush, and mark the streams as complete."""
        self.flush()
        self._details.close()
        self._events.close()
        self._index_file.close()
        self._names_file.close()


class _Stream:
    """An Arrow IPC stream on an unbuffered file."""

    def __init__(self, path: Path, dtype: np.dtype[np.void], codec: str | None) -> None:
        self._names = dtype.names or ()
        metadata = {COMPRESSION_KEY: codec.encode()} if codec else None
        self._schema = arrow_schema(dtype).with_metadata(metadata)
        self._sink = pa.OSFile(str(path), "wb")
        options = pa.ipc.IpcWriteOptions(compression=codec)
        self._writer = pa.ipc.new_stream(self._sink, self._schema, options=options)
        self._num_batches = 0
        self._schema_size = self._schema.serialize().size

    def write(self, rows: NDArray[np.void]) -> tuple[int, int, int]:
        """Append one batch; give its ordinal, its byte offset and the offset just after it."""
        arrays = [pa.array(np.ascontiguousarray(rows[name])) for name in self._names]
        offset = self._sink.tell() or self._schema_size  # Arrow writes the schema with the first batch
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._num_batches += 1
        return self._num_batches - 1, offset, self._sink.tell()

    def close(self) -> None:
        self._writer.close()
        self._sink.close()


def _start_index(path: Path) -> BinaryIO:
    write_index_start(path)
    return path.open("ab", buffering=0)

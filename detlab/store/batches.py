"""Record batches by number, from an Arrow IPC stream on disk or from memory.

A stream that was cut at any byte still gives every complete batch; `FileBatches` says where it stops.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from detlab.errors import TraceError
from detlab.store.layout import arrow_schema

END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""How a stream ends that was closed and not cut."""

_NUM_RECENT: Final = 8
"""Decoded batches that are kept: questions about single rows come in runs."""

COMPRESSION_KEY: Final = b"compression"
"""Key in the schema's metadata under which a compressed stream names its codec."""


class Batches(Protocol):
    """A numbered sequence of batches of one row type."""

    def read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give some columns of one batch, without a copy where the source allows it."""
        ...

    def __len__(self) -> int:
        """Count the batches."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryBatches:
    """Batches of rows that are already in memory, such as a foreign format's or a synthetic run's."""

    rows: Sequence[NDArray[np.void]]

    def read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give some columns of one batch."""
        return {name: self.rows[number][name] for name in names}

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Scan:
    """Where the batches of a stream lie.

    Attributes
    ----------
    places
        Byte offset of each complete batch and the offset just after it.
    problem
        One sentence about where the stream stops; empty when it was closed properly.
    """

    places: tuple[tuple[int, int], ...]
    problem: str = ""


class FileBatches:
    """The complete batches of one Arrow IPC stream, mapped into memory and decoded when asked for.

    Parameters
    ----------
    path
        The stream.
    dtype
        The row type it must hold.

    Raises
    ------
    TraceError
        The file cannot be opened, or holds other columns.
    """

    def __init__(self, path: Path, dtype: np.dtype[np.void]) -> None:
        self._path = path
        self._dtype = dtype
        self._places: list[tuple[int, int]] | None = None
        self._recent: OrderedDict[tuple[int, tuple[str, ...]], dict[str, NDArray[Any]]] = OrderedDict()
        self._open()

    def _open(self) -> None:
        try:
            self._buffer = pa.memory_map(str(self._path)).read_buffer()
        except OSError as error:
            raise TraceError(
                f"{self._path} cannot be opened: {error}", "copy the run's folder again"
            ) from error
        self._schema, self._first = self._read_schema()

    def __getstate__(self) -> dict[str, object]:
        kept = {"_path": self._path, "_dtype": self._dtype, "_places": self._places}
        return {**kept, "_recent": OrderedDict()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._open()

    def _read_schema(self) -> tuple[pa.Schema | None, int]:
        """Read the schema message; None when the file is cut inside it."""
        reader = pa.BufferReader(self._buffer)
        try:
            schema = pa.ipc.read_schema(reader)
        except (pa.ArrowInvalid, OSError, EOFError):
            return None, 0
        if not schema.equals(arrow_schema(self._dtype)):
            raise TraceError(
                f"{self._path} has the columns {', '.join(schema.names)}, not those of this version.",
                "read it with the version of detlab that recorded it",
            )
        return schema, reader.tell()

    @property
    def first_offset(self) -> int:
        """Byte offset of the first batch."""
        return self._first

    def ends_at(self, offset: int) -> bool:
        """Say whether the stream was closed just after this offset."""
        return bool(self._buffer[offset:].to_pybytes() == END_OF_STREAM) if self._schema else False

    @property
    def is_closed(self) -> bool:
        """Whether the stream ends as one that was closed."""
        return self.ends_at(len(self._buffer) - len(END_OF_STREAM))

    def trust(self, places: Iterable[tuple[int, int]]) -> None:
        """Take the places of the batches from an index instead of scanning for them."""
        self._places = list(places)

    def scan(self) -> Scan:
        """Find every complete batch by walking over the message headers."""
        places: list[tuple[int, int]] = []
        name = self._path.name
        if self._schema is None:
            return Scan((), f"{name} is cut inside its first {len(self._buffer)} bytes: no event is whole")
        position = self._first
        while (end := self._batch_end(position)) is not None:
            places.append((position, end))
            position = end
        self._places = places
        if self.ends_at(position):
            return Scan(tuple(places))
        rest = len(self._buffer) - position
        where = f"{rest} bytes after it are no whole batch" if rest else "the run did not close it"
        return Scan(
            tuple(places), f"{name} stops after {len(places)} whole batches, at byte {position}: {where}"
        )

    def _batch_end(self, position: int) -> int | None:
        reader = pa.BufferReader(self._buffer[position:])
        try:
            message = pa.ipc.read_message(reader)
        except (pa.ArrowInvalid, OSError, EOFError):
            return None
        return position + int(reader.tell()) if message.type == "record batch" else None

    def read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give some columns of one batch; only these are decompressed.

        Raises
        ------
        TraceError
            The bytes of the batch are damaged.
        """
        key = number, tuple(names)
        recent = self._recent.get(key) or self._among_recent(number, names)
        if recent is None:
            recent = self._recent[key] = self._read(number, names)
            while len(self._recent) > _NUM_RECENT:
                self._recent.popitem(last=False)
        return recent

    def _among_recent(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]] | None:
        """Give columns that were decoded a moment ago together with others."""
        for (of_batch, _), columns in list(self._recent.items()):  # another thread may be adding
            if of_batch == number and all(name in columns for name in names):
                return {name: columns[name] for name in names}
        return None

    def _read(self, number: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        if self._places is None:
            self.scan()
        assert self._places is not None
        offset, end = self._places[number]
        try:
            batch = self._decode(self._buffer[offset:end], names)
            return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
        except (pa.ArrowInvalid, OSError, EOFError, KeyError) as error:
            raise TraceError(
                f"{self._path} is damaged in batch {number}, bytes {offset} to {end}: {error}",
                "copy the file again, or compare without this rank",
            ) from error

    def _decode(self, encoded: pa.Buffer, names: Sequence[str]) -> pa.RecordBatch:
        assert self._schema is not None
        if not (self._schema.metadata or {}).get(COMPRESSION_KEY):
            return pa.ipc.read_record_batch(pa.ipc.read_message(pa.BufferReader(encoded)), self._schema)
        # Arrow chooses fields only when it reads a stream: put the schema before this one batch.
        fields = [self._schema.get_field_index(name) for name in names]
        stream = self._buffer[: self._first].to_pybytes() + encoded.to_pybytes()
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        return pa.ipc.open_stream(stream, options=options).read_next_batch()

    def __len__(self) -> int:
        if self._places is None:
            self.scan()
        return len(self._places or ())

"""Names of the files of a trace, and how a file appears whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MANIFEST: Final = "manifest.json"
CAPTURES: Final = "captures"
MAX_BATCH_ROWS: Final = 65_536
"""A record batch holds whole segments up to this many rows, and is cut inside one only beyond it."""

_HEADER_NAME: Final = re.compile(r"rank(\d{5,})\.header\.json")


@dataclass(frozen=True, slots=True)
class RankFiles:
    """The paths of one rank's files inside a run's folder."""

    folder: Path
    rank: int

    def _path(self, suffix: str) -> Path:
        return self.folder / f"rank{self.rank:05d}.{suffix}"

    @property
    def header(self) -> Path:
        """Coordinates, groups and recipe as this rank saw them."""
        return self._path("header.json")

    @property
    def events(self) -> Path:
        """The Arrow IPC stream of event rows."""
        return self._path("events.arrows")

    @property
    def details(self) -> Path:
        """The Arrow IPC stream of per-tensor rows; one batch for each batch of events."""
        return self._path("details.arrows")

    @property
    def names(self) -> Path:
        """The append-only name tables as JSON lines."""
        return self._path("names.jsonl")

    @property
    def index(self) -> Path:
        """The segment records; can be rebuilt from the events."""
        return self._path("index")

    def num_bytes(self) -> int:
        """Add up the sizes of the files that are there."""
        files = (self.header, self.events, self.details, self.names, self.index)
        return sum(file.stat().st_size for file in files if file.is_file())


def find_ranks(folder: Path) -> list[int]:
    """List the ranks that have a header in this folder, in order."""
    matches = (_HEADER_NAME.fullmatch(path.name) for path in folder.glob("rank*.header.json"))
    return sorted(int(match[1]) for match in matches if match)


def arrow_schema(dtype: np.dtype[np.void]) -> pa.Schema:
    """Give the Arrow schema (no nulls) with the columns of a row type of `detlab.schema`."""
    names = dtype.names or ()
    return pa.schema([pa.field(name, pa.from_numpy_dtype(dtype[name]), nullable=False) for name in names])


def write_json(path: Path, content: object) -> None:
    """Write JSON that is either there whole or not at all, and replaces what was there."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def write_bytes(path: Path, content: ReadableBuffer) -> None:
    """Write a file that is either there whole or not at all, and replaces what was there."""
    with written_whole(path) as partial:
        partial.write_bytes(content)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give the place to write a file at, which replaces ``path`` at the end of a block that ends well."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

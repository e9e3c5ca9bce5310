"""Read one rank's trace: its header, names and segments at once, its events only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detlab.errors import TraceError
from detlab.schema import DETAIL_DTYPE, EVENT_DTYPE, INDEX_DTYPE
from detlab.store.batches import Batches, FileBatches, MemoryBatches
from detlab.store.header import RankHeader
from detlab.store.index import INDEXED_COLUMNS, index_batch, is_sound, read_index
from detlab.store.layout import RankFiles
from detlab.store.names import NameFile, NameTables


@dataclass(frozen=True, slots=True, repr=False)
class RankTrace:
    """The events of one rank, in the order in which they completed.

    Attributes
    ----------
    header, names
        What the rank says of itself, and its callee and meta tables.
    index
        One `INDEX_DTYPE` record per segment; a segment larger than a batch has one per piece.
    events, details
        Batches of event rows; detail batch *i* holds the tensors of the events of batch *i*.
    complete
        Whether the rank closed its stream and nothing of it is missing.
    problems
        One sentence for each thing that is missing.
    num_bytes
        Size of the rank's files; 0 for a trace that has none.
    """

    header: RankHeader
    names: NameTables | NameFile
    index: NDArray[np.void]
    events: Batches
    details: Batches
    complete: bool = True
    problems: tuple[str, ...] = ()
    num_bytes: int = 0

    def __repr__(self) -> str:
        cut = "" if self.complete else ", cut"
        return (
            f"RankTrace(rank {self.header.rank} at {self.header.coordinate}: {self.num_events:,} events{cut})"
        )

    @property
    def num_events(self) -> int:
        """Number of whole events."""
        return int(self.index["num_rows"].sum(dtype=np.int64))

    @property
    def starts(self) -> NDArray[np.int64]:
        """Row number of the first event of each index record, and the total as a last entry."""
        return np.concatenate([[0], np.cumsum(self.index["num_rows"], dtype=np.int64)])

    @property
    def steps(self) -> list[int]:
        """The steps that have events, ascending."""
        return sorted(set(self.index["step"].tolist()))

    def batch_starts(self) -> NDArray[np.int64]:
        """Row number of the first event of each batch, and the total as a last entry."""
        first = np.flatnonzero(np.diff(self.index["batch"], prepend=-1, append=-1))
        return self.starts[first] if len(self.index) else np.zeros(1, np.int64)

    def blocks(
        self, start: int, stop: int, names: Sequence[str]
    ) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        """Give rows ``start`` to ``stop`` batch by batch: the first row number, and the columns."""
        bounds = self.batch_starts()
        number = int(np.searchsorted(bounds, start, side="right")) - 1
        while start < stop:
            first, last = int(bounds[number]), min(stop, int(bounds[number + 1]))
            columns = self.events.read(number, names)
            yield start, {name: column[start - first : last - first] for name, column in columns.items()}
            start, number = last, number + 1

    def columns(self, start: int, stop: int, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give columns of rows ``start`` to ``stop`` as whole arrays."""
        blocks = [block for _, block in self.blocks(start, stop, names)]
        if not blocks:
            return {name: np.empty(0, EVENT_DTYPE[name]) for name in names}
        return blocks[0] if len(blocks) == 1 else _concatenate(blocks, names)

    def check(self, records: NDArray[np.intp]) -> None:
        """Hash some segments again and compare with their digests in the index.

        Raises
        ------
        TraceError
            The events of a segment are not those that were indexed: bytes of the file are damaged.
        """
        if not len(records):
            return
        hashes = self.names.callee_hashes, self.names.meta_hashes
        for record in records:
            claimed = self.index[record]
            start, stop = self.starts[record], self.starts[record + 1]
            found = index_batch(self.columns(int(start), int(stop), INDEXED_COLUMNS), *hashes)
            if any(found[0][name] != claimed[name] for name in ("identity", "values", "num_rows")):
                raise TraceError(
                    f"rank {self.header.rank}: events {start} to {stop} (step {claimed['step']}, bytes "
                    f"{claimed['offset']} to {claimed['end']}) do not have their recorded digest.",
                    "copy the rank's files again; they were damaged after they were written",
                )

    def details_of(self, row: int) -> NDArray[np.void]:
        """Give the detail rows of one event, in their order; empty when none were recorded."""
        number = int(np.searchsorted(self.batch_starts(), row, side="right")) - 1
        if number >= len(self.details):
            return np.empty(0, DETAIL_DTYPE)
        seq = self.columns(row, row + 1, ["seq"])["seq"][0]
        columns = self.details.read(number, DETAIL_DTYPE.names or ())
        chosen = np.flatnonzero(columns["seq"] == seq)
        rows = np.empty(len(chosen), DETAIL_DTYPE)
        for name in DETAIL_DTYPE.names or ():
            rows[name] = columns[name][chosen]
        return rows


def _concatenate(blocks: list[dict[str, NDArray[Any]]], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def open_rank(folder: Path, rank: int) -> RankTrace:
    """Open the trace of one rank as far as it is whole.

    Raises
    ------
    TraceError
        There is no readable header, or the files hold something else than a trace of this version.
    """
    files = RankFiles(folder, rank)
    header = RankHeader.load(folder, rank)
    names = NameFile(files.names)
    events = FileBatches(files.events, EVENT_DTYPE)
    index = read_index(files.index)
    problems = [names.problem] if names.is_cut else []
    sound = index is not None and is_sound(index, events.first_offset)
    if index is not None and sound and not problems and events.ends_at(int(index["end"][-1])):
        events.trust(zip(*_batch_places(index), strict=True))
    else:
        names = NameFile(files.names, as_far_as_whole=True)
        scan = events.scan()
        problems += [scan.problem] if scan.problem else []
        index, more = rebuild_index(events, names, scan.places)
        problems += more
    details, lost = _open_details(files)
    problems += [lost] if lost and not problems else []  # a killed rank closes neither stream
    return RankTrace(header, names, index, events, details, not problems, tuple(problems), files.num_bytes())


def _batch_places(index: NDArray[np.void]) -> tuple[list[int], list[int]]:
    first = np.flatnonzero(np.diff(index["batch"], prepend=-1))
    return index["offset"][first].tolist(), index["end"][first].tolist()


def _open_details(files: RankFiles) -> tuple[Batches, str]:
    """Open the detail stream; without it differences cannot be followed, and that is said."""
    try:
        details = FileBatches(files.details, DETAIL_DTYPE)
    except TraceError:
        return MemoryBatches(()), f"{files.details.name} cannot be read: differences cannot be followed"
    return (
        details,
        "" if details.is_closed else f"{files.details.name} is cut: some differences cannot be followed",
    )


def rebuild_index(
    events: Batches, names: NameTables | NameFile, places: Sequence[tuple[int, int]] | None = None
) -> tuple[NDArray[np.void], list[str]]:
    """Make the index of a rank from its events.

    Returns
    -------
    index
        The `INDEX_DTYPE` records of the batches up to the first that cannot be used.
    problems
        One sentence when a batch is damaged or uses names that are not in the tables.
    """
    callee_hashes, meta_hashes = names.callee_hashes, names.meta_hashes
    records: list[NDArray[np.void]] = [np.empty(0, INDEX_DTYPE)]
    for number in range(len(events)):
        offset, end = places[number] if places else (0, 0)
        try:
            columns = events.read(number, INDEXED_COLUMNS)
            records.append(index_batch(columns, callee_hashes, meta_hashes, (number, offset, end)))
        except TraceError as error:
            return np.concatenate(records), [error.finding]
        except IndexError:
            lost = f"batch {number} and all after it use names that the name tables do not hold"
            return np.concatenate(records), [lost]
    return np.concatenate(records), []


def memory_trace(
    header: RankHeader,
    names: NameTables,
    events: NDArray[np.void],
    details: NDArray[np.void] | None = None,
    problems: tuple[str, ...] = (),
) -> RankTrace:
    """Make a trace from rows that are already in memory."""
    batches = MemoryBatches([events] if len(events) else [])
    index, _ = rebuild_index(batches, names)
    rows = MemoryBatches([details] if details is not None and len(events) else [])
    return RankTrace(header, names, index, batches, rows, not problems, problems)

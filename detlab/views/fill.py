"""Fill a map: the worst verdict per place and time, pooled while it is gathered, one rank at a time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.run import spans
from detlab.schema import Mask, Phase, Verdict
from detlab.store import RankTrace
from detlab.views.grid import Band, Grid
from detlab.views.pooling import MATCH, MAX_COLUMNS, MAX_ROWS, Codes, codes_of, factor_for
from detlab.views.timeline import timeline

ROWS: Final = ("rank", "op")
COLUMNS: Final = ("call", "step")


def make_grid(
    cmp: Comparison,
    rows: str = "rank",
    columns: str = "call",
    step: int | None = None,
    *,
    max_rows: int = MAX_ROWS,
    max_columns: int = MAX_COLUMNS,
) -> Grid:
    """Compute the map of a comparison, one rank at a time.

    Parameters
    ----------
    rows
        ``rank``, or ``op`` for the worst over ranks by what was called.
    columns
        ``call`` for the position of a call in its step, in the rank's own order; or ``step``.
    step
        A compared step; None: the worst over all of them.
    max_rows, max_columns
        Number of cells at most; whole neighbours are pooled until it is kept.

    Raises
    ------
    InputError
        There is no such picture, or the step was not compared.
    """
    if rows not in ROWS or columns not in COLUMNS:
        raise InputError(
            f"There is no map of {rows} by {columns}.", "rows are rank or op, columns call or step"
        )
    if step is not None and (step not in cmp.steps or columns == "step"):
        why = (
            "columns are steps" if columns == "step" else f"the steps {spans(list(cmp.steps))} were compared"
        )
        raise InputError(f"A map of step {step} alone cannot be made.", f"leave step out; {why}")
    steps = cmp.steps if step is None else (step,)
    return _Builder(cmp, rows, columns, steps, (max_rows, max_columns)).build()


class _Calls(NamedTuple):
    """Some calls of one rank: the number of the rank, its parts, and for each call its part and position."""

    number: int
    parts: NDArray[np.void]
    part: NDArray[np.intp]
    position: NDArray[np.int64]

    @property
    def inside(self) -> NDArray[np.int64]:
        """How many calls of the part stand before each call."""
        before: NDArray[np.int64] = self.position - self.parts["position"][self.part]
        return before


class _Builder:
    """Fills the cells of one grid."""

    def __init__(
        self, cmp: Comparison, rows: str, columns: str, steps: tuple[int, ...], limits: tuple[int, int]
    ) -> None:
        self._cmp, self._by_op, self._by_step, self._steps = cmp, rows == "op", columns == "step", steps
        places = _rank_rows(cmp)
        self._labels = _ops(cmp) if self._by_op else tuple(name for name, _ in places)
        self._row_of = {number: row for row, (_, number) in enumerate(places) if number is not None}
        self._op_ids = {op: number for number, op in enumerate(self._labels)}
        self._sequences: dict[int, NDArray[np.int64]] = {}
        self._marked: set[tuple[int, ...]] = set()
        self._parts = [part[np.isin(part["step"], steps)] for part in map(timeline, cmp.ranks)]
        self._num_columns = len(steps) if self._by_step else max(map(_width, self._parts), default=0)
        sizes = len(self._labels), self._num_columns
        self._factors = factor_for(sizes[0], limits[0]), factor_for(sizes[1], limits[1])
        shape = -(-sizes[0] // self._factors[0]), -(-sizes[1] // self._factors[1])
        self._codes = np.zeros(shape, np.uint8)
        self._facts = {name: np.full(shape, -1, np.int64) for name in ("row", "column", "rank", "position")}
        self._counts = np.zeros(len(Verdict) + 1, np.int64)
        self._differing = np.zeros((shape[0], len(Verdict) + 1), np.int64)
        self._num_aside = 0

    def build(self) -> Grid:
        for number, parts in enumerate(self._parts):
            self._mark_traced(number, parts)
            self._add_differing(number, parts)
        widest = max(range(len(self._parts)), key=lambda number: _width(self._parts[number]), default=None)
        return Grid(
            codes=self._codes,
            **self._facts,
            differing=self._differing,
            num_rows=len(self._labels),
            num_columns=self._num_columns,
            row_factor=self._factors[0],
            column_factor=self._factors[1],
            row_labels=_pooled_labels(self._labels, self._factors[0]),
            rows="op" if self._by_op else "rank",
            columns="step" if self._by_step else "call",
            steps=self._steps,
            bands=() if self._by_step or widest is None else _bands(self._parts[widest]),
            bands_of=-1 if self._by_step or widest is None else self._cmp.ranks[widest].rank,
            counts={verdict: int(self._counts[verdict + 1]) for verdict in Verdict},
            num_aside=self._num_aside,
        )

    def _add_differing(self, number: int, parts: NDArray[np.void]) -> None:
        """Count the calls of one rank and colour those that differ; all others match."""
        rank = self._cmp.ranks[number]
        part = np.searchsorted(parts["position"], rank.differing, side="right") - 1
        stops = np.append(
            parts["position"] + parts["num_rows"], 0
        )  # the last serves what is before all parts
        shown = rank.differing < stops[part]
        positions, part = rank.differing[shown], part[shown]
        codes, masks = codes_of(rank.verdicts[positions], rank.masks[positions]), rank.masks[positions]
        aside = int(np.count_nonzero(masks & Mask.SET_ASIDE))
        self._num_aside += aside
        self._counts += np.bincount(codes, minlength=len(self._counts))
        self._counts[MATCH] += int(parts["num_rows"].sum()) - len(positions) - aside
        odd = codes > MATCH
        calls = _Calls(number, parts, part[odd], positions[odd])
        self._raise_cells(self._rows(calls), self._columns(calls), codes[odd], calls)

    def _mark_traced(self, number: int, parts: NDArray[np.void]) -> None:
        """Say of every cell that a recorded call falls into that it is not untraced."""
        masks = self._cmp.ranks[number].masks
        hidden = bool(masks.any()) and bool((masks & Mask.UNTRACED).any())
        for at, part in enumerate(parts):
            key = self._same_cells(number, part)
            if hidden or key not in self._marked:
                self._marked.add(key)
                positions = np.arange(part["num_rows"]) + part["position"]
                positions = positions[(masks[positions] & Mask.UNTRACED) == 0]
                calls = _Calls(number, parts, np.full(len(positions), at), positions)
                cells = self._rows(calls) // self._factors[0], self._columns(calls) // self._factors[1]
                self._codes[cells] = np.maximum(self._codes[cells], np.uint8(MATCH))

    def _same_cells(self, number: int, part: np.void) -> tuple[int, ...]:
        """Name the cells that a part fills: ranks that run the same program fill the same cells of ops."""
        size, skip, column, step = part[["num_rows", "skip", "column", "step"]].item()
        if self._by_op:
            return int(self._trace(number, part).index["identity"][part["record"]]), size, skip, column, step
        return (number, step) if self._by_step else (number, column, size)

    def _rows(self, calls: _Calls) -> NDArray[np.int64]:
        if not self._by_op:
            return np.full(len(calls.position), self._row_of[calls.number], np.int64)
        rows = np.empty(len(calls.position), np.int64)
        for at in np.unique(calls.part):
            here = calls.part == at
            rows[here] = self._sequence(calls.number, calls.parts[at])[calls.inside[here]]
        return rows

    def _columns(self, calls: _Calls) -> NDArray[np.int64]:
        if self._by_step:
            return np.searchsorted(self._steps, calls.parts["step"][calls.part])
        before: NDArray[np.int64] = calls.parts["column"][calls.part]
        return before + calls.inside

    def _raise_cells(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64], codes: Codes, calls: _Calls
    ) -> None:
        """Let worse verdicts win, and remember for each cell the first call that has its worst."""
        cells = rows // self._factors[0], columns // self._factors[1]
        np.add.at(self._differing, (cells[0], codes), 1)
        worse = np.flatnonzero(codes > self._codes[cells])
        cells = cells[0][worse], cells[1][worse]
        np.maximum.at(self._codes, cells, codes[worse])
        worst = np.flatnonzero(codes[worse] == self._codes[cells])[::-1]  # the first is written last
        chosen, cells = worse[worst], (cells[0][worst], cells[1][worst])
        self._facts["rank"][cells] = calls.number
        for name, values in (("row", rows), ("column", columns), ("position", calls.position)):
            self._facts[name][cells] = values[chosen]

    def _trace(self, number: int, part: np.void) -> RankTrace:
        rank = self._cmp.ranks[number]
        return rank.a if part["in_a"] else rank.b

    def _sequence(self, number: int, part: np.void) -> NDArray[np.int64]:
        """Give the op of each call of a part as a row; segments of one identity are read once."""
        trace, record = self._trace(number, part), int(part["record"])
        identity = int(trace.index["identity"][record])
        if identity not in self._sequences:
            if len(self._sequences) >= 256:  # bounds the memory; real ranks share a few identities
                self._sequences.clear()
            self._sequences[identity] = _read_ops(trace, record, self._op_ids)
        skip = int(part["skip"])
        return self._sequences[identity][skip : skip + int(part["num_rows"])]


def _read_ops(trace: RankTrace, record: int, ids: dict[str, int]) -> NDArray[np.int64]:
    first, stop = int(trace.starts[record]), int(trace.starts[record + 1])
    callees = trace.columns(first, stop, ["callee"])["callee"]
    rows: NDArray[np.int64] = np.array([ids[callee.op] for callee in trace.names.callees], np.int64)[callees]
    return rows


def _ops(cmp: Comparison) -> tuple[str, ...]:
    """List every op by its first appearance in the name tables."""
    traces = (trace for rank in cmp.ranks for trace in (rank.a, rank.b))
    return tuple(dict.fromkeys(callee.op for trace in traces for callee in trace.names.callees))


def _rank_rows(cmp: Comparison) -> list[tuple[str, int | None]]:
    """Name every place by rank; those that only one run has a trace of have no number."""
    rows = {rank.rank: (f"{rank.rank} · {rank.coordinate}", number) for number, rank in enumerate(cmp.ranks)}
    named: list[tuple[int, str, int | None]] = [(rank, *row) for rank, row in rows.items()]
    for place in cmp.untraced:
        only_a = place in cmp.a.by_coordinate
        trace = (cmp.a if only_a else cmp.b).by_coordinate[place]
        named.append(
            (trace.header.rank, f"{trace.header.rank} · {place} · only in {'a' if only_a else 'b'}", None)
        )
    return [row[1:] for row in sorted(named, key=lambda row: row[0])]


def _width(parts: NDArray[np.void]) -> int:
    return int((parts["column"] + parts["num_rows"]).max(initial=0))


def _pooled_labels(labels: tuple[str, ...], factor: int) -> tuple[str, ...]:
    if factor == 1:
        return labels
    groups = [labels[start : start + factor] for start in range(0, len(labels), factor)]
    return tuple(group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}" for group in groups)


def _bands(parts: NDArray[np.void]) -> tuple[Band, ...]:
    """Join the parts of the first step that holds the most calls wherever the phase stays the same."""
    if not len(parts):
        return ()
    widest = parts["step"][np.argmax(parts["column"] + parts["num_rows"])]
    shown = parts[parts["step"] == widest]
    first = np.flatnonzero(np.diff(shown["phase"].astype(int), prepend=-1))
    starts = shown["column"][first].tolist()
    stops = [*starts[1:], _width(shown)]
    names = [Phase(int(phase)).name.lower().replace("_", " ") for phase in shown["phase"][first]]
    return tuple(map(Band, names, starts, stops))

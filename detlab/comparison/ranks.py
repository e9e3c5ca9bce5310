"""Compare the traces of one rank: which rows stand side by side, and the verdict of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.segments import HOW, pair_blocks
from detlab.comparison.verdicts import JUDGED_COLUMNS, MetaFacts, differing_rows, judge
from detlab.schema import EVENT_DTYPE, Coordinate, Mask, Verdict
from detlab.store import NameFile, RankTrace


@dataclass(frozen=True, slots=True, repr=False)
class RankComparison:
    """The verdicts of one rank, in the order of run a with the rows that only b has in between.

    Attributes
    ----------
    a, b
        The two traces.
    blocks
        `BLOCK_DTYPE` rows, in order; see `detlab.comparison.segments`.
    starts
        Position of the first row of each block, and the total as a last entry.
    verdicts, masks
        A `Verdict` and a `Mask` per position.
    differing
        Positions that do not match, ascending: what most questions need, however long the trace.
    any_aside
        Whether any call was set aside.
    num_missing
        Calls left out because the other side's file ends before them.
    num_other_choice
        Calls with equal values whose kernel configuration or strides differ.
    num_exchanged
        Pairs of calls that stand at each other's place, with one callee: the order of the callees hides it.
    renamed
        Ids of the callees of run b that were given names of run a by the user.
    original_b
        The trace of run b before that; None where nothing was renamed.
    """

    a: RankTrace
    b: RankTrace
    blocks: NDArray[np.void]
    starts: NDArray[np.int64]
    verdicts: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    differing: NDArray[np.intp]
    any_aside: bool = False
    num_missing: int = 0
    num_other_choice: int = 0
    num_exchanged: int = 0
    renamed: frozenset[int] = frozenset()
    original_b: RankTrace | None = None

    @property
    def rank(self) -> int:
        """Global rank in run a."""
        return self.a.header.rank

    @property
    def source_b(self) -> RankTrace:
        """The trace of run b as it was recorded."""
        return self.original_b or self.b

    @property
    def coordinate(self) -> Coordinate:
        """Place in the parallel layout, the same in both runs."""
        return self.a.header.coordinate

    def rows(self, positions: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give the rows in run a and in run b at some positions; -1 where a side has none."""
        block = np.searchsorted(self.starts, positions, side="right") - 1
        inside = positions - self.starts[block]
        if len(block) and (block == block[0]).all():  # neighbours: no need to look each of them up
            block = block[:1]
        firsts = self.blocks["a"][block], self.blocks["b"][block]
        at_a, at_b = (np.where(first < 0, -1, first + inside) for first in firsts)
        return at_a, at_b

    def rows_at(self, position: int) -> tuple[int, int]:
        """Give the rows in run a and in run b at one position; -1 where a side has none."""
        at_a, at_b = self.rows(np.array([position]))
        return int(at_a[0]), int(at_b[0])

    def positions_of(self, rows: NDArray[np.int64], *, in_b: bool = False) -> NDArray[np.int64]:
        """Give the positions of rows of run a, or of run b; -1 for a row that was not compared."""
        firsts = self.blocks["b" if in_b else "a"]
        present = np.flatnonzero(firsts >= 0)
        present = present[np.argsort(firsts[present], kind="stable")]
        if not len(present):
            return np.full(len(rows), -1, np.int64)
        block = present[np.searchsorted(firsts[present], rows, side="right") - 1]
        inside = rows - firsts[block]
        covered = (inside >= 0) & (inside < self.blocks["num_rows"][block])
        return np.where(covered, self.starts[block] + inside, -1)

    def positions_in(self, step: int) -> NDArray[np.intp]:
        """Give the positions of every call of one step, in order."""
        parts = [np.empty(0, np.intp)]
        for number, block in enumerate(self.blocks):
            trace, first = (self.a, block["a"]) if block["a"] >= 0 else (self.b, block["b"])
            steps = trace.columns(int(first), int(first + block["num_rows"]), ["step"])["step"]
            parts.append(self.starts[number] + np.flatnonzero(steps == step))
        return np.concatenate(parts)

    def counted(self, verdict: Verdict) -> NDArray[np.intp]:
        """Give the positions that have this verdict and were not set aside."""
        found = self.divergent()
        chosen: NDArray[np.intp] = found[self.verdicts[found] == verdict]
        return chosen

    def divergent(self) -> NDArray[np.intp]:
        """Give the positions of everything that differs and was not set aside."""
        return self.differing[self.is_counted(self.differing)] if self.any_aside else self.differing

    def set_aside(self) -> NDArray[np.intp]:
        """Give the positions of everything that differs and was set aside."""
        found: NDArray[np.intp] = self.differing[~self.is_counted(self.differing)]
        return found

    def is_counted(self, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Say which of some differing positions were not set aside."""
        counted: NDArray[np.bool_] = (self.masks[positions] & Mask.SET_ASIDE) == 0
        return counted

    def step_at(self, position: int) -> int:
        """Give the step of the call at a position."""
        return int(self.events(np.array([position]), ("step",))["step"][0])

    def first_step(self) -> int | None:
        """Give the least step in which anything diverges; None when nothing does.

        Calls of an earlier step can come later: a collective that is waited for in the next one.
        """
        divergent = self.divergent()
        if not len(divergent):
            return None
        step = self.step_at(int(divergent[0]))
        earlier = np.unique(np.concatenate([self.a.index["step"], self.b.index["step"]]))
        for other in earlier[earlier < step].tolist():
            if self.is_counted(self.differing_in(other, other)).any():
                return int(other)
        return step

    def differing_in(self, first_step: int, last_step: int) -> NDArray[np.intp]:
        """Give the positions in some steps that do not match, also those set aside.

        The index bounds where these steps lie, so that no event of another step is read.
        """
        edges = np.concatenate([self._edges(first_step, last_step, in_b=in_b) for in_b in (False, True)])
        if not len(edges):
            return np.empty(0, np.intp)
        near = self.differing[slice(*np.searchsorted(self.differing, [edges.min(), edges.max() + 1]))]
        if all(_are_neighbours(trace, first_step, last_step) for trace in (self.a, self.b)):
            return near
        steps = self.events(near, ("step",))["step"]
        chosen: NDArray[np.intp] = near[(steps >= first_step) & (steps <= last_step)]
        return chosen

    def _edges(self, first_step: int, last_step: int, *, in_b: bool) -> NDArray[np.int64]:
        """Give the first and last position of some steps in each block that holds any of them, in one run.

        Every block is asked: where the runs order calls otherwise, the last row of a segment can stand
        before another row of it.
        """
        trace, firsts = (self.b, self.blocks["b"]) if in_b else (self.a, self.blocks["a"])
        steps = trace.index["step"]
        records = np.flatnonzero((steps >= first_step) & (steps <= last_step))
        starts, stops = trace.starts[records], trace.starts[records + 1]
        lasts = firsts + self.blocks["num_rows"]
        begins, ends = np.searchsorted(stops, firsts, side="right"), np.searchsorted(starts, lasts) - 1
        holds = np.flatnonzero((firsts >= 0) & (begins <= ends))
        offsets = self.starts[holds] - firsts[holds]
        low = np.maximum(firsts[holds], starts[begins[holds]])
        high = np.minimum(lasts[holds], stops[ends[holds]]) - 1
        return np.concatenate([low + offsets, high + offsets])

    def has_op(self, positions: NDArray[np.intp], holds: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Say for which positions something holds of the op; the question is asked once for each callee."""
        found = np.zeros(len(positions), bool)
        for trace, rows in zip((self.a, self.b), self.rows(positions), strict=True):
            here = np.flatnonzero(rows >= 0)
            if len(here):
                callees = read_rows(trace, rows[here], ("callee",))["callee"]
                known, member = np.unique(callees, return_inverse=True)
                found[here] = np.array([holds(trace.names.callees[int(n)].op) for n in known])[member]
        return found

    def with_masks(self, positions: NDArray[np.intp], mask: Mask) -> RankComparison:
        """Give the same comparison with one more mask at some positions."""
        if not len(positions):
            return self
        masks = self.masks.copy()
        masks[positions] |= np.uint8(mask)
        return replace(self, masks=masks, any_aside=True)

    def with_verdicts(self, found: Mapping[int, Verdict]) -> RankComparison:
        """Give the same comparison with other verdicts at some positions; no position may be a new one."""
        if not found:
            return self
        verdicts = self.verdicts.copy()
        verdicts[list(found)] = list(found.values())
        differing = self.differing[verdicts[self.differing] != Verdict.MATCH]
        return replace(self, verdicts=verdicts, differing=differing)

    def counts(self) -> NDArray[np.int64]:
        """Count the calls by verdict, without what was set aside."""
        counts = np.bincount(self.verdicts[self.divergent()], minlength=len(Verdict))
        counts[Verdict.MATCH] = len(self.verdicts) - len(self.differing)
        return counts

    def how(self, positions: NDArray[np.intp]) -> list[str]:
        """Say how the rows at some positions were matched: site, aligned or override."""
        block = np.searchsorted(self.starts, positions, side="right") - 1
        how = self.blocks["how"][block]
        rows_b = self.rows(positions)[1]
        if self.renamed and (rows_b >= 0).any():
            callees = read_rows(self.b, rows_b[rows_b >= 0], ("callee",))["callee"]
            how[np.flatnonzero(rows_b >= 0)[np.isin(callees, list(self.renamed))]] = HOW.index("override")
        return [HOW[code] for code in how]

    def flags_of_either(self, positions: NDArray[np.intp]) -> NDArray[np.uint16]:
        """Give the flags that a call has in one run or the other, so that neither run decides alone."""
        found = np.zeros(len(positions), np.uint16)
        for trace, rows in zip((self.a, self.b), self.rows(positions), strict=True):
            there = rows >= 0
            if there.any():
                found[there] |= read_rows(trace, rows[there], ("flags",))["flags"]
        return found

    def events(self, positions: NDArray[np.intp], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        """Give columns at some positions: of run a where it has the call, else of run b."""
        at_a, at_b = self.rows(positions)
        if (at_a >= 0).all():
            return read_rows(self.a, at_a, names)
        from_a = read_rows(self.a, at_a[at_a >= 0], names)
        from_b = read_rows(self.b, at_b[at_a < 0], names)
        merged = {}
        for name in names:
            column = np.empty(len(positions), from_a[name].dtype)
            column[at_a >= 0], column[at_a < 0] = from_a[name], from_b[name]
            merged[name] = column
        return merged

    def __repr__(self) -> str:
        return f"RankComparison(rank {self.rank}: {len(self.verdicts):,} calls)"


def _are_neighbours(trace: RankTrace, first_step: int, last_step: int) -> bool:
    """Say whether no segment of another step stands between those of some steps."""
    steps = trace.index["step"]
    records = np.flatnonzero((steps >= first_step) & (steps <= last_step))
    return not len(records) or bool(records[-1] - records[0] + 1 == len(records))


def read_rows(trace: RankTrace, rows: NDArray[np.int64], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read columns of some rows, each batch once; rows in one run are not looked up one by one."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return trace.columns(int(rows[0]), int(rows[-1]) + 1, names)
    bounds = trace.batch_starts()
    batch_of = np.searchsorted(bounds, rows, side="right") - 1
    out: dict[str, NDArray[Any]] = {}
    for number in np.unique(batch_of):
        here = batch_of == number
        batch = trace.events.read(int(number), names)
        for name in names:
            if name not in out:
                out[name] = np.empty(len(rows), batch[name].dtype)
            out[name][here] = batch[name][rows[here] - bounds[number]]
    return out or {name: np.empty(0, EVENT_DTYPE[name]) for name in names}


def compare_rank(a: RankTrace, b: RankTrace, steps: NDArray[np.int32], verify: bool) -> RankComparison:
    """Compare two traces of one rank over some steps.

    Parameters
    ----------
    a, b
        Traces of the same coordinate.
    steps
        The steps that both runs recorded.
    verify
        Read every event, also where the segment digests say that all are equal.
    """
    if isinstance(a.names, NameFile) and a.names.same_as(b.names):
        b = replace(b, names=a.names)  # checked once is enough
    if verify:
        for trace in (a, b):
            trace.check(np.flatnonzero(np.isin(trace.index["step"], steps)))
    blocks, num_missing = _without_cut_tails(a, b, pair_blocks(a, b, steps))
    starts = np.concatenate([[0], np.cumsum(blocks["num_rows"])])
    verdicts = np.zeros(int(starts[-1]), np.uint8)
    masks = np.zeros(int(starts[-1]), np.uint8)
    facts = MetaFacts(a.names, b.names)
    cursors = _Cursor(a), _Cursor(b)
    differing = [np.empty(0, np.intp)]
    for block, start in zip(blocks, starts, strict=False):
        here = slice(int(start), int(start) + int(block["num_rows"]))
        if block["a"] < 0 or block["b"] < 0:
            verdicts[here] = Verdict.ONLY_B if block["a"] < 0 else Verdict.ONLY_A
            differing.append(np.arange(here.start, here.stop))
        elif verify or not block["equal"]:
            differing += _judge_block(cursors, block, facts, verdicts[here], masks[here], here.start)
    found = np.concatenate(differing)
    aside = bool(masks[found].any())
    compared = RankComparison(
        a, b, blocks, starts, verdicts, masks, found, aside, num_missing, facts.num_other_choice
    )
    if not verify:
        _check_origins(compared)
    return compared


def _check_origins(compared: RankComparison) -> None:
    """Make sure that no damaged byte is called an origin: hash the segments that have one again."""
    rows = compared.rows(compared.counted(Verdict.ORIGIN))
    for trace, at in zip((compared.a, compared.b), rows, strict=True):
        trace.check(np.unique(np.searchsorted(trace.starts, at, side="right") - 1))


class _Cursor:
    """Columns of a trace by row range, each batch decoded once while it is walked through."""

    def __init__(self, trace: RankTrace) -> None:
        self._trace = trace
        self._bounds = trace.batch_starts()
        self._number = -1
        self._batch: dict[str, NDArray[Any]] = {}

    def cuts(self, first: int, size: int) -> NDArray[np.int64]:
        """Give where batches begin inside some rows, counted from the first of these rows."""
        inside = self._bounds[
            np.searchsorted(self._bounds, first) : np.searchsorted(self._bounds, first + size)
        ]
        return inside - first

    def columns(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Give the judged columns of rows that lie in one batch."""
        number = int(np.searchsorted(self._bounds, start, side="right")) - 1
        if number != self._number:
            self._number, self._batch = number, self._trace.events.read(number, JUDGED_COLUMNS)
        first = int(self._bounds[number])
        return {name: column[start - first : stop - first] for name, column in self._batch.items()}


def _judge_block(
    cursors: tuple[_Cursor, _Cursor],
    block: np.void,
    facts: MetaFacts,
    verdicts: NDArray[np.uint8],
    masks: NDArray[np.uint8],
    position: int,
) -> list[NDArray[np.intp]]:
    """Judge the rows of one block into the arrays given; equal rows are not even written to.

    Returns
    -------
    The positions that do not match, in parts; ``position`` is that of the block's first row.
    """
    parts = []
    a, b = cursors
    first_a, first_b, size = int(block["a"]), int(block["b"]), int(block["num_rows"])
    cuts = np.unique(np.concatenate([a.cuts(first_a, size), b.cuts(first_b, size), [0, size]]))
    for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        mine = a.columns(first_a + start, first_a + stop)
        theirs = b.columns(first_b + start, first_b + stop)
        odd = differing_rows(mine, theirs, facts)
        if len(odd):
            odd_a = {name: column[odd] for name, column in mine.items()}
            odd_b = {name: column[odd] for name, column in theirs.items()}
            found, masks[start + odd] = judge(odd_a, odd_b, facts)
            facts.count_other_choices(odd_a["meta"], odd_b["meta"], found)
            if block["ambiguous"]:
                found[found == Verdict.ORIGIN] = Verdict.UNKNOWN
            verdicts[start + odd] = found
            parts.append(position + start + odd[found != Verdict.MATCH])
    return parts


def _without_cut_tails(a: RankTrace, b: RankTrace, blocks: NDArray[np.void]) -> tuple[NDArray[np.void], int]:
    """Drop the calls that stand after the end of a file that was cut: they are missing, not extra."""
    keep = len(blocks)
    for cut, side in ((a, "a"), (b, "b")):
        if not cut.complete:
            present = np.flatnonzero(blocks[side] >= 0)
            keep = min(keep, int(present[-1]) + 1 if len(present) else 0)
    return blocks[:keep], int(blocks["num_rows"][keep:].sum())

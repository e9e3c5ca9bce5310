"""Where a compared call is: its site, as text and as table rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.align import occurrences
from detlab.comparison.ranks import RankComparison, read_rows
from detlab.errors import InputError
from detlab.schema import Phase, Site, Verdict
from detlab.store import RankTrace

SITE_COLUMNS: Final = {
    "rank": pl.Int64,
    "coordinate": pl.String,
    "step": pl.Int64,
    "microbatch": pl.Int64,
    "phase": pl.String,
    "scope": pl.String,
    "op": pl.String,
    "call": pl.Int64,
    "verdict": pl.String,
    "seq_a": pl.Int64,
    "seq_b": pl.Int64,
    "site": pl.String,
}
"""Columns of every frame of calls; ``seq_a`` and ``seq_b`` are null where a run lacks the call."""


def site_at(rank: RankComparison, position: int) -> Site:
    """Give the site of one compared call; its call number is counted anew, not read from the file."""
    return site_in(*_side(rank, position))


def site_in(trace: RankTrace, row: int) -> Site:
    """Give the site of one event of a run, as that run counts its calls."""
    event = read_rows(trace, np.array([row]), ("step", "microbatch", "phase", "callee"))
    step, microbatch, phase, callee = (int(column[0]) for column in event.values())
    call = _num_before(trace, row, (step, microbatch, phase), callee)
    return Site(step, microbatch, Phase(phase), trace.names.callees[callee], call)


def _side(rank: RankComparison, position: int) -> tuple[RankTrace, int]:
    at_a, at_b = rank.rows_at(position)
    return (rank.a, at_a) if at_a >= 0 else (rank.b, at_b)


def _num_before(trace: RankTrace, row: int, key: tuple[int, int, int], callee: int) -> int:
    """Count the earlier calls of a callee in the segments of one (step, microbatch, phase)."""
    index, starts = trace.index, trace.starts
    same = (index["step"] == key[0]) & (index["microbatch"] == key[1]) & (index["phase"] == key[2])
    count = 0
    for record in np.flatnonzero(same & (starts[:-1] < row)):
        stop = min(int(starts[record + 1]), row)
        count += int((trace.columns(int(starts[record]), stop, ["callee"])["callee"] == callee).sum())
    return count


def position_of(rank: RankComparison, site: Site, *, in_b: bool = False) -> int:
    """Give the position of the call at a site: in run a, or in run b where only it makes the call.

    With ``in_b`` run b is asked first: it counts its calls anew where the runs make other ones.

    Raises
    ------
    InputError
        Neither run makes this call on this rank.
    """
    for trace in (rank.b, rank.a) if in_b else (rank.a, rank.b):
        row = row_of(trace, site)
        if row is not None:
            positions = rank.positions_of(np.array([row]), in_b=trace is rank.b)
            return int(positions[0])
    raise InputError(
        f"rank {rank.rank} makes no call {site}.", "copy a site from first or sites of that rank"
    )


def differing_at(rank: RankComparison, site: Site) -> int | None:
    """Give the position of the call at a site that does not match; None where the rank has none.

    Where the runs make other calls, one site can name two: that of run a comes first, if it differs.
    """
    for trace in (rank.a, rank.b):
        row = row_of(trace, site)
        if row is not None:
            position = int(rank.positions_of(np.array([row]), in_b=trace is rank.b)[0])
            is_named = trace is rank.a or rank.rows_at(position)[0] < 0  # a paired call has run a's number
            if position >= 0 and is_named and rank.verdicts[position] != Verdict.MATCH:
                return position
    return None


def row_of(trace: RankTrace, site: Site) -> int | None:
    """Give the row of the n-th call of a callee in one step, microbatch and phase."""
    try:
        callee = list(trace.names.callees).index(site.callee)
    except ValueError:
        return None
    index, before = trace.index, 0
    same = (index["step"] == site.step) & (index["microbatch"] == site.microbatch)
    for record in np.flatnonzero(same & (index["phase"] == site.phase)):
        first, stop = int(trace.starts[record]), int(trace.starts[record + 1])
        rows = first + np.flatnonzero(trace.columns(first, stop, ["callee"])["callee"] == callee)
        if before + len(rows) > site.call:
            return int(rows[site.call - before])
        before += len(rows)
    return None


def call_row(rank: RankComparison, position: int) -> dict[str, Any]:
    """Give one compared call as a row of the `SITE_COLUMNS`."""
    site = site_at(rank, position)
    at_a, at_b = rank.rows_at(position)
    return {
        "rank": rank.rank,
        "coordinate": str(rank.coordinate),
        "step": site.step,
        "microbatch": site.microbatch,
        "phase": site.phase.name.lower(),
        "scope": site.callee.scope,
        "op": site.callee.op,
        "call": site.call,
        "verdict": Verdict(int(rank.verdicts[position])).name.lower(),
        "seq_a": _seq(rank.a, at_a),
        "seq_b": _seq(rank.b, at_b),
        "site": str(site),
    }


def _seq(trace: RankTrace, row: int) -> int | None:
    return None if row < 0 else int(read_rows(trace, np.array([row]), ("seq",))["seq"][0])


def calls_frame(rank: RankComparison, positions: NDArray[np.intp]) -> pl.DataFrame:
    """Give many compared calls of one rank as a frame of the `SITE_COLUMNS` and ``how``.

    The positions must be all of some steps, so that call numbers can be counted among them.
    """
    names = ("step", "microbatch", "phase", "callee")
    at_a, at_b = rank.rows(positions)
    events = rank.events(positions, names)
    callees = [
        (rank.a if row >= 0 else rank.b).names.callees[int(callee)]
        for row, callee in zip(at_a, events["callee"], strict=True)
    ]
    phases = [Phase(int(phase)) for phase in events["phase"]]
    calls = _count_calls(rank, at_a, at_b, events)
    sites = [
        Site(int(step), int(microbatch), phase, callee, int(call))
        for step, microbatch, phase, callee, call in zip(
            events["step"], events["microbatch"], phases, callees, calls, strict=True
        )
    ]
    columns: dict[str, Sequence[Any]] = {
        "rank": [rank.rank] * len(sites),
        "coordinate": [str(rank.coordinate)] * len(sites),
        "step": events["step"].tolist(),
        "microbatch": events["microbatch"].tolist(),
        "phase": [phase.name.lower() for phase in phases],
        "scope": [callee.scope for callee in callees],
        "op": [callee.op for callee in callees],
        "call": calls.tolist(),
        "verdict": [Verdict(int(code)).name.lower() for code in rank.verdicts[positions]],
        "seq_a": _seqs(rank.a, at_a),
        "seq_b": _seqs(rank.b, at_b),
        "site": [str(site) for site in sites],
    }
    return pl.DataFrame({**columns, "how": rank.how(positions)}, {**SITE_COLUMNS, "how": pl.String})


def _count_calls(
    rank: RankComparison, at_a: NDArray[np.int64], at_b: NDArray[np.int64], events: dict[str, NDArray[Any]]
) -> NDArray[np.int64]:
    """Count the earlier calls of each callee in its step, microbatch and phase."""
    keys = np.empty(len(at_a), "i4, i2, u1, u8")
    for field, name in zip(keys.dtype.names or (), ("step", "microbatch", "phase"), strict=False):
        keys[field] = events[name]
    for side, trace in ((at_a >= 0, rank.a), (at_a < 0, rank.b)):
        keys["f3"][side] = trace.names.callee_hashes[events["callee"][side]]
    _, codes = np.unique(keys, return_inverse=True)
    calls = np.zeros(len(at_a), np.int64)
    for rows in (at_b, at_a):  # run a's numbers win where both runs have the call
        chosen = np.flatnonzero(rows >= 0)
        chosen = chosen[np.argsort(rows[chosen], kind="stable")]
        calls[chosen] = occurrences(codes[chosen])
    return calls


def _seqs(trace: RankTrace, rows: NDArray[np.int64]) -> list[int | None]:
    seqs = iter(read_rows(trace, rows[rows >= 0], ("seq",))["seq"].tolist())
    return [next(seqs) if row >= 0 else None for row in rows]

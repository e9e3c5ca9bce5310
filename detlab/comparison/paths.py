"""How a difference reached a call: back through the calls of its rank and the communication between ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from detlab.comparison.communication import GroupJudge
from detlab.comparison.lineage import Lineage, follow
from detlab.comparison.places import SITE_COLUMNS, call_row
from detlab.comparison.ranks import RankComparison
from detlab.comparison.roots import brought_by
from detlab.schema import Kind, Mask, Side, Verdict

MAX_HOPS: Final = 1_000
"""A path is cut here; what led to a call is clear long before."""

PATH_COLUMNS: Final = {
    "hop": pl.Int64,
    "from_hop": pl.Int64,
    "via": pl.String,
    **SITE_COLUMNS,
    "set_aside": pl.Boolean,
}
"""Columns of a path, see `detlab.comparison.Comparison.path`."""


class Hop(NamedTuple):
    """One call on the way and how the next one got its difference from it."""

    rank: RankComparison
    position: int
    from_hop: int | None
    via: str


def trace_path(
    ranks: Sequence[RankComparison], judge: GroupJudge, rank: RankComparison, position: int
) -> pl.DataFrame:
    """Follow a difference back from one call; a frame of the `PATH_COLUMNS`."""
    hops = _Tracer(ranks, judge).trace(rank, position)
    return pl.DataFrame([_row(number, hop) for number, hop in enumerate(hops)], PATH_COLUMNS)


def _row(number: int, hop: Hop) -> dict[str, Any]:
    aside = bool(hop.rank.masks[hop.position] & Mask.SET_ASIDE) or _is_unfinished(hop)
    steps = {"hop": number, "from_hop": hop.from_hop, "via": hop.via}
    return {**steps, **call_row(hop.rank, hop.position), "set_aside": aside}


def _is_unfinished(hop: Hop) -> bool:
    return hop.via.startswith(_NOT_WAITED_FOR)


_NOT_WAITED_FOR: Final = "not waited for"


class _Tracer:
    """Breadth-first search from one call to where its differences began."""

    def __init__(self, ranks: Sequence[RankComparison], judge: GroupJudge) -> None:
        self._ranks = {rank.rank: rank for rank in ranks}
        self._judge = judge
        self._lineages: dict[tuple[int, int], Lineage] = {}

    def trace(self, rank: RankComparison, position: int) -> list[Hop]:
        hops = [Hop(rank, position, None, "")]
        seen = {(rank.rank, position)}
        waiting = deque([0])
        while waiting and len(hops) < MAX_HOPS:
            number = waiting.popleft()
            for number_of_rank, at, via in self._sources(hops[number]):
                if (number_of_rank, at) not in seen:
                    seen.add((number_of_rank, at))
                    waiting.append(len(hops))
                    hops.append(Hop(self._ranks[number_of_rank], at, number, via))
        return hops

    def _sources(self, hop: Hop) -> Iterator[tuple[int, int, str]]:
        """Give the calls that a call's difference came from: rank, position and through what."""
        rank, position = hop.rank, hop.position
        if rank.rows(np.array([position]))[0][0] < 0 or rank.verdicts[position] == Verdict.ORIGIN:
            return
        event = rank.events(np.array([position]), ("kind", "step", "callee"))
        found = False
        if event["kind"][0] == Kind.COLLECTIVE:
            op = rank.a.names.callees[int(event["callee"][0])].op
            for member, at in self._judge.givers(rank, position).items():
                found = True
                yield member, at, f"{op} from rank {member}"
        for change, source in self._lineage(rank, int(event["step"][0])).of(position):
            if source >= 0:
                found = True
                yield rank.rank, source, _through(change)
        unfinished = None if found else brought_by(rank, position, self._judge)
        if unfinished is not None:
            yield rank.rank, unfinished, f"{_NOT_WAITED_FOR}, its output was hashed before it was complete"

    def _lineage(self, rank: RankComparison, step: int) -> Lineage:
        """Follow the step and the one before it, whose optimizer made the parameters of this one."""
        if (rank.rank, step) not in self._lineages:
            self._lineages[rank.rank, step] = follow(rank, step - 1, step)
        return self._lineages[rank.rank, step]


def _through(change: np.void) -> str:
    if change["side"] == Side.INPUT:
        return f"input {change['index']}"
    return "a number from Python" if change["side"] == Side.SCALARS else "the generator's state"

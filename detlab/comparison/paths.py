"""How a difference reached a call: back through the calls of its rank and the communication between ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from detlab.comparison.communication import GroupJudge
from detlab.comparison.contradictions import num_lanes
from detlab.comparison.lineage import Lineage, follow
from detlab.comparison.places import SITE_COLUMNS, call_row
from detlab.comparison.ranks import RankComparison
from detlab.comparison.roots import brought_by
from detlab.comparison.verdicts import ONE_SIDED
from detlab.ops import is_lane_wise
from detlab.schema import Kind, Mask, Side, Verdict

MAX_HOPS: Final = 1_000
"""A path is cut here; what led to a call is clear long before."""

_MAX_LINEAGES: Final = 64
"""Steps of ranks that are remembered from one path to the next; each holds its differing inputs."""

PATH_COLUMNS: Final = {
    "hop": pl.Int64,
    "from_hop": pl.Int64,
    "via": pl.String,
    **SITE_COLUMNS,
    "set_aside": pl.Boolean,
}
"""Columns of a path, see `detlab.comparison.Comparison.path`."""


class Hop(NamedTuple):
    """One call on the way and how the next one got its difference from it.

    ``part`` is the index of the output that the next call took; -1 when that is not known.
    """

    rank: RankComparison
    position: int
    from_hop: int | None
    via: str
    part: int = -1


class Source(NamedTuple):
    """A call that a difference came from: its rank and position, through what, and which of its outputs."""

    rank: int
    position: int
    via: str
    part: int = -1


def _row(number: int, hop: Hop) -> dict[str, Any]:
    aside = bool(hop.rank.masks[hop.position] & Mask.SET_ASIDE) or _is_unfinished(hop)
    steps = {"hop": number, "from_hop": hop.from_hop, "via": hop.via}
    return {**steps, **call_row(hop.rank, hop.position), "set_aside": aside}


def _is_unfinished(hop: Hop) -> bool:
    return hop.via.startswith(_NOT_WAITED_FOR)


_NOT_WAITED_FOR: Final = "not waited for"


class Tracer:
    """Breadth-first search from one call to where its differences began; remembers what it has followed."""

    def __init__(self, ranks: Sequence[RankComparison], judge: GroupJudge) -> None:
        self._ranks = {rank.rank: rank for rank in ranks}
        self._judge = judge
        self._lineages: dict[tuple[int, int], Lineage] = {}

    def path(self, rank: RankComparison, position: int) -> pl.DataFrame:
        """Follow a difference back from one call; a frame of the `PATH_COLUMNS`."""
        hops = self._trace(rank, position)
        return pl.DataFrame([_row(number, hop) for number, hop in enumerate(hops)], PATH_COLUMNS)

    def _trace(self, rank: RankComparison, position: int) -> list[Hop]:
        hops = [Hop(rank, position, None, "")]
        seen = {(rank.rank, position, -1)}
        waiting = deque([0])
        while waiting and len(hops) < MAX_HOPS:
            number = waiting.popleft()
            for source in self._sources(hops[number]):
                node = (source.rank, source.position, self._lane(source))
                if node not in seen:
                    seen.add(node)
                    waiting.append(len(hops))
                    hops.append(
                        Hop(self._ranks[source.rank], source.position, number, source.via, source.part)
                    )
        return hops

    def _lane(self, source: Source) -> int:
        """Give the lane of a list op that a source stands for; -1 for every other op."""
        lanes = _num_lanes(self._ranks[source.rank], source.position)
        return source.part % lanes if lanes > 1 and source.part >= 0 else -1

    def _sources(self, hop: Hop) -> Iterator[Source]:
        """Give the calls that a call's difference came from."""
        rank, position = hop.rank, hop.position
        if Verdict(int(rank.verdicts[position])) in ONE_SIDED:
            yield from self._branch(rank, position)
            return
        found = list(self._communicated(rank, position))
        found += self._computed(hop)
        unfinished = None if found else brought_by(rank, position, self._judge)
        if unfinished is not None and rank.verdicts[position] != Verdict.ORIGIN:
            found = [Source(rank.rank, unfinished, f"{_NOT_WAITED_FOR}: hashed before it was complete")]
        yield from found

    def _branch(self, rank: RankComparison, position: int) -> Iterator[Source]:
        """Give the last differing host read before a call that only one run makes."""
        step = rank.step_at(position)
        reads = self._lineage(rank, step).host_reads
        before = reads[reads < position]
        if len(before):
            yield Source(rank.rank, int(before[-1]), "a branch taken on a number from Python")

    def _communicated(self, rank: RankComparison, position: int) -> Iterator[Source]:
        event = rank.events(np.array([position]), ("kind", "callee"))
        if event["kind"][0] == Kind.COLLECTIVE and rank.verdicts[position] != Verdict.ORIGIN:
            op = rank.a.names.callees[int(event["callee"][0])].op
            for member, at in self._judge.givers(rank, position).items():
                yield Source(member, at, f"{op} from rank {member}")

    def _computed(self, hop: Hop) -> list[Source]:
        """Give the calls of this rank that made the differing inputs; of a list op those of one lane."""
        rank, position = hop.rank, hop.position
        step = rank.step_at(position)
        lanes = _num_lanes(rank, position) if hop.part >= 0 else 0
        found = []
        for change, source, part in self._lineage(rank, step).of(position):
            other_lane = lanes > 1 and change["side"] == Side.INPUT and (change["index"] - hop.part) % lanes
            if source >= 0 and not other_lane:
                found.append(Source(rank.rank, source, _through(change), part))
        return found

    def _lineage(self, rank: RankComparison, step: int) -> Lineage:
        """Follow the step and the one before it, whose optimizer made the parameters of this one."""
        if (rank.rank, step) not in self._lineages:
            if len(self._lineages) == _MAX_LINEAGES:
                del self._lineages[next(iter(self._lineages))]
            self._lineages[rank.rank, step] = follow(rank, step - 1, step)
        return self._lineages[rank.rank, step]


def _num_lanes(rank: RankComparison, position: int) -> int:
    """Give the number of lanes of a list op; 0 for every other op."""
    at = np.array([position])
    if not rank.has_op(at, is_lane_wise)[0]:
        return 0
    event = rank.events(at, ("meta", "n_in", "n_out"))
    meta = rank.a.names.metas[int(event["meta"][0])]
    return num_lanes(meta, int(event["n_in"][0]), int(event["n_out"][0]))


def _through(change: np.void) -> str:
    if change["side"] == Side.INPUT:
        return f"input {change['index']}"
    return "a number from Python" if change["side"] == Side.SCALARS else "the generator's state"

"""Differences between the programs rather than the numbers: extra, missing and reordered calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.places import call_row
from detlab.comparison.ranks import RankComparison
from detlab.comparison.recompute import is_recomputed
from detlab.comparison.verdicts import ONE_SIDED
from detlab.ops import is_view
from detlab.schema import Flag, Kind, Mask, Phase, Verdict
from detlab.store import RankTrace, select_segments


@dataclass(frozen=True, slots=True)
class Structure:
    """How the programs differ, counted over all ranks.

    Attributes
    ----------
    only_a, only_b
        Calls of one run only, all of them.
    reordered
        Calls that both runs make, in another order.
    recomputed
        Calls of one run only that belong to a recomputation.
    details
        The first few, as rows of `detlab.comparison.places.SITE_COLUMNS`.
    """

    only_a: int
    only_b: int
    reordered: int
    recomputed: int
    details: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Give the structure as the JSON form has it."""
        return {name: getattr(self, name) for name in self.__slots__} | {"details": list(self.details)}


def set_notes_aside(rank: RankComparison) -> RankComparison:
    """Set aside calls of one run only that compute nothing new: views, recomputation and snapshots."""
    positions = _one_sided(rank)
    if not len(positions):
        return rank
    flagged = (rank.events(positions, ("flags",))["flags"] & np.uint16(Flag.VIEW)) != 0
    note = flagged | rank.has_op(positions, is_view) | is_recomputed(rank, positions)
    note |= _of_another_moment(rank, positions)
    return rank.with_masks(positions[note], Mask.SET_ASIDE | Mask.STRUCTURE_NOTE)


def _of_another_moment(rank: RankComparison, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Say which are states at a moment that only one run recorded, as ``saved`` where the other loaded.

    A state that is missing at a moment of which both recorded others is no such thing.
    """
    facts = rank.events(positions, ("kind", "phase", "n_in"))
    kind, phase = facts["kind"] == Kind.STATE, facts["phase"] == Phase.STATE
    is_state: NDArray[np.bool_] = kind & phase & (facts["n_in"] == 0)
    if is_state.any():
        shared = _moments(rank.a) & _moments(rank.b)
        is_state &= ~rank.has_op(positions, lambda op: op in shared)
    return is_state


def _moments(trace: RankTrace) -> set[str]:
    """Give the moments at which a rank recorded states."""
    part = select_segments(trace, trace.index["phase"] == Phase.STATE)
    callees = np.unique(part.columns(0, part.num_events, ("callee",))["callee"]).tolist()
    return {trace.names.callees[callee].op for callee in callees}


def _one_sided(rank: RankComparison) -> NDArray[np.intp]:
    return rank.differing[np.isin(rank.verdicts[rank.differing], ONE_SIDED)]


def structure_of(ranks: tuple[RankComparison, ...], num_details: int = 20) -> Structure:
    """Count what only one run does and what both do in another order."""
    counts = dict.fromkeys(ONE_SIDED, 0)
    recomputed = 0
    details: list[dict[str, Any]] = []
    for rank in ranks:
        positions = _one_sided(rank)
        for verdict in ONE_SIDED:
            counts[verdict] += int((rank.verdicts[positions] == verdict).sum())
        recomputed += int(is_recomputed(rank, positions).sum())
        room = num_details - len(details)
        details += [call_row(rank, int(position)) for position in positions[:room]]
    reordered = sum(_num_reordered(rank) + rank.num_exchanged for rank in ranks)
    return Structure(counts[Verdict.ONLY_A], counts[Verdict.ONLY_B], reordered, recomputed, tuple(details))


def _num_reordered(rank: RankComparison) -> int:
    """Count the calls of run b that stand before a call that run a makes earlier."""
    paired = rank.blocks[(rank.blocks["a"] >= 0) & (rank.blocks["b"] >= 0)]
    if not len(paired):
        return 0
    last = paired["b"] + paired["num_rows"] - 1
    before = np.concatenate([[-1], np.maximum.accumulate(last)[:-1]])
    overtaken = np.clip(before - paired["b"] + 1, 0, paired["num_rows"])
    return int(overtaken.sum())

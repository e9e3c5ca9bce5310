"""What was set aside, counted and explained: shown beside the verdict, never silently dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.schema import Flag, Mask

WHY: Final = {
    "not_waited_for": "hashed before the collective was complete",
    "pointers": "an array of addresses, which differ from run to run",
    "copy_in_flight": "hashed while a copy was still in flight",
    "structure_note": "a view or a recomputation that only one run makes",
    "fresh_memory": "meets memory that no recorded call has written; what it held proves nothing",
    "padding": "differs only in bytes that nothing recorded reads",
    "configuration": "the runs chose differently (kernel, tiles, strides), and the values are equal",
}
"""Every kind of thing that is set aside, and why."""

_FLAGS: Final = (
    ("not_waited_for", Flag.NOT_WAITED_FOR),
    ("pointers", Flag.POINTERS),
    ("copy_in_flight", Flag.COPY_IN_FLIGHT),
)
_MASKS: Final = (("structure_note", Mask.STRUCTURE_NOTE), ("padding", Mask.PADDING))


def ignored(ranks: Sequence[RankComparison], steps: Sequence[int]) -> list[dict[str, Any]]:
    """Count what was set aside: one entry per kind with ``kind``, ``count`` and ``why``."""
    counts = dict.fromkeys(WHY, 0)
    for rank in ranks:
        positions = rank.differing[(rank.masks[rank.differing] & Mask.SET_ASIDE) != 0]
        masks = rank.masks[positions]
        for kind, mask in _MASKS:
            counts[kind] += int(((masks & mask) != 0).sum())
        for kind, number in _artefacts(rank, positions[(masks & ~np.uint8(Mask.SET_ASIDE)) == 0]).items():
            counts[kind] += number
        counts["fresh_memory"] += _fresh(rank, steps, positions)
        counts["configuration"] += rank.num_other_choice
    return [{"kind": kind, "count": count, "why": WHY[kind]} for kind, count in counts.items() if count]


def _artefacts(rank: RankComparison, positions: NDArray[np.intp]) -> dict[str, int]:
    """Count observer artefacts, each under the first flag that it has."""
    flags = rank.events(positions, ("flags",))["flags"].astype(np.uint16)
    rest = np.ones(len(positions), bool)
    counts = {}
    for kind, flag in _FLAGS:
        has = rest & ((flags & np.uint16(flag)) != 0)
        counts[kind] = int(has.sum())
        rest &= ~has
    return counts


def _fresh(rank: RankComparison, steps: Sequence[int], aside: NDArray[np.intp]) -> int:
    """Count calls that meet fresh memory, but for those that are counted as divergences."""
    index = rank.a.index
    flagged = int(index["fresh"][np.isin(index["step"], steps)].sum(dtype=np.int64))
    counted = _num_flagged(rank, rank.divergent())
    fresh = aside[(rank.masks[aside] & Mask.FRESH_MEMORY) != 0]
    return flagged - counted + len(fresh) - _num_flagged(rank, fresh)


def _num_flagged(rank: RankComparison, positions: NDArray[np.intp]) -> int:
    in_a = positions[rank.rows(positions)[0] >= 0]
    return int(
        ((rank.events(in_a, ("flags",))["flags"].astype(np.uint16) & np.uint16(Flag.FRESH_MEMORY)) != 0).sum()
    )

"""What was set aside, counted and explained: shown beside the verdict, and counted again on request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison, read_rows
from detlab.comparison.verdicts import MetaFacts
from detlab.errors import InputError
from detlab.schema import Flag, Mask, Verdict

WHY: Final = {
    "not_waited_for": "hashed before the collective was complete",
    "pointers": "an array of addresses, which differ from run to run",
    "copy_in_flight": "hashed while a copy was still in flight",
    "structure_note": "a view, a recomputation or a snapshot of states that only one run makes",
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
_LIFTED: Final = (*_MASKS, ("fresh_memory", Mask.FRESH_MEMORY))


def read_kinds(count: str | Collection[str]) -> tuple[str, ...]:
    """Read which kinds to count: a collection of them, or a text with commas between them.

    Raises
    ------
    InputError
        One of them is no key of `WHY`.
    """
    wanted = [kind.strip() for kind in count.split(",")] if isinstance(count, str) else list(count)
    unknown = [kind for kind in wanted if kind not in WHY]
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is no kind of thing that is set aside; the kinds are {', '.join(WHY)}.",
            "see what was set aside in Comparison.ignored",
        )
    return tuple(kind for kind in WHY if kind in wanted)


def lift(rank: RankComparison, counted: Collection[str]) -> RankComparison:
    """Count some kinds of calls again; what is set aside for another reason as well stays aside."""
    positions = rank.set_aside()
    lifted = np.uint8(sum(mask for kind, mask in _LIFTED if kind in counted))
    kept = np.uint8(sum(mask for kind, mask in _LIFTED if kind not in counted))
    flags = np.uint16(sum(flag for kind, flag in _FLAGS if kind not in counted))
    stays = ((rank.masks[positions] & kept) != 0) | ((_flags_of_pairs(rank, positions) & flags) != 0)
    masks = rank.masks.copy()
    masks[positions] &= ~lifted
    masks[positions[~stays]] &= ~np.uint8(Mask.SET_ASIDE)
    return replace(rank, masks=masks, any_aside=bool(stays.any()))


def why_aside(rank: RankComparison, position: int, counted: Collection[str] = ()) -> list[tuple[str, str]]:
    """Give each kind under which a call was set aside, and what that means; nothing where it counts."""
    if not rank.masks[position] & Mask.SET_ASIDE:
        return []
    flags = int(_flags_of_pairs(rank, np.array([position], np.intp))[0])
    kinds = [kind for kind, mask in _LIFTED if rank.masks[position] & mask]
    kinds += [kind for kind, flag in _FLAGS if flags & flag]
    return [(kind, WHY[kind]) for kind in WHY if kind in kinds and kind not in counted]


def _flags_of_pairs(rank: RankComparison, positions: NDArray[np.intp]) -> NDArray[np.uint16]:
    """Give the flags that either run has; none for calls of one run only, which are no artefacts."""
    flags = np.zeros(len(positions), np.uint16)
    rows = rank.rows(positions)
    paired = (rows[0] >= 0) & (rows[1] >= 0)
    for trace, at in zip((rank.a, rank.b), rows, strict=True):
        flags[paired] |= read_rows(trace, at[paired], ("flags",))["flags"].astype(np.uint16)
    return flags


def count_configuration(rank: RankComparison) -> tuple[RankComparison, NDArray[np.intp]]:
    """Give the verdict changed to matching calls for which the runs chose differently; say which."""
    parts = [np.empty(0, np.intp)]
    facts = MetaFacts(rank.a.names, rank.b.names)
    for block, start in zip(rank.blocks, rank.starts.tolist(), strict=False):
        if not rank.num_other_choice or block["equal"] or min(block["a"], block["b"]) < 0:
            continue
        size = int(block["num_rows"])
        mine, theirs = (
            codes[trace.columns(int(first), int(first) + size, ("meta",))["meta"]]
            for codes, trace, first in zip(
                facts.choices, (rank.a, rank.b), (block["a"], block["b"]), strict=True
            )
        )
        matching = rank.verdicts[start : start + size] == Verdict.MATCH
        parts.append(start + np.flatnonzero(matching & (mine != theirs)))
    found = np.concatenate(parts)
    verdicts = rank.verdicts.copy()
    verdicts[found] = Verdict.CHANGED
    differing = np.union1d(rank.differing, found)
    return replace(rank, verdicts=verdicts, differing=differing, num_other_choice=0), found


def ignored(
    ranks: Sequence[RankComparison], steps: Sequence[int], counted: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Count what was set aside: one entry per kind with ``kind``, ``count`` and ``why``.

    Parameters
    ----------
    ranks, steps
        What was compared.
    counted
        Kinds that were not set aside, on request.
    """
    counts = dict.fromkeys(WHY, 0)
    for rank in ranks:
        positions = rank.set_aside() if rank.any_aside else rank.differing[:0]
        masks = rank.masks[positions]
        for kind, mask in _MASKS:
            counts[kind] += int(((masks & mask) != 0).sum())
        bare = positions[(masks & ~np.uint8(Mask.SET_ASIDE)) == 0]
        for kind, number in _artefacts(rank, bare, counted).items() if len(bare) else ():
            counts[kind] += number
        if "fresh_memory" not in counted:
            counts["fresh_memory"] += _fresh(rank, steps, positions)
        counts["configuration"] += rank.num_other_choice
    return [{"kind": kind, "count": count, "why": WHY[kind]} for kind, count in counts.items() if count]


def _artefacts(rank: RankComparison, positions: NDArray[np.intp], counted: Collection[str]) -> dict[str, int]:
    """Count observer artefacts, each under the first flag that it has and that sets it aside."""
    flags = _flags_of_pairs(rank, positions)
    rest = np.ones(len(positions), bool)
    counts = {}
    for kind, flag in _FLAGS:
        if kind in counted:
            continue
        has = rest & ((flags & np.uint16(flag)) != 0)
        counts[kind] = int(has.sum())
        rest &= ~has
    return counts


def _fresh(rank: RankComparison, steps: Sequence[int], aside: NDArray[np.intp]) -> int:
    """Count calls that meet fresh memory, but for those that are counted as divergences."""
    index = rank.a.index
    flagged = int(index["fresh"][np.isin(index["step"], steps)].sum(dtype=np.int64))
    fresh = aside[(rank.masks[aside] & Mask.FRESH_MEMORY) != 0]
    if not flagged:  # then no event has to be read
        return len(fresh)
    counted = _num_flagged(rank, rank.divergent())
    return flagged - counted + len(fresh) - _num_flagged(rank, fresh)


def _num_flagged(rank: RankComparison, positions: NDArray[np.intp]) -> int:
    in_a = positions[rank.rows(positions)[0] >= 0]
    return int(
        ((rank.events(in_a, ("flags",))["flags"].astype(np.uint16) & np.uint16(Flag.FRESH_MEMORY)) != 0).sum()
    )

"""A call that is named beside another one: enough to say what it is and to open it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from detlab.comparison.places import call_row
from detlab.comparison.ranks import RankComparison
from detlab.schema import Mask


@dataclass(frozen=True, slots=True)
class CallRef:
    """One compared call of one rank.

    Attributes
    ----------
    position
        Where it is among the verdicts of its rank, in the order of run a with what only b has in between.
    rank, coordinate, step, microbatch, phase, scope, op, call, verdict, seq_a, seq_b, site
        As the columns of `detlab.comparison.Comparison.first`.
    set_aside
        Whether it was set aside, so that its verdict does not count.
    """

    position: int
    rank: int
    coordinate: str
    step: int
    microbatch: int
    phase: str
    scope: str
    op: str
    call: int
    verdict: str
    seq_a: int | None
    seq_b: int | None
    site: str
    set_aside: bool

    def to_json(self) -> dict[str, Any]:
        """Give the call as JSON has it."""
        return asdict(self)


def call_ref(rank: RankComparison, position: int) -> CallRef:
    """Name the call at a position of a rank."""
    aside = bool(rank.masks[position] & Mask.SET_ASIDE)
    return CallRef(position=position, set_aside=aside, **call_row(rank, position))


def neighbours(
    rank: RankComparison, position: int, size: int
) -> tuple[tuple[CallRef, ...], tuple[CallRef, ...]]:
    """Name the calls just before and just after one, in the order of the rank."""
    first, stop = max(0, position - size), min(len(rank.verdicts), position + 1 + size)
    before = tuple(call_ref(rank, at) for at in range(first, position))
    return before, tuple(call_ref(rank, at) for at in range(position + 1, stop))

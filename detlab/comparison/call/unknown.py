"""Why the verdict of a call is unknown, as far as its own record and its communicator say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detlab.comparison.call.members import Members
from detlab.comparison.call.sides import SideState
from detlab.comparison.ranks import RankComparison
from detlab.comparison.reasons import REASONS
from detlab.comparison.roots import unknown_reason
from detlab.schema import Verdict

_UNPROVEN = "its inputs are equal only in what was recorded of them ({}), which does not prove equal bits"

_BY_RECORD = ("other_digest", "no_evidence", "statistic")
"""Reasons that the record of the call itself gives."""


def why_unknown(
    rank: RankComparison, position: int, states: Sequence[SideState], members: Members | None
) -> str:
    """Say why a call is unknown; empty for a call of any other verdict."""
    if rank.verdicts[position] != Verdict.UNKNOWN:
        return ""
    if members is not None and members.reason:
        return members.reason
    reason = unknown_reason(rank, position)
    if reason in _BY_RECORD:
        return REASONS[reason].why
    if reason == "unproven" or (states[0].same and states[0].evidence in ("printed", "statistic")):
        level = "structure" if states[0].same is None else states[0].evidence  # equal shapes say nothing
        return _UNPROVEN.format(level)
    return _MEMBERS if members is not None else _by_tensors(rank, position, reason, states[0])


_MEMBERS = "not all that its members gave, and that it depends on, is known"


def _by_tensors(rank: RankComparison, position: int, reason: str, inputs: SideState) -> str:
    """Tell apart what the record of one call cannot: the calls around it decided."""
    if inputs.same is False:
        return REASONS["padding"].why
    is_in_flight = reason == "ambiguous" and not _is_ambiguous(rank, position)
    return REASONS["in_flight" if is_in_flight else reason].why


def _is_ambiguous(rank: RankComparison, position: int) -> bool:
    block = int(np.searchsorted(rank.starts, position, side="right")) - 1
    return bool(rank.blocks["ambiguous"][block])

"""Why the verdict of a call is unknown, as far as its own record and its communicator say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detlab.comparison.call.members import Members
from detlab.comparison.call.tensors import SideState
from detlab.comparison.ranks import RankComparison
from detlab.comparison.reasons import REASONS
from detlab.comparison.roots import unknown_reason
from detlab.schema import Verdict

_UNPROVEN = "its inputs are equal only in what was recorded of them ({}), which does not prove equal bits"


def why_unknown(
    rank: RankComparison, position: int, states: Sequence[SideState], members: Members | None
) -> str:
    """Say why a call is unknown; empty for a call of any other verdict."""
    if rank.verdicts[position] != Verdict.UNKNOWN:
        return ""
    if members is not None and members.reason:
        return members.reason
    if states[0].same and states[0].evidence in ("structure", "printed", "statistic"):
        return _UNPROVEN.format(states[0].evidence)
    reason = unknown_reason(rank, position)
    if reason not in ("other_digest", "no_evidence", "statistic") and states[0].same is False:
        return REASONS["padding"].why
    if reason == "ambiguous" and not _is_ambiguous(rank, position):
        return REASONS["in_flight"].why
    return REASONS[reason].why


def _is_ambiguous(rank: RankComparison, position: int) -> bool:
    block = int(np.searchsorted(rank.starts, position, side="right")) - 1
    return bool(rank.blocks["ambiguous"][block])

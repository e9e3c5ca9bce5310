"""Count the calls of some steps by rank and verdict, without making a cell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.schema import Mask, Verdict
from detlab.views.cells.fill import codes_at
from detlab.views.cells.programs import Program
from detlab.views.pooling import MATCH, UNTRACED, without

ASIDE: Final = 1 + len(Verdict)
"""The column, after those of the codes, that counts what was set aside."""


_COMMON_FIRST: Final = sorted(set(Verdict) - {Verdict.MATCH}, key=lambda verdict: verdict != Verdict.RECEIVER)


def count_calls(
    ranks: Sequence[RankComparison], programs: Sequence[Program], steps: Sequence[int]
) -> NDArray[np.int64]:
    """Count calls.

    Returns
    -------
    One row per rank; a column per code, then `ASIDE`. What is set aside is counted there alone.
    """
    counts = np.zeros((len(ranks), ASIDE + 1), np.int64)
    for program in programs:
        runs = program.runs(steps)
        counts[program.members, MATCH] = sum(stop - first for first, stop in runs)
        for number in program.members.tolist():
            rank = ranks[number]
            for run in runs if len(rank.differing) else ():
                _move_differing(rank, run, counts[number])
            for first, stop in runs if rank.any_aside else ():
                _move_untraced(rank.masks[first:stop], counts[number])
    return counts


def _move_differing(rank: RankComparison, run: tuple[int, int], counts: NDArray[np.int64]) -> None:
    """Take the calls of some positions that do not match from those that do."""
    differing = rank.differing[slice(*np.searchsorted(rank.differing, run))]
    if not len(differing):
        return
    here = slice(int(differing[0]), int(differing[-1]) + 1)  # memory outside may never have been touched
    codes, left = codes_at(rank, here), len(differing)
    if rank.any_aside:
        left = int(np.count_nonzero(rank.verdicts[here] * without(rank.masks[here], Mask.UNTRACED)))
    counts[MATCH] -= left
    for verdict in _COMMON_FIRST:  # comparing with each is faster than a histogram
        if left:
            found = int(np.count_nonzero(codes == 1 + verdict))
            counts[1 + verdict] += found
            left -= found
    counts[ASIDE] += left


def _move_untraced(masks: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
    untraced = np.count_nonzero(masks & np.uint8(Mask.UNTRACED))
    counts[MATCH] -= untraced
    counts[UNTRACED] += untraced

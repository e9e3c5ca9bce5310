"""Count the calls of some steps by rank and verdict, without making a cell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.schema import Mask, Verdict
from detlab.views.cells.programs import Program
from detlab.views.pooling import MATCH, UNTRACED, codes_of, without

ASIDE: Final = 1 + len(Verdict)
"""The column, after those of the codes, that counts what was set aside."""


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
            for first, stop in runs if len(rank.differing) or rank.any_aside else ():
                _move_differing(rank, first, stop, counts[number])
    return counts


def _move_differing(rank: RankComparison, first: int, stop: int, counts: NDArray[np.int64]) -> None:
    """Take the calls between two positions that do not match from those that do."""
    verdicts = rank.verdicts[first:stop]
    worst = int(verdicts.max(initial=0))
    # comparing with each verdict up to the worst is faster than a histogram
    if rank.any_aside:
        masks = rank.masks[first:stop]
        codes = codes_of(verdicts, masks)
        moved = {1 + each: np.count_nonzero(codes == 1 + each) for each in range(1, worst + 1)}
        differing = np.count_nonzero(verdicts * without(masks, Mask.UNTRACED))
        moved[ASIDE] = differing - sum(moved.values())
        moved[UNTRACED] = np.count_nonzero(masks & np.uint8(Mask.UNTRACED))
    else:
        moved = {1 + each: np.count_nonzero(verdicts == each) for each in range(1, worst + 1)}
    for code, count in moved.items():
        counts[code] += count
        counts[MATCH] -= count

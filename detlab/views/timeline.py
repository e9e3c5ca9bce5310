"""Which step and phase each compared call of a rank belongs to, from the segment index alone."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison

PART_DTYPE: Final = np.dtype(
    [
        ("position", "<i8"),  # of its first call among the verdicts of the rank
        ("num_rows", "<i8"),
        ("column", "<i8"),  # of its first call among the calls of its step, in the rank's own order
        ("step", "<i4"),
        ("microbatch", "<i2"),
        ("phase", "u1"),
        ("in_a", "u1"),  # 0: these calls are only in run b
        ("record", "<i8"),  # index record of that trace
        ("skip", "<i8"),  # rows of that record before the first call
    ]
)
"""A run of calls that stand together in one segment."""


def timeline(rank: RankComparison) -> NDArray[np.void]:
    """List the parts of a rank's verdicts, in order; not one event is read.

    Returns
    -------
    `PART_DTYPE` rows that cover every position once.
    """
    in_a = rank.blocks["a"] >= 0
    parts = np.concatenate(
        [_parts(rank, np.flatnonzero(in_a), True), _parts(rank, np.flatnonzero(~in_a), False)]
    )
    parts = parts[np.argsort(parts["position"], kind="stable")]
    for step in np.unique(parts["step"]):
        here = np.flatnonzero(parts["step"] == step)
        sizes = parts["num_rows"][here]
        parts["column"][here] = np.cumsum(sizes) - sizes
    return parts


def _parts(rank: RankComparison, blocks: NDArray[np.intp], in_a: bool) -> NDArray[np.void]:
    """Cut some blocks, all of one side, where a new index record begins."""
    trace, side = (rank.a, "a") if in_a else (rank.b, "b")
    starts, index = trace.starts, trace.index
    first_row = rank.blocks[side][blocks]
    stop_row = first_row + rank.blocks["num_rows"][blocks]
    first = np.searchsorted(starts, first_row, side="right") - 1
    counts = np.searchsorted(starts, stop_row, side="left") - first
    block = np.repeat(np.arange(len(blocks)), counts)
    record = first[block] + np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.maximum(starts[record], first_row[block])
    parts = np.zeros(len(block), PART_DTYPE)
    parts["position"] = rank.starts[blocks][block] + begin - first_row[block]
    parts["num_rows"] = np.minimum(starts[record + 1], stop_row[block]) - begin
    parts["in_a"], parts["record"], parts["skip"] = in_a, record, begin - starts[record]
    for name in ("step", "microbatch", "phase"):
        parts[name] = index[name][record]
    return parts[parts["num_rows"] > 0]

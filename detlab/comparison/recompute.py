"""Recognise recomputation: calls of the forward made again in the backward, with the same bits.

A recorder that follows autograd marks them itself. Traces of other tools show the same calls once more,
often under a shortened module name; they add nothing that could differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison, read_rows
from detlab.schema import Phase
from detlab.store import RankTrace

_COLUMNS = ("step", "microbatch", "phase", "callee", "in_digest", "out_digest")
_LATER = (Phase.BACKWARD, Phase.UNSPECIFIED)

Key = tuple[int, int, str, int, int]


def is_recomputed(rank: RankComparison, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Say which calls of one run only repeat a forward call of the same step and microbatch.

    They have its op, inputs and outputs, and its scope or the end of it.
    """
    found = np.zeros(len(positions), bool)
    for trace, rows in zip((rank.a, rank.b), rank.rows(positions), strict=True):
        here = np.flatnonzero(rows >= 0)
        if len(here):
            found[here] |= _repeats(trace, rows[here])
    return found


def _repeats(trace: RankTrace, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    events = read_rows(trace, rows, _COLUMNS)
    repeats: NDArray[np.bool_] = events["phase"] == Phase.RECOMPUTE
    later = np.flatnonzero(np.isin(events["phase"], _LATER))
    if not len(later):
        return repeats
    forward = _forward_calls(trace, np.unique(events["step"][later]))
    for at in later.tolist():
        callee = trace.names.callees[int(events["callee"][at])]
        key = _key(callee.op, *(int(events[name][at]) for name in _KEY_COLUMNS))
        repeats[at] = any(scope.endswith(callee.scope) for scope in forward.get(key, ()))
    return repeats


_KEY_COLUMNS = ("step", "microbatch", "in_digest", "out_digest")


def _key(op: str, step: int, microbatch: int, in_digest: int, out_digest: int) -> Key:
    return step, microbatch, op, in_digest, out_digest


def _forward_calls(trace: RankTrace, steps: NDArray[np.int32]) -> dict[Key, set[str]]:
    """Give the scopes of every forward call of some steps, by step, microbatch, op and bits."""
    calls: dict[Key, set[str]] = {}
    starts, index = trace.starts, trace.index
    for record in np.flatnonzero(np.isin(index["step"], steps) & (index["phase"] == Phase.FORWARD)):
        columns = trace.columns(int(starts[record]), int(starts[record + 1]), _COLUMNS)
        numbers = (columns[name].tolist() for name in _KEY_COLUMNS)
        for number, *rest in zip(columns["callee"].tolist(), *numbers, strict=True):
            callee = trace.names.callees[number]
            calls.setdefault(_key(callee.op, *rest), set()).add(callee.scope)
    return calls

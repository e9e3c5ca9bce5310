"""Align the calls of two segments that do not list the same callees.

Alignment never looks at values: a call is paired by what was called, in order, and by how many calls
of that callee went before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positions on both sides, row by row; -1 where a side has no partner."""


def align_rows(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> Pairs:
    """Pair two sequences of callees.

    The common beginning and end are paired as they stand. Between them the *n*-th call of a callee is
    paired with the *n*-th call of the same callee, so that one extra or missing call shifts no other.

    Parameters
    ----------
    a, b
        Content digests of the callees, in order of completion.

    Returns
    -------
    Positions in ``a`` and in ``b``, in the order of ``a``; rows only in ``b`` come last.
    """
    short = min(len(a), len(b))
    head = _common(a[:short], b[:short])
    tail = _common(a[head:][::-1][: short - head], b[head:][::-1][: short - head])
    end_a, end_b = len(a) - tail, len(b) - tail
    middle_a, middle_b = _pair_by_count(a[head:end_a], b[head:end_b])
    edges = np.arange(head), np.arange(tail)
    at_a = [edges[0], np.where(middle_a < 0, -1, middle_a + head), edges[1] + end_a]
    at_b = [edges[0], np.where(middle_b < 0, -1, middle_b + head), edges[1] + end_b]
    return np.concatenate(at_a), np.concatenate(at_b)


def _common(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> int:
    same = a == b
    return len(same) if same.all() else int(np.argmin(same))


def occurrences(keys: NDArray[np.generic]) -> NDArray[np.int64]:
    """Count for each row how many earlier rows have the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), bool), ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, len(keys)))
    counts = np.empty(len(keys), np.int64)
    counts[order] = np.arange(len(keys)) - np.repeat(starts, lengths)
    return counts


def _pair_by_count(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> Pairs:
    key_a, key_b = _occurrence_keys(a, b)
    _, at_a, at_b = np.intersect1d(key_a, key_b, assume_unique=True, return_indices=True)
    partner = np.full(len(a), -1, np.int64)
    partner[at_a] = at_b
    only_b = np.setdiff1d(np.arange(len(b)), at_b, assume_unique=True)
    return (
        np.concatenate([np.arange(len(a)), np.full(len(only_b), -1)]),
        np.concatenate([partner, only_b]),
    )


def _occurrence_keys(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> Pairs:
    """Give (callee, count) pairs the same numbers on both sides; each is unique within a side."""
    _, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    width = max(len(a), len(b)) + 1
    code_a, code_b = codes[: len(a)].astype(np.int64), codes[len(a) :].astype(np.int64)
    return code_a * width + occurrences(code_a), code_b * width + occurrences(code_b)

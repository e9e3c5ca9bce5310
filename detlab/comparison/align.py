"""Align the calls of two segments that do not list the same callees.

Pairs keep the order of both sides. They are found from the surest to the loosest: calls that are alike
in everything and occur once, then calls whose neighbours are alike, then callees that occur once, and
what is left between these by the longest common subsequence of callees. Values only break ties; they
are never required to be equal. Calls left over on both sides that are alike in their inputs were moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positions on both sides, row by row; -1 where a side has no partner."""

_MAX_PRODUCT: Final = 250_000
"""Up to this many pairs of rows a gap is aligned exactly; a larger one by counting calls."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Calls:
    """One side of a segment, row by row.

    Attributes
    ----------
    callee
        Content digest of the callee.
    inputs, outputs
        Folds of the inputs and of the outputs.
    meta
        Content digest of the meta: shapes, dtypes, strides, attributes.
    family
        As ``callee``, but the same for a collective whatever a library calls it.
    """

    callee: Keys
    inputs: Keys
    outputs: Keys
    meta: Keys
    family: Keys

    def levels(self) -> tuple[Keys, ...]:
        """Give keys from the surest to the loosest: alike in all, in inputs, with neighbours; callee."""
        before = np.concatenate([np.zeros(1, np.uint64), self.callee[:-1]])
        after = np.concatenate([self.callee[1:], np.zeros(1, np.uint64)])
        alike = _mix(self.callee, self.inputs, self.outputs)
        return (
            alike,
            _mix(self.callee, self.inputs),
            _mix(self.callee, self.meta, before, after),
            self.callee,
        )

    def __len__(self) -> int:
        return len(self.callee)


def _mix(*columns: Keys) -> Keys:
    """Combine columns row by row into one key: a multiply and shift after each, as in splitmix64."""
    mixed = np.full(len(columns[0]), 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        mixed = (mixed ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def align(a: Calls, b: Calls) -> Pairs:
    """Pair two sequences of calls so that one extra, missing or moved call shifts no other.

    Returns
    -------
    Positions in ``a`` and in ``b``, in the order of ``a``; rows only in ``b`` come last.
    """
    if _comes_first(b, a):  # where several alignments are as good, the order of the runs must not choose
        partner_of_b = _partners(b, a)
        partner = np.full(len(a), -1, np.int64)
        paired = np.flatnonzero(partner_of_b >= 0)
        partner[partner_of_b[paired]] = paired
    else:
        partner = _partners(a, b)
    only_b = np.setdiff1d(np.arange(len(b)), partner)
    at_a = np.concatenate([np.arange(len(a)), np.full(len(only_b), -1)])
    return at_a, np.concatenate([partner, only_b])


def _comes_first(a: Calls, b: Calls) -> bool:
    """Order two different sequences of calls by their content."""
    keys = [(len(calls), _mix(*calls.levels()).tobytes()) for calls in (a, b)]
    return keys[0] < keys[1]


def _partners(a: Calls, b: Calls) -> NDArray[np.int64]:
    """Give for each call of ``a``, the shorter one, its partner in ``b``, -1 for none."""
    partner = np.full(len(a), -1, np.int64)
    (alike_a, inputs_a, *_), (alike_b, inputs_b, *_) = levels = a.levels(), b.levels()
    _Matcher(*levels, partner).match((0, len(a)), (0, len(b)), 0)
    _match_moved(alike_a, alike_b, partner)
    _match_moved(inputs_a, inputs_b, partner)
    _match_moved(_mix(a.family, a.inputs), _mix(b.family, b.inputs), partner)
    _match_last(a.callee, b.callee, partner)
    if (partner >= 0).all() and (alike_a == alike_b[partner]).all():
        return partner
    embedded = _embedded(alike_a, alike_b)
    return partner if embedded is None else embedded


def _embedded(a: Keys, b: Keys) -> NDArray[np.int64] | None:
    """Pair every key of ``a`` where ``b`` has the same keys in the same order, and others between."""
    following = enumerate(b.tolist())
    found: list[int] = []
    for key in a.tolist():
        at = next((at for at, other in following if other == key), None)
        if at is None:
            return None
        found.append(at)
    return np.array(found, np.int64)


@dataclass(frozen=True, slots=True)
class _Matcher:
    """Finds pairs level by level; what a surer level has paired bounds what a looser one may pair."""

    a: Sequence[Keys]
    b: Sequence[Keys]
    partner: NDArray[np.int64]

    def match(self, span_a: Span, span_b: Span, level: int) -> None:
        """Pair inside two spans: alike ends, then the anchors of this level, then the gaps between."""
        if level == len(self.a):
            self._match_gap(span_a, span_b)
            return
        span_a, span_b = self._match_ends(span_a, span_b, level)
        at_a, at_b = anchors(self.a[level][slice(*span_a)], self.b[level][slice(*span_b)])
        self.partner[at_a + span_a[0]] = at_b + span_b[0]
        edges_a = np.concatenate([[span_a[0] - 1], at_a + span_a[0], [span_a[1]]])
        edges_b = np.concatenate([[span_b[0] - 1], at_b + span_b[0], [span_b[1]]])
        for gap in np.flatnonzero((np.diff(edges_a) > 1) & (np.diff(edges_b) > 1)).tolist():
            inner_a = int(edges_a[gap]) + 1, int(edges_a[gap + 1])
            inner_b = int(edges_b[gap]) + 1, int(edges_b[gap + 1])
            self.match(inner_a, inner_b, level + 1)

    def _match_ends(self, span_a: Span, span_b: Span, level: int) -> tuple[Span, Span]:
        a, b = self.a[level][slice(*span_a)], self.b[level][slice(*span_b)]
        short = min(len(a), len(b))
        head = _num_alike(a[:short], b[:short])
        tail = _num_alike(a[::-1][: short - head], b[::-1][: short - head])
        (start_a, stop_a), (start_b, stop_b) = span_a, span_b
        self.partner[start_a : start_a + head] = np.arange(start_b, start_b + head)
        self.partner[stop_a - tail : stop_a] = np.arange(stop_b - tail, stop_b)
        return (start_a + head, stop_a - tail), (start_b + head, stop_b - tail)

    def _match_gap(self, span_a: Span, span_b: Span) -> None:
        a, b = self.a[-1][slice(*span_a)], self.b[-1][slice(*span_b)]
        at_a, at_b = _common_subsequence(a, b) if len(a) * len(b) <= _MAX_PRODUCT else _by_count(a, b)
        self.partner[at_a + span_a[0]] = at_b + span_b[0]


def _num_alike(a: Keys, b: Keys) -> int:
    same = a == b
    return len(same) if same.all() else int(np.argmin(same))


def anchors(a: Keys, b: Keys) -> Pairs:
    """Pair the keys that occur once on both sides, as many as keep the order of both."""
    once_a, once_b = _once(a), _once(b)
    _, at_a, at_b = np.intersect1d(a[once_a], b[once_b], assume_unique=True, return_indices=True)
    return in_order(once_a[at_a], once_b[at_b])


def _once(keys: Keys) -> NDArray[np.int64]:
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return np.sort(first[counts == 1])


def in_order(at_a: NDArray[np.int64], at_b: NDArray[np.int64]) -> Pairs:
    """Keep as many pairs as possible so that both sides ascend: the longest increasing subsequence."""
    order = np.argsort(at_a, kind="stable")
    at_a, at_b = at_a[order], at_b[order]
    if (np.diff(at_b) > 0).all():
        return at_a, at_b
    ends: list[int] = []  # smallest last position of an ascending run of each length
    last: list[int] = []  # pair that such a run ends with
    before = np.full(len(at_b), -1, np.int64)
    for pair, position in enumerate(at_b.tolist()):
        length = bisect_left(ends, position)
        before[pair] = last[length - 1] if length else -1
        ends[length : length + 1] = [position]
        last[length : length + 1] = [pair]
    kept = []
    pair = last[-1]
    while pair >= 0:
        kept.append(pair)
        pair = int(before[pair])
    return at_a[kept[::-1]], at_b[kept[::-1]]


def _common_subsequence(a: Keys, b: Keys) -> Pairs:
    blocks = SequenceMatcher(None, a.tolist(), b.tolist(), autojunk=False).get_matching_blocks()
    at_a = [np.arange(block.a, block.a + block.size) for block in blocks]
    at_b = [np.arange(block.b, block.b + block.size) for block in blocks]
    return np.concatenate(at_a), np.concatenate(at_b)


def _by_count(a: Keys, b: Keys) -> Pairs:
    """Pair the *n*-th call of a callee with the *n*-th call of the same callee."""
    key_a, key_b = _mix(a, occurrences(a).astype(np.uint64)), _mix(b, occurrences(b).astype(np.uint64))
    return anchors(key_a, key_b)


def occurrences(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Count for each row how many earlier rows have the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), bool), ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, len(keys)))
    counts = np.empty(len(keys), np.int64)
    counts[order] = np.arange(len(keys)) - np.repeat(starts, lengths)
    return counts


def _match_moved(a: Keys, b: Keys, partner: NDArray[np.int64]) -> None:
    """Pair calls that are left over on both sides and have one key, whatever stands between them."""
    left_a = np.flatnonzero(partner < 0)
    left_b = np.setdiff1d(np.arange(len(b)), partner)
    key_a, key_b = a[left_a], b[left_b]
    key_a = _mix(key_a, occurrences(key_a).astype(np.uint64))
    key_b = _mix(key_b, occurrences(key_b).astype(np.uint64))
    _, at_a, at_b = np.intersect1d(key_a, key_b, assume_unique=True, return_indices=True)
    partner[left_a[at_a]] = left_b[at_b]


def _match_last(a: Keys, b: Keys, partner: NDArray[np.int64]) -> None:
    """Pair the callees of which both sides have just one call left: it was moved and has other inputs."""
    left_a = np.flatnonzero(partner < 0)
    left_b = np.setdiff1d(np.arange(len(b)), partner)
    once_a, once_b = _once(a[left_a]), _once(b[left_b])
    _, at_a, at_b = np.intersect1d(
        a[left_a[once_a]], b[left_b[once_b]], assume_unique=True, return_indices=True
    )
    partner[left_a[once_a[at_a]]] = left_b[once_b[at_b]]


def ambiguous(a: Calls, b: Calls, pairs: Pairs) -> NDArray[np.bool_]:
    """Say which pairs have equal inputs and other outputs while another partner would match in both."""
    at_a, at_b = pairs
    paired = np.flatnonzero((at_a >= 0) & (at_b >= 0))
    mine, theirs = at_a[paired], at_b[paired]
    differs = (a.inputs[mine] == b.inputs[theirs]) & (a.outputs[mine] != b.outputs[theirs])
    whole_a, whole_b = _mix(a.callee, a.inputs, a.outputs), _mix(b.callee, b.inputs, b.outputs)
    found = np.zeros(len(at_a), bool)
    found[paired] = differs & (np.isin(whole_a[mine], whole_b) | np.isin(whole_b[theirs], whole_a))
    return found

"""Choices that a comparison's own calls carry: here no join is needed, each call has its partner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from detlab.checks.kernels.calls import OUTCOMES, outcomes_at
from detlab.checks.kernels.joining import Joined
from detlab.checks.kernels.pairing import Entry, Pair
from detlab.comparison.places import site_at
from detlab.comparison.ranks import RankComparison, read_rows
from detlab.readers.choices.traced import choice_of, problem_of
from detlab.schema import Kind, Meta

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

_ROWS: Final = 1 << 16
_MAX_SITES: Final = 4


def attribute_choices(cmp: Comparison) -> list[Joined]:
    """Give what was chosen for each compared call of which either run recorded it, calls alike together."""
    return [each for rank in cmp.ranks for each in _of_rank(rank)]


def _of_rank(rank: RankComparison) -> Iterator[Joined]:
    telling = [_telling(names.metas) for names in (rank.a.names, rank.b.names)]
    if not any(each.any() for each in telling):
        return
    found: dict[tuple[int, int, int, int], list[NDArray[np.int64]]] = defaultdict(list)
    for start in range(0, len(rank.verdicts), _ROWS):
        positions = np.arange(start, min(start + _ROWS, len(rank.verdicts)))
        rows = rank.rows(positions)
        positions = positions[(rows[0] >= 0) & (rows[1] >= 0)]
        if len(positions):
            _gather(rank, positions, telling, found)
    for (callee, meta_a, meta_b, outcome), parts in sorted(found.items()):
        yield _joined(rank, (callee, meta_a, meta_b), outcome, np.concatenate(parts))


def _telling(metas: Iterable[Meta]) -> NDArray[np.bool_]:
    return np.array([bool(choice_of(meta)) for meta in metas], np.bool_)


def _gather(
    rank: RankComparison,
    positions: NDArray[np.int64],
    telling: list[NDArray[np.bool_]],
    found: dict[tuple[int, int, int, int], list[NDArray[np.int64]]],
) -> None:
    """Put positions with one callee, choice and outcome together; collectives choose elsewhere."""
    rows_a, rows_b = rank.rows(positions)
    mine = read_rows(rank.a, rows_a, ("callee", "meta", "kind"))
    theirs = read_rows(rank.b, rows_b, ("meta",))
    told = telling[0][mine["meta"]] | telling[1][theirs["meta"]]
    kept = np.flatnonzero(told & (mine["kind"] != Kind.COLLECTIVE))
    if not len(kept):
        return
    outcomes = outcomes_at(rank, positions[kept])
    columns = np.stack([mine["callee"][kept], mine["meta"][kept], theirs["meta"][kept], outcomes], axis=1)
    keys, member = np.unique(columns, axis=0, return_inverse=True)
    for number, key in enumerate(keys.tolist()):
        found[key[0], key[1], key[2], key[3]].append(
            positions[kept[np.flatnonzero(member.ravel() == number)]]
        )


def _joined(
    rank: RankComparison, names: tuple[int, int, int], outcome: int, positions: NDArray[np.int64]
) -> Joined:
    callee, meta_a, meta_b = names
    a, b = rank.a.names.metas[meta_a], rank.b.names.metas[meta_b]
    entry = Entry("trace", rank.a.names.callees[callee].op, problem_of(a))
    chosen = [choice_of(each) or None for each in (a, b)]
    is_told = chosen[0] != chosen[1] or OUTCOMES[outcome] == "bits"  # a site takes time to find
    sites = tuple(str(site_at(rank, int(at))) for at in positions[: _MAX_SITES if is_told else 0])
    where = (sites[0], sites[0]) if sites else ("", "")
    pair = Pair(entry, rank.rank, chosen[0], chosen[1], len(positions), 0, where)
    how = "recorded with the call in both runs"
    return Joined(pair, OUTCOMES[outcome], rank.rank, len(positions), sites, how, is_exact=True)

"""The rows of a map of ranks: every place of either run, in groups by coordinate, host or rack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.comparison.ranks import RankComparison
from detlab.schema import Coordinate, Mask, Verdict
from detlab.store import RankTrace
from detlab.views.pooling import without
from detlab.views.text import visible

_FIRST: Final = 256
"""So many differing calls are looked at first, before all of them."""

Group = tuple[str, int, int]
"""A label, the first displayed row, and one past the last."""


class RankRow(NamedTuple):
    """One place of the parallel layout.

    Attributes
    ----------
    rank, coordinate
        Global rank (of run a where it has one) and its place.
    number
        Its number in the comparison; -1: only one run has a trace of it.
    host, rack
        As run a states them, else run b; empty where neither does.
    label
        Its name on the map.
    """

    rank: int
    coordinate: Coordinate
    number: int
    host: str
    rack: str
    label: str


def rank_rows(cmp: Comparison) -> list[RankRow]:
    """List every place of either run by rank."""
    racks = {**cmp.b.manifest.racks, **cmp.a.manifest.racks}
    rows = [_row(rank.a, racks, number, "") for number, rank in enumerate(cmp.ranks)]
    for place in cmp.untraced:
        only_a = place in cmp.a.by_coordinate
        trace = (cmp.a if only_a else cmp.b).by_coordinate[place]
        rows.append(_row(trace, racks, -1, f" · only in {'a' if only_a else 'b'}"))
    return sorted(rows, key=lambda row: row.rank)


def _row(trace: RankTrace, racks: dict[str, str], number: int, remark: str) -> RankRow:
    header = trace.header
    host, rack = (str(header.recipe.get(name) or "") for name in ("host", "rack"))
    label = f"{header.rank} · {header.coordinate}{remark}"
    return RankRow(header.rank, header.coordinate, number, host, racks.get(host, rack), label)


def offered_orders(rows: Sequence[RankRow]) -> list[str]:
    """Name what ranks can be grouped by: each axis, and host and rack, with more than one value."""
    names = [*Coordinate._fields, "host", "rack"]
    return ["rank", *(name for name in names if len({_value(row, name) for row in rows}) > 1)]


def _value(row: RankRow, order: str) -> str:
    return str(getattr(row, order)) if order in ("host", "rack") else str(getattr(row.coordinate, order))


def arrange(rows: Sequence[RankRow], order: str) -> tuple[NDArray[np.intp], list[Group]]:
    """Sort rows by an order, equal ones by rank.

    Returns
    -------
    The rows in the order in which they are displayed, and the groups; no groups in the order of ranks.
    """
    if order == "rank":
        return np.arange(len(rows)), []
    values = [_value(row, order) for row in rows]
    shown = sorted(range(len(rows)), key=lambda row: (not values[row], _natural(values[row])))
    groups, start = [], 0
    for value, members in groupby(shown, key=lambda row: values[row]):
        stop = start + sum(1 for _ in members)
        groups.append((_group_label(order, value), start, stop))
        start = stop
    return np.array(shown, np.intp), groups


def _natural(text: str) -> list[int | str]:
    """Sort numbers inside names as numbers, so that n2 comes before n10."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", text))]


def _group_label(order: str, value: str) -> str:
    if order in ("host", "rack"):
        return visible(value) or f"no {order}"
    return f"{order}{value}"


def best_order(cmp: Comparison, rows: Sequence[RankRow]) -> str:
    """Choose the order that separates the ranks best.

    That is the axis of the first finding that has one; else the axis that explains most of the variance
    of how ranks differ (not, without an origin, with one). Many groups explain something of any
    pattern, so that the explained share is adjusted for their number; where nothing explains anything,
    ranks stay in their own order.
    """
    offered = offered_orders(rows)
    for finding in cmp.roots:
        for order in _orders_of(finding.axis):
            if order in offered:
                return order
    found = np.array([_severity(cmp.ranks[row.number]) if row.number >= 0 else 0 for row in rows], float)
    shares = {order: _explained([_value(row, order) for row in rows], found) for order in offered[1:]}
    best = max(shares, key=shares.__getitem__, default="rank")
    return best if shares.get(best, 0) > 0 else "rank"


def _orders_of(axis: str) -> list[str]:
    """Read the orders out of the axis of a finding: ``dp=1, which is node n1`` has two."""
    names = re.split(", which is | and ", axis)
    kinds = [re.split("[= ]", name)[0] for name in names if not name.endswith(" in b")]
    return ["host" if kind == "node" else kind for kind in kinds]


def _severity(rank: RankComparison) -> int:
    """Give 0 for a rank without a divergence, 1 for one with some, 2 for one that holds an origin."""
    worst = rank.verdicts.max(initial=0)  # reading all in a row is faster than picking those that differ
    if rank.any_aside and worst == Verdict.ORIGIN:
        worst = (rank.verdicts * without(rank.masks, Mask.SET_ASIDE)).max()
    if worst == Verdict.ORIGIN:
        return 2
    near = rank.differing[:_FIRST]
    differs = rank.is_counted(near).any() or (len(rank.differing) > _FIRST and len(rank.divergent()))
    return int(bool(differs))


def _explained(values: Sequence[str], found: NDArray[np.float64]) -> float:
    """Give the share of the variance that groups explain, adjusted for their number; 0 for no variance."""
    _, group = np.unique(values, return_inverse=True)
    sizes = np.bincount(group)
    total = float(((found - found.mean()) ** 2).sum())
    free = len(values) - len(sizes)
    if not total or not free:
        return 0.0
    means = np.bincount(group, found) / sizes
    within = float(((found - means[group]) ** 2).sum())
    return 1 - (within / free) / (total / (len(values) - 1))

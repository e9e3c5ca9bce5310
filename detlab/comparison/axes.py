"""Which parallel axis a set of ranks fits, and how often chance fits one as well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from math import comb

from detlab.schema import Coordinate


def fitting_axis(coordinates: Mapping[int, Coordinate], ranks: Collection[int]) -> tuple[str, float | None]:
    """Name the axis whose one value is just the set of ranks given.

    Parameters
    ----------
    coordinates
        Place of every compared rank.
    ranks
        The ranks that have something in common.

    Returns
    -------
    axis
        ``all`` for every rank, ``dp=1`` for all ranks at one value of an axis, else empty.
    chance
        The share of equally large sets of ranks that fit some axis; None where no axis fits. With few
        ranks it is large, and the pattern says little.
    """
    chosen = frozenset(ranks)
    if chosen == frozenset(coordinates):
        return "all", 1.0
    sets = _axis_sets(coordinates)
    name = next((name for members, name in sets.items() if members == chosen), "")
    if not name:
        return "", None
    alike = sum(len(members) == len(chosen) for members in sets)
    return name, alike / comb(len(coordinates), len(chosen))


def _axis_sets(coordinates: Mapping[int, Coordinate]) -> dict[frozenset[int], str]:
    """Give the ranks at each value of each axis that has more than one value."""
    sets: dict[frozenset[int], str] = {}
    for axis in Coordinate._fields:
        members: dict[int, set[int]] = defaultdict(set)
        for rank, coordinate in coordinates.items():
            members[getattr(coordinate, axis)].add(rank)
        if len(members) > 1:
            for value, ranks in members.items():
                sets.setdefault(frozenset(ranks), f"{axis}={value}")
    return sets

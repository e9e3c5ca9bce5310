"""Which axis (coordinate, node, rack, local rank) a set of ranks fits, and how often chance fits one too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import comb

from detlab.comparison.ranks import RankComparison
from detlab.schema import Coordinate
from detlab.store import RankHeader

Racks = Mapping[str, str]
"""The rack of each host, as the manifest of a run states it."""

Headers = Mapping[int, RankHeader]
"""Header of each rank of a run, by its number in run a."""

Candidates = Mapping[frozenset[int], Sequence[str]]
"""For each set of ranks that has an axis' value to itself, every name of it."""


def fitting_axis(
    candidates: Candidates, compared: Collection[int], ranks: Collection[int]
) -> tuple[str, float | None]:
    """Name the axis whose one value is just the set of ranks given.

    Parameters
    ----------
    candidates
        What `candidate_axes` gives.
    compared
        Every compared rank.
    ranks
        The ranks that have something in common.

    Returns
    -------
    axis
        ``all`` for every rank, ``dp=1`` for all ranks at one value of an axis, else empty. Where several
        axes have that set, all are named, as in ``dp=1, which is node n1``: nothing tells them apart.
    chance
        The share of equally large sets of ranks that fit some axis; None where no axis fits. With few
        ranks or many axes it is large, and the pattern says little.
    """
    chosen = frozenset(ranks)
    if chosen == frozenset(compared):
        return "all", 1.0
    names = candidates.get(chosen, ())
    if not names:
        return "", None
    alike = sum(len(members) == len(chosen) for members in candidates)
    others = f", which is {' and '.join(names[1:])}" if names[1:] else ""
    return names[0] + others, alike / comb(len(compared), len(chosen))


def candidate_axes(ranks: Sequence[RankComparison], racks: tuple[Racks, Racks] = ({}, {})) -> Candidates:
    """Give the sets of ranks at each value of each axis that has more than one value.

    Parameters
    ----------
    ranks
        Every compared rank.
    racks
        The rack of each host in run a and in run b.

    Returns
    -------
    The sets by the ranks' numbers in run a. A node is the ``host`` in the recipe of a rank, its rack what
    the manifest says of this host, else the ``rack`` in the recipe, and a local rank the slot of its device
    there. Each run has hosts of its own, so either run's nodes, racks and local ranks are axes, named
    ``node n1 in a``, or ``node n1`` where both runs have it on the same ranks. A run that does not state
    one for every compared rank has none. Local ranks that no two ranks share, as on a single node, are
    only other names of the ranks, and no axis.
    """
    found: dict[frozenset[int], list[str]] = defaultdict(list)
    for axis in Coordinate._fields:
        for value, members in _sets({each.rank: str(getattr(each.coordinate, axis)) for each in ranks}):
            found[members].append(f"{axis}={value}")
    headers = [{each.rank: each.a.header for each in ranks}, {each.rank: each.b.header for each in ranks}]
    for axis, read in (("node", _hosts), ("rack", _racks), ("local rank", _local_ranks)):
        in_a, in_b = (read(*of_run) for of_run in zip(headers, racks, strict=True))
        for name, members in _placed(axis, in_a, in_b):
            found[members].append(name)
    return found


def _placed(
    axis: str, in_a: Mapping[int, str], in_b: Mapping[int, str]
) -> Iterator[tuple[str, frozenset[int]]]:
    """Name the sets of ranks that share a machine in run a, in run b, or the same one in both."""
    mine, theirs = (_sets(values) if all(values.values()) else [] for values in (in_a, in_b))
    for value, members in mine:
        yield f"{axis} {value}{'' if (value, members) in theirs else ' in a'}", members
    for value, members in theirs:
        if (value, members) not in mine:
            yield f"{axis} {value} in b", members


def _sets(values: Mapping[int, str]) -> list[tuple[str, frozenset[int]]]:
    """Give each value with its ranks; nothing where all ranks have the same one."""
    members: dict[str, set[int]] = defaultdict(set)
    for rank, value in values.items():
        members[value].add(rank)
    return [(value, frozenset(ranks)) for value, ranks in members.items()] if len(members) > 1 else []


def _hosts(headers: Headers, _: Racks) -> dict[int, str]:
    return {rank: _text(header, "host") for rank, header in headers.items()}


def _racks(headers: Headers, racks: Racks) -> dict[int, str]:
    """Give the rack of each rank: as the manifest has it by host, else as the rank was told."""
    return {rank: racks.get(_text(header, "host"), _text(header, "rack")) for rank, header in headers.items()}


def _local_ranks(headers: Headers, _: Racks) -> dict[int, str]:
    """Give the slot of each rank on its node; none is known where no two ranks share one."""
    stated = {rank: header.recipe.get("local_rank") for rank, header in headers.items()}
    slots = {rank: str(slot) if type(slot) is int else "" for rank, slot in stated.items()}
    return slots if len(set(slots.values())) < len(slots) else dict.fromkeys(slots, "")


def _text(header: RankHeader, name: str) -> str:
    value = header.recipe.get(name)
    return value if isinstance(value, str) else ""

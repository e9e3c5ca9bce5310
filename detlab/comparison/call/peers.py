"""The same site on every other rank, found without reading their traces one by one.

Ranks that run the same program have their sites at the same rows: they are grouped by the digests of their
segments, and one rank of each group is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from detlab.comparison.places import row_of
from detlab.comparison.ranks import RankComparison
from detlab.schema import Mask, Site, Verdict

MAX_PEERS: Final = 64
"""So many ranks are listed, those that differ most first; all are counted."""

_MAX_PROGRAMS: Final = 64
"""So many different programs are searched for a site; ranks of further ones are counted as not looked at."""

_PROGRAM: Final = ("step", "microbatch", "phase", "num_rows", "identity")


@dataclass(frozen=True, slots=True)
class Peer:
    """The same site on another rank.

    Attributes
    ----------
    rank, coordinate
        The rank and its place.
    verdict
        The verdict of its call.
    set_aside
        Whether it was set aside there.
    """

    rank: int
    coordinate: str
    verdict: str
    set_aside: bool


@dataclass(frozen=True, slots=True)
class Peers:
    """The same site on all other ranks.

    Attributes
    ----------
    counts
        Number of other ranks by verdict of their call, most severe first; without those set aside.
    num_aside
        On how many it was set aside.
    num_without
        How many make no such call.
    num_unseen
        How many were not looked at, because too many different programs run.
    listed
        At most `MAX_PEERS` of them: the most severe first, then by rank.
    """

    counts: dict[str, int]
    num_aside: int
    num_without: int
    num_unseen: int
    listed: tuple[Peer, ...]

    @property
    def num_found(self) -> int:
        """How many other ranks make the call."""
        return sum(self.counts.values()) + self.num_aside

    def to_json(self) -> dict[str, Any]:
        """Give the peers as JSON has it."""
        return asdict(self)


class Programs:
    """The ranks of a comparison by the program that they run, as far as rows and positions go.

    Parameters
    ----------
    ranks
        All compared ranks.
    """

    def __init__(self, ranks: Sequence[RankComparison]) -> None:
        self._ranks = ranks
        digests: dict[int, bytes] = {}
        groups: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
        for number, rank in enumerate(ranks):
            parts = [_digest(each.index, _PROGRAM, digests) for each in (rank.a, rank.b)]
            groups[(*parts, _digest(rank.blocks, ("a", "b", "num_rows"), digests))].append(number)
        self._groups = sorted(groups.values())

    def peers(self, number: int, site: Site, in_b: bool) -> Peers:
        """Find a site on all ranks but one.

        Parameters
        ----------
        number
            Which rank is left out, by its place in the comparison.
        site, in_b
            The site, and whether its number of the call is that of run b.
        """
        found: list[tuple[int, int]] = []
        num_without = num_unseen = 0
        for order, group in enumerate(self._groups):
            others = [each for each in group if each != number]
            if order >= _MAX_PROGRAMS:
                num_unseen += len(others)
                continue
            position = _position(self._ranks[group[0]], site, in_b) if others else None
            if position is None:
                num_without += len(others)
            else:
                found += [(each, position) for each in others]
        return self._count(found, num_without, num_unseen)

    def _count(self, found: Sequence[tuple[int, int]], num_without: int, num_unseen: int) -> Peers:
        codes = np.array([self._ranks[each].verdicts[at] for each, at in found], np.int64)
        aside = np.array([self._ranks[each].masks[at] & Mask.SET_ASIDE for each, at in found], bool)
        counted = np.bincount(codes[~aside], minlength=len(Verdict))
        worst = np.lexsort((np.array([each for each, _ in found], np.int64), -codes, aside))[:MAX_PEERS]
        listed = []
        for at in worst.tolist():
            rank = self._ranks[found[at][0]]
            name = Verdict(int(codes[at])).name.lower()
            listed.append(Peer(rank.rank, str(rank.coordinate), name, bool(aside[at])))
        counts = {
            verdict.name.lower(): int(counted[verdict]) for verdict in reversed(Verdict) if counted[verdict]
        }
        return Peers(counts, int(aside.sum()), num_without, num_unseen, tuple(listed))


def _digest(rows: NDArray[np.void], names: Sequence[str], known: dict[int, bytes]) -> bytes:
    """Digest some columns of an array; one that ranks share in memory is digested once."""
    found = known.get(id(rows))
    if found is None:
        found = known[id(rows)] = xxh3_128_digest(b"".join(rows[name].tobytes() for name in names))
    return found


def _position(rank: RankComparison, site: Site, in_b: bool) -> int | None:
    """Give the position of a site on a rank; None where it makes no such call or it was not compared."""
    for of_b in (in_b, not in_b):
        row = row_of(rank.b if of_b else rank.a, site)
        if row is not None:
            position = int(rank.positions_of(np.array([row]), in_b=of_b)[0])
            return position if position >= 0 else None
    return None

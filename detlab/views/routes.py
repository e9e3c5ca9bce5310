"""The routes by which the difference of a finding reached other ranks: few are followed, long ones cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

from detlab.comparison import Comparison, Finding
from detlab.comparison.findings import MAX_SITES
from detlab.comparison.paths import MAX_HOPS
from detlab.schema import Site

MAX_RECEIVERS: Final = 8
"""The paths of so many receiving ranks are followed in one report; each reads the steps that it crosses."""

MAX_ROUTES: Final = 24
"""About so many routes are drawn in one report: with many findings each has fewer, and at least one."""

MAX_STOPS: Final = 24
"""Longer routes lose their middle."""

_MAX_PLAIN = 4  # so many ordinary calls in a row are all shown

_NOT_ROOTS = ("match", "receiver", "absorbed")


class Stop(NamedTuple):
    """One call on a route.

    Attributes
    ----------
    rank, coordinate
        Where it ran.
    step, phase, scope, op, group
        What was called; ``group`` is the label of the communicator, empty for ordinary calls.
    verdict, site
        As in the comparison.
    via
        How the difference came in from the stop before: an input, a communication; empty for the first.
    aside
        For a call that is set aside and stands in the path all the same: that it is, and why where the
        path says so; empty for others.
    skipped
        Number of calls that are left out just before it.
    """

    rank: int
    coordinate: str
    step: int
    phase: str
    scope: str
    op: str
    group: str
    verdict: str
    site: str
    via: str
    aside: str
    skipped: int = 0


Route = tuple[Stop, ...]
"""The stops from where a difference began to the first differing call of a receiving rank."""


class FindingRoutes(NamedTuple):
    """What is known of how one finding reached other ranks.

    Attributes
    ----------
    routes
        One per receiving rank that is drawn.
    unreached
        Ranks whose first differing call has no recorded path from this finding.
    num_cut
        How many searches of ``unreached`` ended at their limit, not at the last recorded cause.
    num_more
        Receiving ranks that are not drawn.
    """

    routes: tuple[Route, ...] = ()
    unreached: tuple[int, ...] = ()
    num_cut: int = 0
    num_more: int = 0


class Routes:
    """The paths of the first few receiving ranks, each followed once however many findings ask for it."""

    def __init__(self, cmp: Comparison) -> None:
        self._cmp = cmp

    @cached_property
    def _paths(self) -> dict[int, list[dict[str, Any]]]:
        """Rows of `Comparison.path` by receiving rank."""
        receivers = sorted({rank for finding in self._cmp.roots for rank in finding.receivers})
        sites = dict(self._cmp.first.select("rank", "site").rows())
        followed = [rank for rank in receivers if rank in sites][:MAX_RECEIVERS]
        return {rank: self._cmp.path(rank=rank, site=sites[rank]).to_dicts() for rank in followed}

    def of(self, finding: Finding) -> FindingRoutes:
        """Give the routes from one finding to ranks that have no origin of their own."""
        followed = [rank for rank in finding.receivers if rank in self._paths]
        found = {rank: _chain(self._paths[rank], finding) for rank in followed}
        drawn = [chain for chain in found.values() if chain][: self._most_per_finding()]
        unreached = tuple(rank for rank, chain in found.items() if not chain)
        return FindingRoutes(
            tuple(_stops(chain) for chain in drawn),
            unreached,
            sum(len(self._paths[rank]) >= MAX_HOPS for rank in unreached),
            len(finding.receivers) - len(unreached) - len(drawn),
        )

    def _most_per_finding(self) -> int:
        return max(1, MAX_ROUTES // len(self._cmp.roots))


def _chain(path: Sequence[dict[str, Any]], finding: Finding) -> list[dict[str, Any]]:
    """Give the rows from the nearest call of a finding to the receiver; empty when none is on the path."""
    row = next((row for row in path if _begins(row, finding)), None)
    chain = []
    while row is not None:
        chain.append(row)
        row = None if row["from_hop"] is None else path[row["from_hop"]]
    return chain


def _begins(row: dict[str, Any], finding: Finding) -> bool:
    """Say whether a call is one of those that a finding groups; its list of sites may have been cut."""
    if row["rank"] not in finding.ranks or row["verdict"] in _NOT_ROOTS:
        return False
    alike = (
        len(finding.sites) >= MAX_SITES
        and (row["op"], row["phase"]) == (finding.op, finding.phase)
        and row["scope"] in finding.scopes
    )
    return alike or row["site"] in finding.sites


def _stops(chain: Sequence[dict[str, Any]]) -> Route:
    # A path says of each source how the next call took it; a route says of each call how it came in.
    vias = ["", *("" if _is_unfinished(row) else row["via"] for row in chain[:-1])]
    return tuple(_stop(row, via) for row, via in zip(chain, vias, strict=True))


def _is_unfinished(row: dict[str, Any]) -> bool:
    """Say whether the words about the way describe the call itself: it was not waited for."""
    return bool(row["via"].startswith("not waited for"))


def _stop(row: dict[str, Any], via: str) -> Stop:
    names = ("rank", "coordinate", "step", "phase", "scope", "op", "verdict", "site")
    why = f", {row['via']}" if _is_unfinished(row) else ""
    return Stop(
        **{name: row[name] for name in names},
        group=Site.parse(row["site"]).callee.group,
        via=via,
        aside=f"set aside{why}" if row["set_aside"] else "",
    )


def shorten_route(route: Route) -> Route:
    """Leave out ordinary calls amid many on one rank, then the middle of what is still too long.

    Both ends, communication, what was set aside and what came in otherwise than as an input are kept
    while there is room: they say how a difference travelled.
    """
    telling = [_is_telling(route, at) for at in range(len(route))]
    kept: list[int] = []
    for is_telling, numbers in groupby(range(len(route)), telling.__getitem__):
        run = list(numbers)
        kept += run if is_telling or len(run) <= _MAX_PLAIN else [run[0], run[-1]]
    if len(kept) > MAX_STOPS:
        kept = kept[: MAX_STOPS // 2] + kept[-MAX_STOPS // 2 :]
    before = [-1, *kept[:-1]]
    return tuple(route[at]._replace(skipped=at - last - 1) for last, at in zip(before, kept, strict=True))


def _is_telling(route: Route, at: int) -> bool:
    stop = route[at]
    neighbours = route[max(0, at - 1) : at + 2]
    is_end = at in (0, len(route) - 1)
    crosses = any(each.rank != stop.rank for each in neighbours)
    return is_end or crosses or bool(stop.group) or bool(stop.aside) or not is_plain(stop.via)


def is_plain(via: str) -> bool:
    """Say whether a difference came in as an ordinary input, or stands at the start of a route."""
    return not via or via.startswith("input ")

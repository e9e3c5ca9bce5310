"""Invariants across ranks: places and communicators agree, and members see the same collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from detlab.checks.trace.coverage import whole_steps
from detlab.checks.trace.survey import Communicator, Message
from detlab.checks.trace.told import Breach, Holds, Skipped, Subject, Told
from detlab.run import spans
from detlab.text import plural, shorten

_DENSE: Final = ("tp", "cp", "dp", "pp")
"""Axes whose sizes multiply to the world size."""


def places_agree(subject: Subject) -> Told:
    """TRC009: one rank at each place, inside the layout, and one list of members for each communicator."""
    breaches = [*_shared_places(subject), *_outside(subject), *_world(subject), *_other_members(subject)]
    yield from breaches
    if not subject.run.manifest.layout:
        yield Skipped("TRC009", "the trace does not say how its ranks are laid out")
    elif not breaches:
        num = len({members for each in subject.surveys for members in each.trace.header.groups.values()})
        layout = " ".join(f"{axis}{size}" for axis, size in subject.run.manifest.layout.items() if size > 1)
        said = f"{num} {plural('communicator', num)}"
        places = len(subject.surveys)
        yield Holds(f"{places} {plural('place', places)} of the layout {layout or 'of one rank'}, {said}")


def _shared_places(subject: Subject) -> Told:
    ranks = defaultdict(list)
    for each in subject.surveys:
        ranks[each.trace.header.coordinate].append(each.rank)
    for place, several in ranks.items():
        if len(several) > 1:
            yield Breach(f"ranks {spans(several)} all say that they are at {place}", several)


def _outside(subject: Subject) -> Told:
    layout = subject.run.manifest.layout
    for each in subject.surveys:
        place = each.trace.header.coordinate._asdict()
        beyond = [axis for axis, number in place.items() if axis in layout and number >= layout[axis]]
        if beyond:
            found = f"rank {each.rank} is at {beyond[0]}{place[beyond[0]]}"
            yield Breach(found, [each.rank], expected=f"{beyond[0]} below {layout[beyond[0]]}")


def _world(subject: Subject) -> Told:
    layout, size = subject.run.manifest.layout, subject.run.manifest.world_size
    named = [layout[axis] for axis in _DENSE if axis in layout]
    if len(named) == len(_DENSE) and prod(named) != size:
        yield Breach(f"a layout of {prod(named)} ranks, and a world of {size}")
    beyond = [each.rank for each in subject.surveys if each.rank >= size]
    if beyond:
        yield Breach(f"ranks {spans(beyond)} in a world of {size}", beyond)


def _other_members(subject: Subject) -> Told:
    """Hold each list of members against those of its members; equal lists are looked at once."""
    groups = {each.rank: each.trace.header.groups for each in subject.surveys}
    lists: dict[tuple[str, tuple[int, ...]], int] = {}
    for rank, its in groups.items():
        for label, members in its.items():
            lists.setdefault((label, members), rank)
            if rank not in members:
                yield Breach(f"rank {rank} is no member of its own {shorten(label)}", [rank])
    for (label, members), rank in lists.items():
        for other in members:
            theirs = groups.get(other, {}).get(label, members)
            if theirs == members or sorted(theirs) == sorted(members):
                continue
            if rank < other or rank not in theirs:
                yield _other_list(label, {rank: members, other: theirs})


def _other_list(label: str, members: Mapping[int, Sequence[int]]) -> Breach:
    told = " and ".join(f"{spans(sorted(its))} on rank {rank}" for rank, its in members.items())
    return Breach(f"{shorten(label)} has the members {told}", sorted(members))


def collectives_agree(subject: Subject) -> Told:
    """TRC010: in each whole step the recorded members of a communicator make the same calls on it."""
    by_rank = {each.rank: each for each in subject.readable}
    known = {group for each in subject.readable for _, group in each.collectives}
    breaches, num_joined, alone = [], 0, set()
    for group in sorted(known):
        members = [by_rank[rank] for rank in group.members if rank in by_rank]
        if len(members) < 2:
            alone |= {group} if len(group.members) > 1 else set()
            continue
        for step in sorted(whole_steps(members)):
            calls = {each.rank: each.collectives.get((step, group), ()) for each in members}
            breaches += [_other_calls(group, step, calls)] if len(set(calls.values())) > 1 else []
            num_joined += max(map(len, calls.values()))
    lost = list(_lost_messages(subject))
    yield from (*breaches, *lost)
    if num_joined and not breaches and not lost:
        yield Holds(f"{num_joined:,} {plural('collective', num_joined)} joined over their recorded members")
    yield from _unjoined(subject, num_joined, alone)


def _other_calls(group: Communicator, step: int, calls: Mapping[int, tuple[str, ...]]) -> Breach:
    """Say where the calls of members part: at the first that is another op, or where one has no more."""
    usual = Counter(calls.values()).most_common(1)[0][0]
    rank, its = next((rank, its) for rank, its in calls.items() if its != usual)
    label = shorten(group.label or "a communicator")
    other = sorted(rank for rank, its in calls.items() if its != usual)
    at = next((n for n, (one, two) in enumerate(zip(its, usual, strict=False)) if one != two), None)
    beside = next(each for each in calls if calls[each] == usual)
    if at is None:
        found = (
            f"{len(its)} calls on {label} in step {step} on rank {rank}, and {len(usual)} on rank {beside}"
        )
    else:
        found = (
            f"call {at} on {label} in step {step} is {its[at]} on rank {rank}, {usual[at]} on rank {beside}"
        )
    return Breach(found, other, expected=f"the same on ranks {spans(sorted(calls))}")


def _lost_messages(subject: Subject) -> Told:
    """Say which messages went out and did not come in, or came in and had not gone out."""
    whole = {each.rank: set(each.whole_steps) for each in subject.readable}
    sent: Counter[Message] = sum((each.sent for each in subject.readable), Counter())
    received: Counter[Message] = sum((each.received for each in subject.readable), Counter())
    for way in sorted(sent.keys() | received.keys()):
        both = all(way.step in whole.get(rank, ()) for rank in (way.source, way.target))
        if both and sent[way] != received[way]:
            found = (
                f"{sent[way]} messages from rank {way.source} to {way.target} in step {way.step}, "
                f"and {received[way]} received"
            )
            yield Breach(found, [way.source, way.target])


def _unjoined(subject: Subject, num_joined: int, alone: set[Communicator]) -> Told:
    unknown: Counter[str] = sum((each.memberless for each in subject.readable), Counter())
    if unknown:
        num, labels = unknown.total(), ", ".join(map(shorten, sorted(unknown)[:4]))
        yield Skipped(f"TRC010: {num:,} collectives of {labels}", "their members are not known")
    if alone:
        num = len(alone)
        yield Skipped(f"TRC010: {num} {plural('communicator', num)}", "only one member of each is recorded")
    if not num_joined and not unknown and not alone:
        yield Skipped("TRC010", "no collective between recorded ranks")


GROUPS: Final[dict[str, Callable[[Subject], Told]]] = {
    "TRC009": places_agree,
    "TRC010": collectives_agree,
}
"""How each of these invariants is looked at."""

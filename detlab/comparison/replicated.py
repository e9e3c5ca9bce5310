"""Which tensors of one run are replicas, and the moment at which their ranks first differ.

Most tensors differ between ranks because they should: shards, and gradients before they are reduced. A
tensor is called a replica only for a reason, and everything without one is left alone:

==========  =======================================================================================
basis       reason
==========  =======================================================================================
collective  an all-reduce, all-gather or broadcast gives every member the same bits
parameter   data-parallel ranks read it in the forward and their optimizers update it in place
name        tensor-parallel ranks hold all of it: norms, the router, biases of row-parallel layers
history     its members were equal at every moment before, also after it had changed; across
            data-parallel ranks a named tensor that was equal once, unless another has its bits too
==========  =======================================================================================
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from detlab.comparison.held import Held, Key, collectives, parameters, states
from detlab.comparison.step_events import StepEvents
from detlab.run import Run
from detlab.schema import Coordinate, Phase, Site
from detlab.store import RankTrace


class Group(NamedTuple):
    """Ranks of which each may hold what the others hold."""

    axis: str
    ranks: tuple[int, ...]


@dataclass
class Tensor:
    """One tensor of one group, followed from moment to moment.

    Attributes
    ----------
    group, key
        Whose it is, and what identifies it at every step.
    first
        The event that showed it first, on the first member.
    was_alike
        Whether all members were equal at every moment so far.
    num_seen, steps
        At how many moments all members showed it, and in which steps.
    values
        The values it had while they were.
    is_shared
        Whether another tensor had the same bits at each of these moments, as zeros and ones do.
    drift
        Where the members differ first, as far as they should not: the value of each of them.
    basis
        Why it is a replica; empty where that is not known.
    """

    group: Group
    key: Key
    first: Held
    was_alike: bool = True
    num_seen: int = 0
    steps: set[int] = field(default_factory=set)
    values: set[int] = field(default_factory=set)
    is_shared: bool = True
    drift: tuple[Held, ...] = ()
    basis: str = ""

    def see(self, held: Sequence[Held], shared: bool) -> None:
        """Take in what the members hold at the next moment."""
        self.num_seen += 1
        self.steps.add(held[0].site.step)
        if len({each.digest for each in held}) == 1:
            self.values.add(held[0].digest)
            self.is_shared &= shared
            return
        if not self.drift:
            self.basis = self._basis()
            self.drift = tuple(held) if self.basis else ()
        self.was_alike = False

    @property
    def agrees_as(self) -> str:
        """Why it is a replica, where its members were equal at every moment; else empty."""
        return self._basis() if self.was_alike else ""

    def _basis(self) -> str:
        source, site = self.key[0], self.first.site
        if source == "collective":
            return "collective"
        if source == "parameter" and self.group.axis == "dp":
            return "parameter"
        if self.group.axis == "tp" and is_whole_on_tensor_ranks(name_of(site)):
            return "name"
        return "history" if self._has_history() else ""

    def _has_history(self) -> bool:
        if not self.was_alike or not self.values:
            return False
        if len(self.values) > 1:
            return self.first.is_large
        has_name = bool(self.first.site.callee.scope) or self.first.site.phase == Phase.STATE
        return self.group.axis == "dp" and has_name and not self.is_shared


def tensors_of_ranks(run: Run) -> Iterator[Tensor]:
    """Give every tensor that two recorded ranks or more show in one form, replica or not."""
    read = {rank.header.rank: parameters(rank) for rank in run.ranks}
    by_rank = {rank.header.rank: rank for rank in run.ranks}
    for group in _groups(run):
        members = [by_rank[rank] for rank in group.ranks]
        found: dict[Key, Tensor] = {}
        for step in _common_steps(members):
            tables = [
                states(StepEvents(member, step)) | read[member.header.rank].get(step, {})
                for member in members
            ]
            _follow(group, tables if _share_experts(members) else _without_experts(tables), found)
        yield from found.values()
    yield from _communicators(by_rank)


def _common_steps(members: Sequence[RankTrace]) -> list[int]:
    return sorted(set.intersection(*(set(member.steps) for member in members)))


def _share_experts(members: Sequence[RankTrace]) -> bool:
    """Say whether ranks hold the same experts, as far as they say so: these may be sharded otherwise."""
    ranks = {member.header.rank for member in members}
    return all(ranks <= set(member.header.groups.get("expt_dp", ranks)) for member in members)


def _without_experts(tables: Sequence[Mapping[Key, Held]]) -> list[dict[Key, Held]]:
    return [
        {key: held for key, held in table.items() if "experts" not in name_of(held.site).split(".")}
        for table in tables
    ]


def _follow(group: Group, tables: Sequence[Mapping[Key, Held]], found: dict[Key, Tensor]) -> None:
    """Let every tensor that all members show in one form see its values at the next moment."""
    names: dict[int, set[str]] = defaultdict(set)
    for each in tables[0].values():
        names[each.digest].add(name_of(each.site))
    for key in sorted(tables[0], key=lambda key: tables[0][key].order):
        held = [table[key] for table in tables if key in table]
        if len(held) == len(tables) and len({(each.form, each.evidence) for each in held}) == 1:
            tensor = found.setdefault(key, Tensor(group, key, held[0]))
            if tensor.first.form == held[0].form:
                tensor.see(held, len(names[held[0].digest]) > 1)


def _groups(run: Run) -> Iterator[Group]:
    """Give the sets of recorded ranks that differ in their data or tensor coordinate alone."""
    axes: dict[str, Callable[[Coordinate], Hashable]] = {
        "dp": lambda place: (place.pp, place.tp, place.ep, place.vpp),
        "tp": lambda place: place._replace(tp=0),
    }
    for axis, others in axes.items():
        members: dict[Hashable, list[int]] = defaultdict(list)
        for rank in sorted(run.ranks, key=lambda rank: rank.header.rank):
            members[others(rank.header.coordinate)].append(rank.header.rank)
        yield from (Group(axis, tuple(ranks)) for ranks in members.values() if len(ranks) > 1)


def _communicators(by_rank: Mapping[int, RankTrace]) -> Iterator[Tensor]:
    """Follow what collectives give; their calls are joined by members and order on the communicator."""
    found: dict[Key, Tensor] = {}
    for step in sorted({step for rank in by_rank.values() for step in rank.steps}):
        results = {
            number: collectives(StepEvents(rank, step))
            for number, rank in by_rank.items()
            if step in rank.steps
        }
        for members in sorted({members for each in results.values() for members in each}):
            lists = [results[rank].get(members, []) for rank in members if rank in results]
            if len(lists) > 1 and len({len(each) for each in lists}) == 1:
                _follow_calls(members, [rank for rank in members if rank in results], lists, found)
    yield from found.values()


def _follow_calls(
    members: tuple[int, ...],
    recorded: Sequence[int],
    lists: Sequence[Sequence[Held | None]],
    found: dict[Key, Tensor],
) -> None:
    for held in zip(*lists, strict=True):
        known = [each for each in held if each is not None]
        first = known[0] if len(known) == len(held) else None
        if first is not None and len({(each.form, each.site.callee.op) for each in known}) == 1:
            key = (
                "collective",
                members,
                first.site.phase,
                first.site.microbatch,
                first.site.callee,
                first.site.call,
            )
            group = Group("group", tuple(recorded))
            found.setdefault(key, Tensor(group, key, first)).see(known, False)


_ROW_PARALLEL: Final = ("linear_proj", "linear_fc2", "o_proj", "down_proj", "dense_4h_to_h")
_NOT_WHOLE: Final = ("mixer", "mamba", "experts", "local_experts")


def is_whole_on_tensor_ranks(name: str) -> bool:
    """Say whether the name of a parameter or its gradient says that every tensor-parallel rank has all of it.

    Norms of the residual stream, the router of a mixture of experts, learned positions, and biases of
    row-parallel layers, which are added after the sum; as Megatron-Core and Hugging Face name them. Norms of
    queries and keys and those inside state-space mixers are sharded in some models, so they are left out.
    """
    parts = name.split(".")
    if any(part in _NOT_WHOLE for part in parts):
        return False
    last = [part for part in parts if part not in ("weight", "bias", "grad", "main_grad")][-1:]
    is_norm = bool(last) and "norm" in last[0] and not re.match(r"[qk]_|running", last[0])
    is_bias = "bias" in parts and any(part in _ROW_PARALLEL for part in parts)
    return is_norm or is_bias or last in (["router"], ["position_embeddings"])


def name_of(site: Site) -> str:
    """Give the name of the tensor: the scope, or what a trace without scopes has in its place."""
    return site.callee.scope or site.callee.op

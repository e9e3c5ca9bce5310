"""Run-independent names of communicators, and what a collective call says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group
from torch.distributed.distributed_c10d import GroupName

from detlab.record.arguments import READS, WRITES, Plan
from detlab.record.events import Attributes

_PEERS: Final = (("src", "src"), ("dst", "dst"), ("root_rank", "root"))


@dataclass(frozen=True, slots=True)
class Communicator:
    """A process group as a trace names it: label, members as global ranks in group order."""

    label: str
    members: tuple[int, ...]


@dataclass(slots=True)
class Communicators:
    """The communicators met so far on this rank.

    Attributes
    ----------
    labels
        Labels that are known beforehand, by the name that torch.distributed gave the group.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, Communicator] = field(default_factory=dict)

    def find(self, group: ProcessGroup) -> Communicator:
        """Name a group; one that nobody labelled is named after its members."""
        name = group.group_name
        found = self._known.get(name)
        if found is None:
            members = tuple(dist.get_process_group_ranks(group))
            label = self.labels.get(name) or self._free_label("ranks:" + ",".join(map(str, members)))
            found = self._known[name] = Communicator(label, members)
        return found

    def _free_label(self, label: str) -> str:
        """Add a number to the label of a second group with the same members, in the order they are met."""
        taken = {known.label for known in self._known.values()}
        number = 2
        free = label
        while free in taken:
            free, number = f"{label};{number}", number + 1
        return free


def group_of(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ProcessGroup | None:
    """Give the process group of a collective call."""
    group = plan.argument("process_group", args, kwargs)
    if group is not None:
        return ProcessGroup.unbox(group)
    name = plan.argument("group_name", args, kwargs)
    return _resolve_process_group(GroupName(name)) if isinstance(name, str) else name


def plan_for_member(plan: Plan, group: ProcessGroup | None, args: Sequence[Any]) -> Plan:
    """Narrow the roles of a rooted collective to what this member does: only the root reads or writes."""
    if group is None or "tensors" not in plan.positions or "root_rank" not in plan.positions:
        return plan
    if group.rank() == plan.argument("root_rank", args, {}):
        return plan
    return plan.with_role("tensors", READS if plan.name.startswith("c10d.reduce_") else WRITES)


def attributes_of(
    plan: Plan, members: Sequence[int], args: Sequence[Any], kwargs: Mapping[str, Any], reduce_op: str
) -> Attributes:
    """Give reduce op, peers as global ranks and tag of a collective, sorted by name."""
    found: dict[str, str] = {}
    for argument, name in _PEERS:
        peer = plan.argument(argument, args, kwargs)
        if isinstance(peer, int):
            found[name] = str(members[peer] if 0 <= peer < len(members) else peer)
    tag = plan.argument("tag", args, kwargs)
    if isinstance(tag, int):
        found["tag"] = str(tag)
    given = plan.argument("reduce_op", args, kwargs)
    if given is not None:
        text = given if isinstance(given, str) else reduce_op
        if text:
            found["reduce_op"] = text.lower()
    return tuple(sorted(found.items()))


def is_work(value: object) -> bool:
    """Say whether an op returned this as the handle of its work."""
    return isinstance(value, torch._C.ScriptObject)

"""What a call reads and writes: judged once per op, then applied to the arguments of each call.

A *plan* is everything about an op that does not depend on the arguments. Tensors that a call only
overwrites are no inputs: their old bytes cannot reach the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import torch
from torch._ops import OpOverload

from detlab.ops import is_lane_wise, makes_fresh_memory, overwrites_target
from detlab.record.tables import (
    ALIASING,
    COMMUNICATION_SETTINGS,
    PARTIAL_WRITERS,
    SCALED_SELF,
)
from detlab.schema import Kind

READS: Final = 1
WRITES: Final = 2
IGNORED: Final = 4
"""Roles of an argument; WRITES alone is a tensor that is only overwritten, IGNORED is never folded."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What is true of an op whatever its arguments are.

    Attributes
    ----------
    name
        The op with its overload, ``aten.mm.default``.
    roles
        Role of each positional argument.
    keywords
        Name and role of each keyword-only argument, in schema order.
    positions
        Position of each argument by name.
    """

    name: str
    kind: Kind
    roles: tuple[int, ...]
    keywords: tuple[tuple[str, int], ...]
    positions: Mapping[str, int]
    is_view: bool
    is_lane_wise: bool
    is_seeded: bool
    is_functional_collective: bool
    makes_fresh: bool
    grows: bool
    writes_part: bool
    scales_self: bool

    def argument(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Give one argument of a call by its name, None when it was left out."""
        position = self.positions.get(name, len(args))
        return args[position] if position < len(args) else kwargs.get(name)

    def with_role(self, name: str, role: int) -> Plan:
        """Give the plan with another role for one positional argument."""
        position = self.positions[name]
        return replace(self, roles=(*self.roles[:position], role, *self.roles[position + 1 :]))


@cache
def plan_of(func: OpOverload) -> Plan:
    """Judge an op by its schema, tags and name."""
    namespace, base = func._schema.name.split("::", 1)
    grows = base in ("resize_", "resize_as_")
    communicates = namespace in ("c10d", "_c10d_functional")
    give_role = _collective_role if communicates else _schema_role
    arguments = func._schema.arguments
    roles = {arg.name: give_role(arg, base) for arg in arguments}
    return Plan(
        name=str(func),
        kind=_kind(func, communicates),
        roles=tuple(roles[arg.name] for arg in arguments if not arg.kwarg_only),
        keywords=tuple((arg.name, roles[arg.name]) for arg in arguments if arg.kwarg_only),
        positions={arg.name: position for position, arg in enumerate(arguments) if not arg.kwarg_only},
        is_view=func.is_view or base in ALIASING,
        is_lane_wise=is_lane_wise(base),
        is_seeded=torch.Tag.nondeterministic_seeded in func.tags,
        is_functional_collective=namespace == "_c10d_functional",
        makes_fresh=makes_fresh_memory(base) and not grows,
        grows=grows,
        writes_part=base in PARTIAL_WRITERS,
        scales_self=base in SCALED_SELF,
    )


def _kind(func: OpOverload, communicates: bool) -> Kind:
    if communicates:
        return Kind.COLLECTIVE
    returns = [str(item.type) for item in func._schema.returns]
    takes_tensor = any("Tensor" in str(arg.type) for arg in func._schema.arguments)
    if returns and takes_tensor and not any("Tensor" in text for text in returns):
        return Kind.HOST_READ
    return Kind.OP


def _schema_role(argument: Any, base: str) -> int:
    if argument.alias_info is None or not argument.alias_info.is_write:
        return READS
    is_overwritten = argument.is_out or base == "set_" or overwrites_target(base)
    return WRITES if is_overwritten else READS | WRITES


def _collective_role(argument: Any, base: str) -> int:
    """Judge by name: the schemas of c10d do not say what they write to."""
    if argument.name in COMMUNICATION_SETTINGS:
        return IGNORED
    if argument.name.startswith("out") or base in ("recv_", "recv_any_source_", "irecv"):
        return WRITES if "Tensor" in str(argument.type) else READS
    if argument.name == "tensors" and base not in ("send", "batch_p2p_ops"):
        return READS | WRITES
    is_written = argument.alias_info is not None and argument.alias_info.is_write
    return READS | WRITES if is_written else READS


class Arguments:
    """The arguments of one call, sorted by what happens to them.

    Attributes
    ----------
    reads
        Tensors whose bytes can reach the result, in schema order.
    writes
        Tensors that the call writes to.
    overwritten
        Those of them that it does not read.
    scalars
        Everything else that is folded: numbers, strings, dtypes, lists of them, the places of None.
    has_number
        Whether an int or a float is among the scalars.
    generator
        The generator that was passed, if any.
    is_open
        Whether something was passed that cannot be folded, such as a storage.
    """

    __slots__ = ("generator", "has_number", "is_open", "overwritten", "reads", "scalars", "writes")

    def __init__(self) -> None:
        self.reads: list[torch.Tensor] = []
        self.writes: list[torch.Tensor] = []
        self.overwritten: list[torch.Tensor] = []
        self.scalars: list[object] = []
        self.has_number = False
        self.generator: torch.Generator | None = None
        self.is_open = False

    def take(self, value: Any, role: int) -> None:
        """Sort one argument in."""
        if isinstance(value, torch.Tensor):
            self._take_tensor(value, role)
        elif isinstance(value, (list, tuple)):
            self._take_list(value, role)
        elif isinstance(value, torch.Generator):
            self.generator = value
        elif not role & IGNORED:
            self.scalars.append(self._plain(value))

    def _take_tensor(self, tensor: torch.Tensor, role: int) -> None:
        if role & READS:
            self.reads.append(tensor)
        elif role & WRITES:
            self.overwritten.append(tensor)
        if role & WRITES:
            self.writes.append(tensor)

    def _take_list(self, values: Sequence[Any], role: int) -> None:
        if (
            values
            and isinstance(values[0], torch.Tensor)
            and all(isinstance(v, torch.Tensor) for v in values)
        ):
            for tensor in values:
                self._take_tensor(tensor, role)
        elif any(isinstance(value, (torch.Tensor, list, tuple)) for value in values):
            for value in values:  # optional tensors, or lists of lists
                self.take(value, role)
        elif not role & IGNORED:
            self.scalars.append([self._plain(value) for value in values])

    def _plain(self, value: Any) -> object:
        """Give a value in the form that a fold takes."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float, complex)):
            self.has_number = True
            return value
        if isinstance(value, torch.device):
            return value.type  # the index is where a rank runs, not what it computes
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        self.is_open = True
        return type(value).__name__


def sort_arguments(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Sort the arguments of one call by what the op does to them."""
    found = Arguments()
    take = found.take
    roles: Sequence[int] = plan.roles
    if plan.scales_self and kwargs.get("beta", 1) == 0:
        roles = [roles[0] & ~READS, *roles[1:]]
    for value, role in zip(args, roles, strict=False):  # defaults are left out at the end
        take(value, role)
    if kwargs:
        for name, role in plan.keywords:
            if name in kwargs:
                if not role & (WRITES | IGNORED):
                    found.scalars.append(name)
                take(kwargs[name], role)
    return found


def generator_of(given: Arguments, kwargs: Mapping[str, Any]) -> torch.Generator:
    """Give the generator that a seeded op draws from: the one passed, or that of its device."""
    if given.generator is not None:
        return given.generator
    tensors = given.reads or given.overwritten
    device = tensors[0].device if tensors else torch.device(kwargs.get("device") or "cpu")
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    return torch.default_generator


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Give the tensors in what an op returned, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def first_of(value: object, accept: Callable[[object], bool]) -> Any:
    """Give the first item of a nested result that is accepted, None when there is none."""
    if isinstance(value, (list, tuple)):
        return next((found for item in value if (found := first_of(item, accept)) is not None), None)
    return value if accept(value) else None

"""See every op that runs and write its event: inputs hashed before the call, outputs after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._C._distributed_c10d import ProcessGroup, Work
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode

from detlab.record.arguments import (
    Arguments,
    Plan,
    first_of,
    generator_of,
    plan_of,
    sort_arguments,
    tensors_in,
)
from detlab.record.call_sites import call_site
from detlab.record.captures import CaptureChooser
from detlab.record.collectives import Collectives
from detlab.record.communicators import (
    Communicators,
    attributes_of,
    group_of,
    is_work,
    plan_for_member,
)
from detlab.record.events import Call, EventLog
from detlab.record.geometry import placed
from detlab.record.memory import UnsettledMemory
from detlab.record.pieces import cut, cuts_inputs, cuts_outputs
from detlab.record.scopes import Scopes, Where
from detlab.record.sides import Fingerprint, Fingerprinter, Known
from detlab.record.snapshot import Unknown, shown
from detlab.schema import Evidence, Flag, Kind, Phase, Side

_NO_TORCH_FUNCTION: Final = torch._C.DisableTorchFunction
_NO_DISPATCH_MODES: Final = torch._C._DisableTorchDispatch
_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter))
_TRACED: Final = (FakeTensor, FunctionalTensor)
"""Tensors without values that stand for others while a graph is traced."""
_VIEW: Final = int(Flag.VIEW)  # plain integers: flags are slow to combine
_HOST_SCALAR: Final = int(Flag.HOST_SCALAR)
_PARTS: Final = "parts"
_WAIT: Final = "_c10d_functional.wait_tensor.default"


@dataclass(frozen=True, slots=True)
class Choices:
    """What is written of each call."""

    inputs: bool = True
    views: bool = True
    details: bool = True
    stats: bool = False


class DispatchRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode that is entered while a recorded step runs.

    Parameters
    ----------
    log, scopes, communicators
        Where events go, where in the model they are, and how groups are named.
    choices, captures
        What is written, and which calls are saved whole.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        log: EventLog,
        scopes: Scopes,
        communicators: Communicators,
        choices: Choices,
        captures: CaptureChooser,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log, self._scopes, self._communicators = log, scopes, communicators
        self._choices, self._captures = choices, captures
        self.is_on = False
        self.memory = UnsettledMemory()
        self._look = Fingerprinter(self.memory, details=choices.details, stats=choices.stats)
        self.collectives = Collectives(self._complete, self._give_up)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Stay out of torch.compile's way: any other mode makes compiled functions run eagerly for good."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one op and record it; a subclass unwraps itself first, so that its plain ops are recorded."""
        kwargs = kwargs or {}
        if types and not _PLAIN.issuperset(types) and not any(issubclass(kind, _TRACED) for kind in types):
            return NotImplemented
        if not self.is_on or _computes_nothing(func, types, kwargs):
            return func(*args, **kwargs)
        with _NO_TORCH_FUNCTION():
            plan = plan_of(func)
            if plan.kind is Kind.COLLECTIVE:
                return self._run_collective(plan, func, args, kwargs)
            if plan.is_view and not self._choices.views:
                return func(*args, **kwargs)
            return self._run(plan, func, args, kwargs)

    def _run(self, plan: Plan, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call = self._begin(plan)
        known: Known = {}
        given = sort_arguments(plan, args, kwargs)
        if plan.is_lane_wise and isinstance(args[0], (list, tuple)):
            call.attributes = (("lanes", str(len(args[0]))),)
        call.inputs = self._inputs(call, plan, given, kwargs, known)
        capture = self._captures.begin(self._log, call, func, args, kwargs)
        size_before = args[0].untyped_storage().nbytes() if plan.grows else 0
        result = self._call(call, func, args, kwargs)
        outputs = placed(_written(result, given))
        self.memory.follow(plan, outputs, size_before)
        found = self._look.look(
            outputs,
            call.seq,
            Side.OUTPUT,
            trust=not (plan.is_view or plan.makes_fresh or plan.writes_part),
            known=known if plan.is_view else {},
        )
        if capture is not None:
            capture.complete([tensor for tensor, _ in outputs])
        if not outputs and plan.kind is Kind.HOST_READ:
            numbers = result if isinstance(result, (list, tuple)) else [result]
            self._look.add_scalars(found, numbers, call.seq, 1)
        self._emit(call, found)
        return result

    def _begin(self, plan: Plan, group: str = "") -> Call:
        where = self._scopes.where()
        call = self._log.begin(where, plan.name, plan.kind, group)
        call.call_site = where.node or call_site()
        if plan.is_view:
            call.flags |= _VIEW
        return call

    def _call(self, call: Call, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make the call; one that raises has not been."""
        try:
            return func(*args, **kwargs)
        except BaseException:
            self._log.withdraw(call)
            raise

    def _inputs(
        self,
        call: Call,
        plan: Plan,
        given: Arguments,
        kwargs: Mapping[str, Any],
        known: Known,
    ) -> Fingerprint:
        if given.has_number:
            call.flags |= _HOST_SCALAR
        if given.is_open:
            call.flags |= Flag.OPEN_INPUTS
        if not self._choices.inputs:
            return self._look.note(placed(given.reads))
        trust = not (plan.is_view or plan.writes_part)
        found = self._look.look(placed(given.reads), call.seq, Side.INPUT, trust=trust, known=known)
        self._look.add_scalars(found, given.scalars, call.seq, 0)
        if plan.is_seeded:
            generator = generator_of(given, kwargs)
            self._look.add_generator(found, generator, call.seq)
        return found

    def _emit(self, call: Call, outputs: Fingerprint) -> None:
        self._log.emit(call, self._input_evidence(call), outputs, outputs.evidence(Side.OUTPUT))

    def _input_evidence(self, call: Call) -> Evidence:
        return call.inputs.evidence(Side.INPUT) if self._choices.inputs else Evidence.NONE

    def _run_collective(
        self, plan: Plan, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        group = group_of(plan, args, kwargs)
        if group is None:  # a helper of the functional collectives, whose tensor is still in flight
            result = func(*args, **kwargs)
            if plan.name == _WAIT:
                self.collectives.waited_for_tensor(result)
            return result
        plan = plan_for_member(plan, group, args)
        call, given = self._begin_collective(plan, group, args, kwargs)
        result = self._call(call, func, args, kwargs)
        call.outputs = list(tensors_in(result)) if plan.is_functional_collective else given.writes
        for tensor, place in placed(call.outputs):
            self.memory.mark(tensor, place, Flag.COPY_IN_FLIGHT)
        if "barrier" in plan.name:
            self._log.emit(call, Evidence.NONE, Fingerprint(), Evidence.NONE)
        elif plan.is_functional_collective:
            self.collectives.add_functional(call, call.outputs)
        else:
            handle = first_of(result, is_work)
            work = Work.unbox(handle) if handle is not None else None
            self.collectives.add(call, work, group.group_name)
        return result

    def _begin_collective(
        self, plan: Plan, group: ProcessGroup, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Call, Arguments]:
        communicator = self._communicators.find(group)
        self._log.add_groups({communicator.label: communicator.members})
        call = self._begin(plan, communicator.label)
        call.attributes = attributes_of(plan, communicator.members, args, kwargs, self.collectives.reduce_op)
        given = sort_arguments(plan, args, kwargs)
        num_members = len(communicator.members)
        if cuts_inputs(plan.name):
            sizes = plan.argument("input_split_sizes", args, kwargs) or ()
            whole, given.reads = given.reads, cut(given.reads, num_members, sizes)
            self._note_parts(call, Side.INPUT, len(given.reads) == num_members * len(whole))
        call.num_pieces = num_members if cuts_outputs(plan.name) else 1
        given.scalars += [f"{name}={text}" for name, text in call.attributes if name != _PARTS]
        if "barrier" not in plan.name:
            call.inputs = self._inputs(call, plan, given, kwargs, {})
        return call, given

    def write_states(self, moment: str, states: Iterable[tuple[str, object]]) -> None:
        """Write an event for each named state: a tensor, a plain value, or something that has no bits."""
        with _NO_TORCH_FUNCTION(), _NO_DISPATCH_MODES():
            for name, value in states:
                call = self._log.begin(Where(Phase.STATE, -1, name, ""), moment, Kind.STATE)
                self._write_state(call, value)

    def _write_state(self, call: Call, value: object) -> None:
        if isinstance(value, Unknown):
            call.attributes = (("type", value.kind),)
            self._log.emit(call, Evidence.EXACT, Fingerprint(), Evidence.NONE)
            return
        text = shown(value)
        call.attributes = (("value", text),) if text else ()
        if isinstance(value, torch.Tensor):
            found = self._look.look(placed([value]), call.seq, Side.OUTPUT, trust=True, known={})
        else:
            found = Fingerprint()
            self._look.add_scalars(found, [value], call.seq, 1)
        self._log.emit(call, Evidence.EXACT, found, found.evidence(Side.OUTPUT))

    def _note_parts(self, call: Call, side: Side, are_all_cut: bool) -> None:
        """Say in the event on which side there is a tensor for each member."""
        if are_all_cut:
            call.attributes = tuple(sorted((*call.attributes, (_PARTS, side.name.lower()))))

    def _complete(self, call: Call) -> None:
        """Hash what a collective gave, now that it is there."""
        with _NO_TORCH_FUNCTION(), _NO_DISPATCH_MODES():
            self.memory.settle_all(placed(call.outputs))
            pieces = cut(call.outputs, call.num_pieces) if call.num_pieces > 1 else call.outputs
            self._note_parts(call, Side.OUTPUT, len(pieces) > len(call.outputs))
            outputs = placed(pieces)
            found = self._look.look(outputs, call.seq, Side.OUTPUT, trust=True, known={})
            self._emit(call, found)

    def _give_up(self, call: Call) -> None:
        """Write a collective that nobody waited for, without any evidence of what it gave."""
        with _NO_TORCH_FUNCTION(), _NO_DISPATCH_MODES():
            outputs = placed(call.outputs)
            self.memory.settle_all(outputs)
            call.flags |= Flag.NOT_WAITED_FOR
            self._log.emit(call, self._input_evidence(call), self._look.note(outputs), Evidence.NONE)


def _computes_nothing(func: Any, types: Sequence[type], kwargs: Mapping[str, Any]) -> bool:
    """Say whether a call is a mark for the profiler, a higher-order op, or part of tracing a graph."""
    if not isinstance(func, OpOverload) or func.namespace == "profiler":
        return True
    device = kwargs.get("device")
    return (types and not _PLAIN.issuperset(types)) or (device is not None and device.type == "meta")


def _written(result: object, given: Arguments) -> list[torch.Tensor]:
    """Give what was returned, then the mutated arguments, each tensor once."""
    outputs = {id(tensor): tensor for tensor in tensors_in(result)}
    for tensor in given.writes:
        outputs.setdefault(id(tensor), tensor)
    return list(outputs.values())

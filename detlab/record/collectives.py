"""Hash what a collective gave when it is complete, not when its call returns.

The op of a collective returns before the bytes are there, and its completion is no op. So `Work.wait` is
replaced while recording, and the outputs are hashed in it, only those of the work that was waited for.
Until then their bytes count as in flight.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from types import FunctionType
from typing import Any, Final

import torch
from torch._C._distributed_c10d import ProcessGroup, Work

from detlab.record.events import Call
from detlab.record.patches import replace_attribute

_REDUCERS: Final = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
)
"""Methods of a process group that take a reduce op, which the op they call does not show."""


_WAITS: Final = frozenset(("wait", "synchronize", "block_current_stream"))
"""Methods of a work after which its outputs are there, for the host or for the current stream."""


class Pending:
    """A collective that has begun: its event, and what must be waited for before it is whole."""

    __slots__ = ("call", "group_name", "waited_for", "work")

    def __init__(self, call: Call, work: Work | None, group_name: str, storages: set[int]) -> None:
        self.call, self.work, self.group_name, self.waited_for = call, work, group_name, storages


class Collectives:
    """The collectives of one rank that have begun and are not complete.

    Parameters
    ----------
    complete
        Hashes the outputs of a call and writes its event.
    give_up
        Writes the event of a call that was never waited for.
    """

    def __init__(self, complete: Callable[[Call], None], give_up: Callable[[Call], None]) -> None:
        self._complete, self._give_up = complete, give_up
        self._by_work: dict[int, list[Pending]] = {}
        self._by_tensor: list[Pending] = []
        self._coalescing: dict[str, list[Pending]] = {}
        self.reduce_op = ""

    def add(self, call: Call, work: Work | None, group_name: str) -> None:
        """Remember a collective until its work is waited for; without any work it is complete."""
        if work is None:
            self._complete(call)
            return
        pending = Pending(call, work, group_name, set())  # holds the work, so its identity stays its own
        if group_name in self._coalescing:
            self._coalescing[group_name].append(pending)
        self._by_work.setdefault(id(work), []).append(pending)

    def add_functional(self, call: Call, outputs: Sequence[torch.Tensor]) -> None:
        """Remember a functional collective until each of its outputs went through ``wait_tensor``."""
        storages = {tensor.data_ptr() for tensor in outputs if tensor.numel()}
        if storages:
            self._by_tensor.append(Pending(call, None, "", storages))
        else:
            self._complete(call)

    def waited_for_tensor(self, tensor: torch.Tensor) -> None:
        """Complete the functional collective whose last output this is."""
        address = tensor.data_ptr()
        for pending in self._by_tensor:
            if address in pending.waited_for:
                pending.waited_for.discard(address)
                break
        whole = [pending for pending in self._by_tensor if not pending.waited_for]
        self._by_tensor = [pending for pending in self._by_tensor if pending.waited_for]
        for pending in whole:
            self._complete(pending.call)

    def _waited_for(self, work: Work) -> None:
        for pending in self._by_work.pop(id(work), ()):
            self._complete(pending.call)

    def abandon(self, before_step: int) -> None:
        """Give up those that began before this step; nobody has waited for them."""
        everything = [p for several in self._by_work.values() for p in several] + self._by_tensor
        old = [pending for pending in everything if pending.call.step < before_step]
        for pending in sorted(old, key=lambda pending: pending.call.seq):
            self._give_up(pending.call)
        gone = set(map(id, old))
        kept = {key: [p for p in several if id(p) not in gone] for key, several in self._by_work.items()}
        self._by_work = {key: several for key, several in kept.items() if several}
        self._by_tensor = [pending for pending in self._by_tensor if id(pending) not in gone]

    def install(self, undo: ExitStack) -> None:
        """Follow waits, coalescing and reduce ops; ``undo`` puts everything back."""
        for kind in (Work, *_subclasses(Work)):
            for name in _WAITS & vars(kind).keys():
                replace_attribute(undo, kind, name, self._follow_wait(vars(kind)[name]))
        start, end = ProcessGroup._start_coalescing, ProcessGroup._end_coalescing
        replace_attribute(undo, ProcessGroup, "_start_coalescing", self._follow_start(start))
        replace_attribute(undo, ProcessGroup, "_end_coalescing", self._follow_end(end))
        for name in _REDUCERS:
            method = getattr(ProcessGroup, name, None)
            if method is not None:
                replace_attribute(undo, ProcessGroup, name, self._follow_reduce(method))

    def _follow_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Complete what a work stands for; ops by which a backend finishes it are no events of their own."""
        is_python = isinstance(original, FunctionType)

        @functools.wraps(original)
        def wait(work: Work, *args: Any, **kwargs: Any) -> Any:
            with nullcontext() if is_python else torch._C._DisableTorchDispatch():
                result = original(work, *args, **kwargs)
            self._waited_for(work)
            return result

        return wait

    def _follow_start(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(group: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            self._coalescing[group.group_name] = []
            return original(group, *args, **kwargs)

        return start

    def _follow_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Hand all that was begun since the start to the one work that stands for them."""

        @functools.wraps(original)
        def end(group: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            work = original(group, *args, **kwargs)
            for pending in self._coalescing.pop(group.group_name, ()):
                self._by_work.pop(id(pending.work), None)
                self.add(pending.call, work, group.group_name)
            return work

        return end

    def _follow_reduce(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reduce(group: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            self.reduce_op = next(filter(None, map(_reduce_op, (*args, *kwargs.values()))), "")
            try:
                return original(group, *args, **kwargs)
            finally:
                self.reduce_op = ""

        return reduce


def _subclasses(kind: type[Work]) -> Iterator[type[Work]]:
    children: list[type[Work]] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _subclasses(child)


def _reduce_op(argument: object) -> str:
    """Name a reduce op, or that of an options object; empty for anything else."""
    given = getattr(argument, "reduceOp", argument)
    op = getattr(given, "op", given)
    return str(getattr(op, "name", "")) if type(op).__name__ == "RedOpType" else ""

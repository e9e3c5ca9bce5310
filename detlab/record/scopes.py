"""Where in the model and in the step a call happens.

In forward the scope is the innermost module whose hooks have fired. In backward it is found from the
sequence number of the current autograd node: every module entry and exit in forward leaves a mark with
the number of the next node, so a node belongs to the last mark before it. This is right also for modules
whose inputs need no gradient, such as an embedding, and needs no gradient hooks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from detlab.schema import Phase

_next_node_number: Final[Callable[[], int]] = torch._C._autograd._get_sequence_nr
_current_node: Final[Callable[[], Any]] = torch._C._current_autograd_node

_WRAPPERS: Final = {
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "DataParallel": "module",
    "Float16Module": "module",
    "BFloat16Module": "module",
    "OptimizedModule": "_orig_mod",
}
"""Modules that only hold another one, and under which name; these names are left out of scopes."""

_ACCUMULATE: Final = "torch::autograd::AccumulateGrad"


class Where(NamedTuple):
    """The place of a call: phase, microbatch (-1: none), scope, and the autograd node that runs it."""

    phase: Phase
    microbatch: int
    scope: str
    node: str


class Scopes:
    """Follow the modules of one or more model chunks through forward, recompute and backward.

    Outside of every known region a call is ``data`` before the first forward of a step, ``forward`` after
    a forward (the loss), and ``unspecified`` after a backward.
    """

    def __init__(self) -> None:
        self.microbatch = -1
        self._stack: list[str] = []
        self._phases: list[Phase] = []
        self._idle = Phase.DATA
        self._counts_forwards = True
        self._is_on = False
        self._numbers: list[int] = []
        self._marks: list[tuple[str, int]] = []
        self._forwards: dict[int, int] = {}
        self._parameters: dict[int, str] = {}
        self._backward_microbatch = -1

    def begin_step(self, *, recorded: bool) -> None:
        """Forget the forwards and the graph of the step before."""
        self._is_on, self._counts_forwards = recorded, True
        self.microbatch, self._idle = -1, Phase.DATA
        self._backward_microbatch = -1
        self._numbers.clear()
        self._marks.clear()
        self._forwards.clear()

    @property
    def has_begun(self) -> bool:
        """Whether a forward has begun in this step."""
        return self._idle is not Phase.DATA

    def begin_microbatch(self, number: int) -> None:
        """Say that what follows belongs to this microbatch; forwards are not counted in this step then."""
        self.microbatch, self._counts_forwards, self._idle = number, False, Phase.DATA
        self._mark(number)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Put what happens inside into one phase."""
        self._phases.append(phase)
        try:
            yield
        finally:
            self._phases.pop()

    def where(self) -> Where:
        """Find the place of what happens now."""
        node = _current_node()
        forced = self._phases[-1] if self._phases else None
        if forced is not None and (forced is not Phase.OPTIMIZER or (node is None and not self._stack)):
            return Where(forced, self._forced_microbatch(forced), self._stack[-1] if self._stack else "", "")
        if node is None:
            return self._where_in_forward()
        return self._where_in_backward(node)

    def _forced_microbatch(self, phase: Phase) -> int:
        return self.microbatch if phase in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD) else -1

    def _where_in_forward(self) -> Where:
        if self._stack:
            return Where(Phase.FORWARD, self.microbatch, self._stack[-1], "")
        return Where(self._idle, -1 if self._idle is Phase.UNSPECIFIED else self.microbatch, "", "")

    def _where_in_backward(self, node: Any) -> Where:
        name = node.name()
        self._idle = Phase.UNSPECIFIED
        if name == _ACCUMULATE:
            scope = self._parameters.get(id(node.variable), "")
        else:
            scope, self._backward_microbatch = self._owner(node)
        if self._stack:
            return Where(Phase.RECOMPUTE, self._backward_microbatch, self._stack[-1], name)
        return Where(Phase.BACKWARD, self._backward_microbatch, scope, name)

    def _owner(self, node: Any) -> tuple[str, int]:
        """Give the scope and microbatch whose forward made this node."""
        position = bisect_right(self._numbers, node._sequence_nr()) - 1
        return self._marks[position] if position >= 0 else ("", self.microbatch)

    def _mark(self, microbatch: int) -> None:
        self._numbers.append(_next_node_number())
        self._marks.append((self._stack[-1] if self._stack else "", microbatch))

    def watch(self, chunks: Sequence[nn.Module], undo: ExitStack) -> None:
        """Put hooks on every module of every chunk; ``undo`` takes them away again."""
        for number, chunk in enumerate(chunks):
            prefix = f"model_chunk{number}." if len(chunks) > 1 else ""
            for module, name in _named_modules(chunk):
                scope = (prefix + name).removesuffix(".")
                self._hook(module, scope, undo, counts=module is chunk)
            inner = unwrap(chunk)
            for name, parameter in inner.named_parameters(remove_duplicate=False):
                self._parameters.setdefault(id(parameter), prefix + name)

    def _hook(self, module: nn.Module, scope: str, undo: ExitStack, *, counts: bool) -> None:
        def enter(module: nn.Module, args: object) -> None:
            if torch.compiler.is_compiling():
                return
            if counts:
                self._idle = Phase.FORWARD
            if self._is_on:
                self._enter(scope, id(module) if counts else 0)

        def leave(module: nn.Module, args: object, output: object) -> None:
            if self._is_on and not torch.compiler.is_compiling():
                self._leave(scope)

        undo.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
        undo.callback(module.register_forward_hook(leave, always_call=True).remove)

    def _enter(self, scope: str, root: int) -> None:
        node = _current_node()
        if node is None:
            if root and not self._stack and self._counts_forwards:
                self.microbatch = self._forwards.get(root, -1) + 1
                self._forwards[root] = self.microbatch
            microbatch = self.microbatch
            self._idle = Phase.FORWARD
        else:  # recomputation belongs to the microbatch of the node that asks for it
            microbatch = self._backward_microbatch if self._stack else self._owner(node)[1]
            self._backward_microbatch = microbatch
        self._stack.append(scope)
        self._mark(microbatch)

    def _leave(self, scope: str) -> None:
        if scope not in self._stack:
            return
        while self._stack.pop() != scope:  # an exception may have skipped the exits of inner modules
            pass
        self._mark(self.microbatch if _current_node() is None else self._backward_microbatch)


def unwrap(module: nn.Module) -> nn.Module:
    """Give the module inside data-parallel, precision and compiling wrappers."""
    while (inner := _wrapped(module)) is not None:
        module = inner
    return module


def _wrapped(module: nn.Module) -> nn.Module | None:
    inner = getattr(module, _WRAPPERS.get(type(module).__name__, ""), None)
    return inner if isinstance(inner, nn.Module) else None


def _named_modules(chunk: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Give every module with its scope; the wrappers around the model have the empty scope."""
    while (inner := _wrapped(chunk)) is not None:
        yield chunk, ""
        chunk = inner
    for name, module in chunk.named_modules():
        yield module, name

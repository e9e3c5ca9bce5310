"""The guard of a module: several forward and backward passes from one state must give the same bits.

What belongs to the state is what PyTorch saves: parameters, buffers and extra state (``get_extra_state``,
where quantisers keep scales and amax histories). It is put back before every pass and compared after it.
Numbers and tensors in plain attributes are saved by nobody: they are left alone and compared, so that a scale
which leaks from one pass into the next is seen, and named.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch

from detlab.kernel.statistics import ConditionResult
from detlab.testing.difference import find_difference, plain_copy
from detlab.testing.guard_conditions import AskedCondition, guard_conditions
from detlab.testing.guards import check_trials, compare_trials
from detlab.testing.hold import (
    HeldGenerators,
    HeldTensors,
    StatePair,
    main_device,
    named_leaves,
    named_results,
)

_OWN_ATTRIBUTES: Final = frozenset(vars(torch.nn.Module()))
_MAX_DEPTH: Final = 5
_GRADIENT_SEED: Final = 0x5EED
_OPAQUE: Final = (torch.nn.Module, type, FunctionType, MethodType, ModuleType, torch.Generator)


def assert_module_repeatable(
    module: torch.nn.Module,
    *inputs: Any,
    trials: int = 5,
    conditions: Sequence[AskedCondition] = ({},),
    input_gradients: bool = True,
    ignore: Collection[str] = (),
    more_state: Sequence[StatePair] = (),
    **kwargs: Any,
) -> tuple[ConditionResult, ...]:
    """Make several forward and backward passes from one state; fail unless all gave the same bits.

    Before every pass the parameters, buffers, extra state, inputs and generators are put back and there are
    no gradients. Compared are the outputs, the gradients of inputs and parameters (``main_grad`` too), the
    parameters, buffers and extra state after the pass, and tensors and floats in plain attributes. Afterwards
    the module and the generators are as they were before, but for those plain attributes.

    Parameters
    ----------
    module, inputs, kwargs
        The module, in the mode (train or eval) that it is in, and what it is called with.
    trials
        How many passes under each condition, 2 or more.
    conditions
        What is held in each, see `assert_bitwise_repeatable`.
    input_gradients
        Whether floating-point inputs get a gradient also where they do not require one; not for a module
        that overwrites its input.
    ignore
        Names of results that are not compared, as the message writes them.
    more_state
        Pairs (read, put back) of state elsewhere, such as that of Megatron's generator tracker:
        ``(tracker.get_states, tracker.set_states)``.

    Returns
    -------
    One row a condition, with the bound that its passes reach.

    Raises
    ------
    AssertionError
        A pass gave other bits; the message says what, where, how far, in how many, and which state leaked.
    InputError
        Fewer than two passes, or an output without bits.
    """
    check_trials(trials)
    held = _HeldModule(module, (inputs, kwargs), more_state, input_gradients)

    def trial() -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in held.trial().items() if name not in ignore}

    try:
        asked = guard_conditions(conditions, held.device)
        return compare_trials(trial, trials, asked, held.device, explain=held.explain)
    finally:
        held.restore_all()


class _HeldModule:
    """A module with everything that is put back before a pass."""

    def __init__(
        self, module: torch.nn.Module, call: Any, more_state: Sequence[StatePair], input_gradients: bool
    ) -> None:
        self._module, self._call, self._input_gradients = module, call, input_gradients
        self._registered: list[tuple[Any, dict[str, Any]]] = [
            (table, dict(table)) for each in module.modules() for table in (each._parameters, each._buffers)
        ]
        self._parameters = HeldTensors(module.named_parameters())
        main = ((name, getattr(each, "main_grad", None)) for name, each in module.named_parameters())
        self._main_grads = HeldTensors((name, each) for name, each in main if each is not None)
        self._buffers = HeldTensors(module.named_buffers())
        leaves = [*_call_leaves(call)]
        self.device = main_device([*module.parameters(), *(leaf for _, leaf in leaves)])
        self._inputs = HeldTensors((name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor))
        self._extra = [(each, copy.deepcopy(each.get_extra_state())) for _, each in _with_extra_state(module)]
        given = [leaf for _, leaf in leaves if isinstance(leaf, torch.Generator)]
        self._generators = HeldGenerators(given, more_state)
        self._output_gradients: dict[str, torch.Tensor] = {}
        self._before: dict[str, torch.Tensor] | None = None
        self._leaking: set[str] = set()

    def trial(self) -> dict[str, torch.Tensor]:
        """Make one pass from the held state and give everything that it led to."""
        self._restore()
        leaves: dict[str, torch.Tensor] = {}
        args, kwargs = self._call
        args = [self._fresh(value, f"input {number}", leaves) for number, value in enumerate(args)]
        kwargs = {key: self._fresh(value, f"input {key}", leaves) for key, value in kwargs.items()}
        self._note_attributes()
        outputs = named_results(self._module(*args, **kwargs), "output")
        self._backward(outputs)
        results = {name: output.detach() for name, output in outputs.items()}
        for name, leaf in leaves.items():
            if leaf.grad is not None:
                results[f"gradient of {name}"] = leaf.grad
        return results | self._state()

    def restore_all(self) -> None:
        """Put back everything, the gradients too."""
        self._restore()
        for held in (self._parameters, self._main_grads, self._buffers, self._inputs):
            held.restore_all()

    def explain(self) -> str:
        """Say which state leaks: the plain attributes that were not the same before every pass."""
        if not self._leaking:
            return ""
        return (
            f"  {', '.join(sorted(self._leaking))} changed from pass to pass: in no parameter, buffer or "
            "extra state, so neither saved nor put back; what one pass leaves there reaches the next\n"
            "Hint: register it with register_buffer, or give it to get_extra_state and set_extra_state"
        )

    def _note_attributes(self) -> None:
        """Hold the plain attributes before a pass against those before the first."""
        now = {name: plain_copy(tensor) for name, tensor in _attributes(self._module).items()}
        if self._before is None:
            self._before = now
        for name in self._before.keys() & now.keys():
            if find_difference(self._before[name], now[name]) is not None:
                self._leaking.add(name.removeprefix("attribute "))

    def _restore(self) -> None:
        for table, content in self._registered:
            table.clear()
            table.update(content)
        for held in (self._parameters, self._main_grads, self._buffers, self._inputs):
            held.restore()
        for each, state in self._extra:
            each.set_extra_state(copy.deepcopy(state))
        self._generators.restore()

    def _fresh(self, value: Any, name: str, leaves: dict[str, torch.Tensor]) -> Any:
        """Give the call with every tensor as a new leaf over the same bytes."""
        if isinstance(value, torch.Tensor):
            wanted = value.requires_grad or (self._input_gradients and value.is_floating_point())
            leaves[name] = leaf = value.detach().requires_grad_(wanted)
            return leaf
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self._fresh(item, f"{name}[{i}]", leaves) for i, item in enumerate(value))
        if isinstance(value, dict):
            return {key: self._fresh(item, f"{name}[{key!r}]", leaves) for key, item in value.items()}
        return value

    def _backward(self, outputs: Mapping[str, torch.Tensor]) -> None:
        """Go back from every output at once, with gradients that are no whole numbers and stay the same."""
        differentiable = {name: output for name, output in outputs.items() if output.requires_grad}
        for name, output in differentiable.items():
            if name not in self._output_gradients:
                generator = torch.Generator().manual_seed(_GRADIENT_SEED)
                made = torch.randn(output.shape, generator=generator, dtype=torch.float64)
                self._output_gradients[name] = made.to(output.device, output.dtype)
        if differentiable:
            gradients = [self._output_gradients[name] for name in differentiable]
            torch.autograd.backward(list(differentiable.values()), gradients)

    def _state(self) -> dict[str, torch.Tensor]:
        """Give what the module holds after a pass."""
        found: dict[str, torch.Tensor] = {}
        for name, parameter in self._module.named_parameters():
            parts = {
                "gradient of": parameter.grad,
                "main_grad of": getattr(parameter, "main_grad", None),
                "parameter": parameter.detach(),
            }
            found |= {f"{part} {name}": tensor for part, tensor in parts.items() if tensor is not None}
        found |= {f"buffer {name}": buffer for name, buffer in self._module.named_buffers()}
        for name, each in _with_extra_state(self._module):
            found |= _numbers(each.get_extra_state(), f"extra state of {name or 'the module'}")
        return found | _attributes(self._module)


def _call_leaves(call: Any) -> Iterator[tuple[str, object]]:
    args, kwargs = call
    yield from named_leaves(args, "")
    yield from named_leaves(kwargs, "")


def _attributes(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Give the tensors and floats in plain attributes of a module and its parts, by name."""
    found: dict[str, torch.Tensor] = {}
    for name, each in module.named_modules():
        for key in sorted(vars(each).keys() - _OWN_ATTRIBUTES):
            found |= _numbers(vars(each)[key], f"attribute {name}.{key}" if name else f"attribute {key}")
    return found


def _with_extra_state(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    default = torch.nn.Module.get_extra_state
    return [
        (name, each) for name, each in module.named_modules() if type(each).get_extra_state is not default
    ]


def _numbers(value: object, name: str) -> dict[str, torch.Tensor]:
    return dict(_walk_numbers(value, name, ()))


def _walk_numbers(value: object, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    """Give the tensors and floats below an attribute; whole numbers count passes and are left out."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and not value.is_meta:
            yield name, value.detach()
    elif isinstance(value, float):
        yield name, torch.tensor(value, dtype=torch.float64)
    elif len(above) < _MAX_DEPTH and id(value) not in above:  # an object may hold itself
        for path, item in _parts(value, name):
            yield from _walk_numbers(item, path, (*above, id(value)))


def _parts(value: object, name: str) -> list[tuple[str, object]]:
    """Give what a container or an object of its own holds, by path."""
    if isinstance(value, Mapping):
        return [(f"{name}[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return [(f"{name}[{number}]", item) for number, item in enumerate(value)]
    if hasattr(value, "__dict__") and not isinstance(value, _OPAQUE):
        return [(f"{name}.{key}", item) for key, item in vars(value).items()]
    return []

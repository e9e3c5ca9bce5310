"""Forward and backward of a module as one call over everything that they read, so that it can be captured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch
from torch import nn

from detlab.captures.values import leaves
from detlab.errors import InputError

Tensors = Mapping[str, torch.Tensor]
Number = bool | int | float

ARGUMENTS: Final = ("parameters", "state", "numbers", "trackers", "inputs", "keywords", "gradients")
"""What a `ModuleCall` takes, in order; a capture of a module holds just these."""

_MAX_DEPTH: Final = 6
_OWN: Final = frozenset(vars(nn.Module()))
"""Attributes that every module has for torch's own sake: hooks, and the tables of its parts."""

_CODE: Final = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, partial)

_TRACKERS: Final = "megatron.core.tensor_parallel.random"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an object holds a tensor: an entry of a dictionary or a list."""

    holder: Any
    key: Any

    def get(self) -> Any:
        return self.holder[self.key]

    def put(self, value: object) -> None:
        self.holder[self.key] = value


class ModuleCall:
    """Run a module forward and, unless no gradients are given, backward; change nothing of it.

    What the module holds is taken from the arguments, and what it held before is put back when the call has
    ended: parameters and tensors that hang on them (``main_grad``), buffers, tensors in other attributes (the
    scales of a quantizer), plain numbers in attributes (``training``, counters), and the states of Megatron's
    random trackers. The gradients are computed by ``torch.autograd.grad``: hooks that reduce them over ranks
    do not run, and torch refuses modules that recompute activations by its reentrant checkpoint.

    Parameters
    ----------
    module
        A module whose result is made of tensors, lists, tuples and dictionaries.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def parameters(self) -> dict[str, torch.Tensor]:
        """Give the parameters by name, each once."""
        return dict(self._module.named_parameters())

    def state(self) -> dict[str, torch.Tensor]:
        """Give every other tensor that the module holds, by the path to it."""
        return {name: place.get() for name, place in self._places().items()}

    def numbers(self) -> dict[str, Number]:
        """Give the plain numbers among the attributes of the module and its parts."""
        return {name: place.get() for name, place in self._number_places().items()}

    def trackers(self) -> dict[str, Any]:
        """Give the states of Megatron's random trackers; none where Megatron is not loaded."""
        tracker = _tracker()
        return {} if tracker is None else dict(tracker.get_states())

    def __call__(
        self,
        parameters: Tensors,
        state: Tensors,
        numbers: Mapping[str, Number],
        trackers: Mapping[str, Any],
        inputs: Sequence[Any],
        keywords: Mapping[str, Any],
        gradients: Sequence[torch.Tensor] | None,
    ) -> dict[str, Any]:
        """Make the call.

        Parameters
        ----------
        gradients
            One for each output that requires one, in order; None: forward only.

        Returns
        -------
        ``outputs``, ``input_gradients`` (of the inputs that require one, in order), ``gradients`` by the name
        of the parameter, and ``state`` as the call left it.
        """
        is_trained = torch.is_grad_enabled() or gradients is not None
        with self._holding(parameters, state, numbers, trackers), torch.set_grad_enabled(is_trained):
            outputs = self._module(*inputs, **keywords)
            found = {"outputs": _detached(outputs), "input_gradients": [], "gradients": {}}
            if gradients is not None:
                found |= self._backward(outputs, (inputs, keywords), gradients)
            return found | {"state": self.state()}

    def forward(
        self,
        parameters: Tensors,
        state: Tensors,
        numbers: Mapping[str, Number],
        trackers: Mapping[str, Any],
        inputs: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        """Run the module forward only and give what it returns, with its graph."""
        with self._holding(parameters, state, numbers, trackers):
            return self._module(*inputs, **keywords)

    def _backward(self, outputs: object, given: object, gradients: Sequence[torch.Tensor]) -> dict[str, Any]:
        ends = differentiable(outputs)
        if len(ends) != len(gradients):
            raise InputError(
                f"{type(self._module).__name__} gave {len(ends)} outputs that require a gradient,"
                f" and {len(gradients)} gradients were given.",
                "give one for each, in order",
            )
        inputs = [leaf for leaf in leaves(given) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        named = {name: each for name, each in self._module.named_parameters() if each.requires_grad}
        if not ends or not (inputs or named):
            return {}
        wanted = [*inputs, *named.values()]
        found = torch.autograd.grad(ends, wanted, gradients, allow_unused=True)
        return {
            "input_gradients": list(found[: len(inputs)]),
            "gradients": dict(zip(named, found[len(inputs) :], strict=True)),
        }

    @contextmanager
    def _holding(
        self, parameters: Tensors, state: Tensors, numbers: Mapping[str, Number], trackers: Mapping[str, Any]
    ) -> Iterator[None]:
        """Let the module hold these, and put back what it held."""
        own = dict(self._module.named_parameters())
        places, counts, tracker = self._places(), self._number_places(), _tracker()
        self._check("parameters", own, parameters)
        self._check("tensors", places, state)
        self._check("numbers", counts, numbers)
        self._check("random trackers", self.trackers(), trackers)
        before = [(place, place.get()) for place in (*places.values(), *counts.values())]
        datas = [(each, each.data, each.requires_grad) for each in own.values()]
        streams = self.trackers()
        try:
            for name, each in own.items():
                each.data = parameters[name].detach()
                each.requires_grad_(parameters[name].requires_grad)
            for name, place in places.items():
                place.put(state[name])
            for name, place in counts.items():
                place.put(numbers[name])
            if tracker is not None:
                tracker.set_states({name: _copied(each) for name, each in trackers.items()})
            yield
        finally:
            for each, data, needs_grad in datas:
                each.data = data
                each.requires_grad_(needs_grad)
            for place, value in before:
                place.put(value)
            if tracker is not None:
                tracker.set_states(streams)

    def _check(self, what: str, here: Mapping[str, object], given: Mapping[str, object]) -> None:
        if odd := sorted(here.keys() ^ given.keys()):
            has = "has no" if odd[0] in given else "has the further"
            raise InputError(
                f"This {type(self._module).__name__} is not the captured one: among its {what}, it {has}"
                f" {odd[0]}.",
                "build the module with the configuration of training",
            )

    def _places(self) -> dict[str, _Place]:
        """Find the tensors beside the parameters: buffers, attributes, and what hangs on parameters."""
        found: dict[str, _Place] = {}
        seen: set[int] = set()
        for prefix, part in self._module.named_modules():
            start = f"{prefix}." if prefix else ""
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    found[start + name] = _Place(part._buffers, name)
            for name, parameter in part._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    found |= _tensors_of(vars(parameter), start + name, seen)
            own = {name: value for name, value in vars(part).items() if name not in _OWN}
            found |= _tensors_of(own, prefix, seen, holder=vars(part))
        return found

    def _number_places(self) -> dict[str, _Place]:
        return {
            f"{prefix}.{name}" if prefix else name: _Place(vars(part), name)
            for prefix, part in self._module.named_modules()
            for name, value in vars(part).items()
            if type(value) in (bool, int, float) and (name == "training" or name not in _OWN)
        }


def differentiable(outputs: object) -> list[torch.Tensor]:
    """Give the tensors among outputs that a gradient can be given for, in order."""
    return [leaf for leaf in leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _tensors_of(
    items: Any, path: str, seen: set[int], *, holder: Any = None, depth: int = 0
) -> dict[str, _Place]:
    """Find the tensors in a dictionary or a list, and in the plain objects that it holds."""
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    start = f"{path}." if path else ""
    found: dict[str, _Place] = {}
    for key, value in list(pairs):
        name = f"{start}{key}"
        if isinstance(value, nn.Parameter | nn.Module):
            continue
        if isinstance(value, torch.Tensor):
            if not isinstance(items, tuple):
                found[name] = _Place(items if holder is None else holder, key)
        elif id(value) not in seen and depth < _MAX_DEPTH:
            inner = _inside(value)
            if inner is not None:
                seen.add(id(value))
                found |= _tensors_of(inner, name, seen, depth=depth + 1)
    return found


def _inside(value: object) -> Any:
    """Give what a container or a plain object holds; None for everything else."""
    if isinstance(value, dict | list | tuple):
        return value
    if isinstance(value, _CODE) or type(value).__module__.partition(".")[0] in ("torch", "builtins"):
        return None
    return getattr(value, "__dict__", None)


def _detached(outputs: Any) -> Any:
    """Give outputs that stay what they are when the module gets its own parameters back."""
    if isinstance(outputs, dict):
        return {name: _detached(item) for name, item in outputs.items()}
    if isinstance(outputs, list | tuple):
        return [_detached(item) for item in outputs]
    return outputs.detach() if isinstance(outputs, torch.Tensor) else outputs


def _tracker() -> Any:
    """Give Megatron's tracker of random states, where it was made."""
    module = sys.modules.get(_TRACKERS)
    tracker = getattr(module, "_CUDA_RNG_STATE_TRACKER", None)
    return tracker if hasattr(tracker, "get_states") else None


def _copied(state: Any) -> Any:
    """Copy the state of a generator, which a tracker replaces or overwrites."""
    return state.clone() if isinstance(state, torch.Tensor) else state.clone_state()

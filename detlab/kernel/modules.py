"""Forward and backward of a module as one call over everything that they read, so that it can be captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

from detlab.captures.values import leaves
from detlab.errors import InputError
from detlab.kernel.module_state import (
    attributes_kept,
    copied_state,
    number_places,
    random_tracker,
    tensor_places,
)

Tensors = Mapping[str, torch.Tensor]
Number = bool | int | float

ARGUMENTS: Final = ("parameters", "state", "numbers", "trackers", "inputs", "keywords", "gradients")
"""What a `ModuleCall` takes, in order; a capture of a module holds just these."""


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
        return {name: place.get() for name, place in tensor_places(self._module).items()}

    def numbers(self) -> dict[str, Number]:
        """Give the plain numbers among the attributes of the module and its parts."""
        return {name: place.get() for name, place in number_places(self._module).items()}

    def trackers(self) -> dict[str, Any]:
        """Give the states of Megatron's random trackers; none where Megatron is not loaded."""
        tracker = random_tracker()
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
        of the parameter, and ``state``: the tensors that the call put in the place of those of before.
        """
        is_trained = torch.is_grad_enabled() or gradients is not None
        with self._holding(parameters, state, numbers, trackers), torch.set_grad_enabled(is_trained):
            outputs = self._module(*inputs, **keywords)
            found = {"outputs": _detached(outputs), "input_gradients": [], "gradients": {}}
            if gradients is not None:
                found |= self._backward(outputs, (inputs, keywords), gradients)
            made = {name: tensor for name, tensor in self.state().items() if tensor is not state.get(name)}
            return found | {"state": made}  # what was changed in place is seen in the arguments

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
        own, tracker = dict(self._module.named_parameters()), random_tracker()
        places, counts = tensor_places(self._module), number_places(self._module)
        self._check("parameters", own, parameters)
        self._check("tensors", places, state)
        self._check("numbers", counts, numbers)
        self._check("random trackers", self.trackers(), trackers)
        before = [(place, place.get()) for place in places.values()]
        datas = [(each, each.data, each.requires_grad) for each in own.values()]
        streams = self.trackers()
        with attributes_kept(self._module):
            try:
                for name, each in own.items():
                    each.data = parameters[name].detach()
                    each.requires_grad_(parameters[name].requires_grad)
                for given, there in ((state, places), (numbers, counts)):
                    for name, place in there.items():
                        place.put(given[name])
                if tracker is not None:
                    tracker.set_states({name: copied_state(each) for name, each in trackers.items()})
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


def differentiable(outputs: object) -> list[torch.Tensor]:
    """Give the tensors among outputs that a gradient can be given for, in order."""
    return [leaf for leaf in leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _detached(outputs: Any) -> Any:
    """Give outputs that stay what they are when the module gets its own parameters back."""
    if isinstance(outputs, dict):
        return {name: _detached(item) for name, item in outputs.items()}
    if isinstance(outputs, list | tuple):
        return [_detached(item) for item in outputs]
    return outputs.detach() if isinstance(outputs, torch.Tensor) else outputs

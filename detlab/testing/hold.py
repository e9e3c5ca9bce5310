"""What a guard puts back before every trial: the bytes of arguments, and the states of generators."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch

from detlab.digest import tensor_digest
from detlab.errors import InputError

StatePair = tuple[Callable[[], Any], Callable[[Any], object]]
"""How some state is read and how it is put back, as ``(tracker.get_states, tracker.set_states)``."""


def named_leaves(value: object, name: str) -> Iterator[tuple[str, object]]:
    """Walk lists, tuples, mappings and dataclasses in order; give every leaf with the path to it."""
    if isinstance(value, Mapping):
        items = [(f"{name}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{name}[{number}]", item) for number, item in enumerate(value)]
    elif is_dataclass(value) and not isinstance(value, type):
        items = [(f"{name}.{field.name}", getattr(value, field.name)) for field in fields(value)]
    else:
        yield name, value
        return
    for path, item in items:
        yield from named_leaves(item, path)


def main_device(leaves: Iterable[object]) -> str:
    """Give the device of the first tensor that is on an accelerator; ``cpu`` when none is."""
    devices = [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return next((str(device) for device in devices if device.type == "cuda"), "cpu")


def named_results(value: object, name: str) -> dict[str, torch.Tensor]:
    """Give every tensor and number of what a call returned, by its path.

    Raises
    ------
    InputError
        Something else is returned, which has no bits to compare.
    """
    found: dict[str, torch.Tensor] = {}
    for path, leaf in named_leaves(value, name):
        if isinstance(leaf, torch.Tensor):
            found[path] = leaf
        elif isinstance(leaf, bool | int | float | complex):
            wide = {float: torch.float64, complex: torch.complex128}
            found[path] = torch.tensor(leaf, dtype=wide.get(type(leaf)))
        elif leaf is not None and not isinstance(leaf, str):
            raise InputError(
                f"{path} is a {type(leaf).__name__}, whose bits cannot be compared.",
                "return tensors, numbers, or lists, dictionaries and dataclasses of them",
            )
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """One tensor as it was: its place in its storage, its bits and its gradient."""

    name: str
    tensor: torch.Tensor
    storage: torch.UntypedStorage
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    digest: int
    gradient: torch.Tensor | None
    gradient_bits: torch.Tensor | None

    def restore_layout(self) -> None:
        layout = (self.tensor.size(), self.tensor.stride(), self.tensor.storage_offset())
        is_moved = self.tensor.untyped_storage().data_ptr() != self.storage.data_ptr()
        if is_moved or layout != (self.size, self.stride, self.offset):
            self.tensor.data = self.view(self.storage)

    def view(self, storage: torch.UntypedStorage) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.tensor.dtype, device=self.tensor.device)
        return empty.set_(storage, self.offset, self.size, self.stride)


class HeldTensors:
    """The bytes, shape and gradient of some tensors, to be put back before every trial.

    Two that share memory share it afterwards too.

    Raises
    ------
    InputError
        A tensor has no bytes of its own, as a sparse one.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._tensors = [_hold(name, tensor) for name, tensor in tensors]
        storages = {_key(held.storage): held.storage for held in self._tensors}
        self._storages = [(storage, _bytes_of(storage)) for storage in storages.values()]

    def restore(self) -> None:
        """Put bytes and shapes back, and leave no gradient."""
        for storage, pristine in self._storages:
            if storage.nbytes() != pristine.nbytes():
                storage.resize_(pristine.nbytes())
            storage.copy_(pristine)
        for held in self._tensors:
            held.restore_layout()
            if held.tensor.is_leaf:
                held.tensor.grad = None

    def restore_all(self) -> None:
        """Put everything back, the gradients too."""
        self.restore()
        for held in self._tensors:
            if held.gradient is not None and held.gradient_bits is not None:
                held.gradient.detach().copy_(held.gradient_bits)
                held.tensor.grad = held.gradient

    def gradients(self) -> dict[str, torch.Tensor]:
        """Give the gradients that a trial left, by name of their tensor."""
        leaves = [held for held in self._tensors if held.tensor.is_leaf]
        return {held.name: held.tensor.grad for held in leaves if held.tensor.grad is not None}

    def changed(self) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        """Give the name of every tensor that is not as it was held, how it was, and how it is."""
        pristine = {_key(storage): copied for storage, copied in self._storages}
        return [
            (held.name, held.view(pristine[_key(held.storage)]), held.tensor)
            for held in self._tensors
            if held.tensor.size() != held.size or tensor_digest(held.tensor.detach()) != held.digest
        ]


def _hold(name: str, tensor: torch.Tensor) -> _Held:
    try:
        digest, storage = tensor_digest(tensor.detach()), tensor.untyped_storage()
    except (TypeError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{name} cannot be held: {error}", "pass plain tensors") from error
    layout = tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())
    gradient = tensor.grad if tensor.is_leaf else None
    return _Held(name, tensor, storage, *layout, digest, gradient, _copy(gradient))


class HeldGenerators:
    """The state of every generator that a call may draw from: torch's, Python's, NumPy's and those given."""

    def __init__(self, given: Sequence[torch.Generator] = (), more: Sequence[StatePair] = ()) -> None:
        generators = [torch.default_generator, *given]
        if torch.cuda.is_available():
            generators += torch.cuda.default_generators
        pairs: list[StatePair] = [(each.get_state, each.set_state) for each in generators]
        pairs += [(random.getstate, random.setstate), (np.random.get_state, np.random.set_state), *more]
        self._held = [(put, copy.deepcopy(get())) for get, put in pairs]

    def restore(self) -> None:
        """Put every state back."""
        for put, state in self._held:
            put(copy.deepcopy(state))


def _key(storage: torch.UntypedStorage) -> tuple[str, int]:
    return str(storage.device), storage._cdata if storage.nbytes() == 0 else storage.data_ptr()


def _bytes_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    copied: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
    return copied


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()

"""Where a module holds its state: buffers, tensors in other attributes, plain numbers, random trackers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch
from torch import nn

_MAX_DEPTH: Final = 6
_OWN: Final = frozenset(vars(nn.Module()))
"""Attributes that every module has for torch's own sake: hooks, and the tables of its parts."""

_CODE: Final = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, partial)

_TRACKERS: Final = "megatron.core.tensor_parallel.random"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object holds a tensor: an entry of a dictionary or a list."""

    holder: Any
    key: Any

    def get(self) -> Any:
        """Give what stands there."""
        return self.holder[self.key]

    def put(self, value: object) -> None:
        """Let something else stand there."""
        self.holder[self.key] = value


def tensor_places(module: nn.Module) -> dict[str, Place]:
    """Find the tensors beside the parameters: buffers, attributes, and what hangs on parameters."""
    found: dict[str, Place] = {}
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        start = f"{prefix}." if prefix else ""
        for name, buffer in part._buffers.items():
            if buffer is not None:
                found[start + name] = Place(part._buffers, name)
        for name, parameter in part._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found |= _tensors_of(vars(parameter), start + name, seen)
        own = {name: value for name, value in vars(part).items() if name not in _OWN}
        found |= _tensors_of(own, prefix, seen, holder=vars(part))
    return found


def number_places(module: nn.Module) -> dict[str, Place]:
    """Find the plain numbers among the attributes of a module and its parts, ``training`` included."""
    return {
        f"{prefix}.{name}" if prefix else name: Place(vars(part), name)
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        if type(value) in (bool, int, float) and (name == "training" or name not in _OWN)
    }


@contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Put back the attributes and buffers of a module and its parts, also those that are new or gone."""
    holders = [holder for part in module.modules() for holder in (vars(part), part._buffers)]
    before = [dict(holder) for holder in holders]
    try:
        yield
    finally:
        for holder, content in zip(holders, before, strict=True):
            holder.clear()
            holder.update(content)


def random_tracker() -> Any:
    """Give Megatron's tracker of random states, where it was made."""
    module = sys.modules.get(_TRACKERS)
    tracker = getattr(module, "_CUDA_RNG_STATE_TRACKER", None)
    return tracker if hasattr(tracker, "get_states") else None


def copied_state(state: Any) -> Any:
    """Copy the state of a generator, which a tracker replaces or overwrites."""
    return state.clone() if isinstance(state, torch.Tensor) else state.clone_state()


def _tensors_of(
    items: Any, path: str, seen: set[int], *, holder: Any = None, depth: int = 0
) -> dict[str, Place]:
    """Find the tensors in a dictionary or a list, and in the plain objects that it holds."""
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    start = f"{path}." if path else ""
    found: dict[str, Place] = {}
    for key, value in list(pairs):
        name = f"{start}{key}"
        if isinstance(value, nn.Parameter | nn.Module):
            continue
        if isinstance(value, torch.Tensor):
            if not isinstance(items, tuple):
                found[name] = Place(items if holder is None else holder, key)
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

"""Take the state that a step begins with apart into named tensors and values.

Names are those of the model's parameters, never numbers of this process, so that the state of two runs, or
of a run and of one that goes on from its checkpoint, can be set side by side.
"""

from __future__ import annotations

import io
import random
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import nn

from detlab.record.scopes import unwrap

MASTER: Final = "master_param"
"""The name, among the states of a parameter, of the copy in higher precision that its optimizer keeps."""

_PLAIN: Final = (bool, int, float, complex, str, type(None))
_MAX_DEPTH: Final = 32
_MAX_SHOWN: Final = 120


class Unknown(NamedTuple):
    """A value of a kind that has no bits to be recorded."""

    kind: str


State = tuple[str, object]
"""Name and value: a tensor, a plain value or a list of such, or `Unknown`."""


def states_of(
    chunks: Sequence[nn.Module], optimizer: object | None, states: Mapping[str, object], names: Names
) -> Iterator[State]:
    """Give every state by its name: the model's, the optimizer's, the generators', and those given.

    Parameters
    ----------
    names
        Names of parameters, see `parameter_names`.
    """
    yield from model_states(chunks)
    if optimizer is not None:
        yield from optimizer_states(optimizer, names)
    yield from generator_states()
    for name, value in states.items():
        yield from leaves(name, value)


Names = Mapping[int, str]
"""Names of parameters by the ``id`` of the parameter."""


def chunk_prefixes(chunks: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Give each model without its wrappers, and what its names begin with."""
    for number, chunk in enumerate(chunks):
        yield (f"model_chunk{number}." if len(chunks) > 1 else ""), unwrap(chunk)


def parameter_names(chunks: Sequence[nn.Module]) -> dict[int, str]:
    """Name the parameters of a model, and the copies in higher precision that Megatron hangs on them."""
    names: dict[int, str] = {}
    for prefix, module in chunk_prefixes(chunks):
        for name, parameter in module.named_parameters():
            names[id(parameter)] = prefix + name
            main = getattr(parameter, "main_param", None)
            if main is not None:
                names[id(main)] = prefix + name
    return names


def model_states(chunks: Sequence[nn.Module]) -> Iterator[State]:
    """Give parameters, buffers and extra states of a model."""
    for prefix, module in chunk_prefixes(chunks):
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            yield from leaves(f"model.{prefix}{name}", tensor)
        for name, inner in module.named_modules():
            if type(inner).get_extra_state is not nn.Module.get_extra_state:
                scope, extra = f"model.{prefix}{name}".removesuffix("."), inner.get_extra_state()
                yield from leaves(f"{scope}._extra_state", extra) if extra is not None else ()


def optimizer_states(optimizer: object, names: Names) -> Iterator[State]:
    """Give the states of an optimizer of torch or Megatron, or of a chain of Megatron's."""
    parts: Sequence[object] = getattr(optimizer, "chained_optimizers", None) or [optimizer]
    for number, part in enumerate(parts):
        prefix = f"optimizer.chained_{number}" if len(parts) > 1 else "optimizer"
        yield from _one_optimizer(part, prefix, names)


def _one_optimizer(optimizer: Any, prefix: str, names: Names) -> Iterator[State]:
    inner = getattr(optimizer, "optimizer", None)
    inner = optimizer if inner is None else inner  # a stub of Megatron's, on a rank without parameters
    named = dict(names) | _names_of_shards(optimizer, inner, names)
    groups = getattr(inner, "param_groups", ())
    states = getattr(inner, "state", {})
    params = [param for group in groups for param in group["params"]]
    held = _storages(optimizer)
    for number, param in enumerate(params):
        name = f"{prefix}.state.{named.get(id(param), number)}"
        if inner is not optimizer and param.untyped_storage().data_ptr() not in held:
            yield from leaves(f"{name}.{MASTER}", param)
        yield from leaves(name, states.get(param, {}))
    counts_by_param = any("step" in states.get(param, {}) for param in params)
    for number, group in enumerate(groups):
        # where every parameter counts its own steps, nobody reads what a checkpoint leaves in the group
        unread = {"params", "step"} if counts_by_param else {"params"}
        kept = {key: value for key, value in group.items() if key not in unread}
        yield from leaves(f"{prefix}.param_groups.{number}", kept)
    scaler = getattr(optimizer, "grad_scaler", None)
    if scaler is not None:
        yield from leaves(f"{prefix}.grad_scaler", scaler)


def _names_of_shards(optimizer: Any, inner: Any, names: Names) -> dict[int, str]:
    """Name what Megatron's DistributedOptimizer optimizes: pieces of parameters."""
    places = getattr(optimizer, "model_param_group_index_map", {})
    named = dict(names) or parameter_names(getattr(optimizer, "model_chunks", ()))
    shards = {
        id(inner.param_groups[group]["params"][place]): named[id(param)]
        for param, (group, place) in places.items()
        if id(param) in named
    }
    return named | shards


def _storages(optimizer: Any) -> set[int]:
    """Give the storages of the model's own parameters, as far as an optimizer of Megatron knows them."""
    lists = ("model_float16_groups", "model_fp32_groups", "float16_groups", "fp32_from_fp32_groups")
    groups: Iterable[Any] = [group for name in lists for group in getattr(optimizer, name, ())]
    held = {param.untyped_storage().data_ptr() for group in groups for param in group}
    whole = not any(hasattr(optimizer, name) for name in lists)  # float32 throughout: there are no copies
    inner = getattr(optimizer, "optimizer", None)
    if whole and inner is not None:
        held |= {p.untyped_storage().data_ptr() for group in inner.param_groups for p in group["params"]}
    return held


def generator_states() -> Iterator[State]:
    """Give the states of all generators that training draws from by default."""
    yield from leaves("rng.cpu", torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield from leaves("rng.cuda", torch.cuda.get_rng_state())
    yield from leaves("rng.python", random.getstate())
    yield from leaves("rng.numpy", np.random.get_state())
    if "megatron.core" in sys.modules:
        from detlab.record.megatron import tracked_generators

        yield from leaves("rng.megatron", tracked_generators())


def leaves(name: str, value: object, depth: int = 0) -> Iterator[State]:
    """Take a value apart into tensors and plain values, each with a dotted name.

    Lists of plain values stay whole; an object that has a ``state_dict`` is taken for what that gives.
    """
    plain = _plain(value)
    if plain is not None:
        yield name, plain[0]
    elif (parts := _parts(value)) is None or depth == _MAX_DEPTH:
        yield name, Unknown(type(value).__name__)
    else:
        for key, part in parts:
            yield from leaves(f"{name}.{key}" if name else str(key), part, depth + 1)


def _plain(value: object) -> tuple[object] | None:
    """Give a value that is written as it is, in a tuple of one; None for what has parts or is unknown."""
    if isinstance(value, torch.Tensor):
        return (_local(value),)
    if isinstance(value, torch.Generator):
        return (value.get_state(),)
    if isinstance(value, io.BytesIO):
        value = value.getvalue()
    if isinstance(value, bytes | bytearray | memoryview):
        return (torch.from_numpy(np.frombuffer(bytes(value), np.uint8).copy()),)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, torch.dtype | torch.device):
        value = str(value)
    return (value,) if _is_plain(value) else None


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Give the part of a distributed tensor that this rank holds."""
    to_local = getattr(tensor, "to_local", None)
    return to_local() if to_local is not None else tensor.detach()


def _array(array: np.ndarray[Any, Any]) -> tuple[object] | None:
    try:
        return (torch.from_numpy(array.copy()),)
    except TypeError:  # torch has no such dtype
        return (
            None
            if array.dtype.hasobject
            else (torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()),)
        )


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(part) for part in value)
    return isinstance(value, _PLAIN)


def _parts(value: Any) -> Iterable[tuple[object, object]] | None:
    """Give the parts of a value by key, in an order that does not depend on how it was built."""
    if isinstance(value, Namespace):
        value = vars(value)
    elif not isinstance(value, Mapping) and callable(getattr(value, "state_dict", None)):
        value = value.state_dict()
    if isinstance(value, Mapping):
        return sorted(value.items(), key=lambda item: str(item[0]))
    if isinstance(value, set | frozenset):
        return enumerate(sorted(value, key=repr))
    return enumerate(value) if isinstance(value, list | tuple) else None


def shown(value: object) -> str:
    """Write a plain value, or the number in a tensor of one element, for people; empty for what is longer."""
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.is_meta:
            return ""
        value = value.item()
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else ""

"""What Megatron-Core knows of the layout, and when it reduces gradients; the only file that imports it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import Any, Final

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBucketGroup
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import random as tracked
from torch import nn

from detlab.record.layout import Layout
from detlab.record.patches import replace_attribute
from detlab.record.scopes import Scopes, unwrap
from detlab.schema import Coordinate, Phase

_FIRST_LABELS: Final = ("tp", "pp", "cp", "dp", "dp_cp", "ep")
"""A group that stands for several axes is labelled after the first of these."""


def megatron_layout() -> Layout | None:
    """Read coordinate, sizes and groups; None before Megatron's groups are made."""
    if not parallel_state.model_parallel_is_initialized():
        return None
    groups = _groups()
    return Layout(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        coordinate=Coordinate(
            pp=parallel_state.get_pipeline_model_parallel_rank(),
            tp=parallel_state.get_tensor_model_parallel_rank(),
            cp=parallel_state.get_context_parallel_rank(),
            dp=parallel_state.get_data_parallel_rank(),
            ep=parallel_state.get_expert_model_parallel_rank(),
        ),
        sizes=_sizes(),
        groups={label: tuple(dist.get_process_group_ranks(group)) for label, group in groups.items()},
        labels={group.group_name: label for label, group in reversed(groups.items())},
    )


def _sizes() -> dict[str, int]:
    return {
        "tp": parallel_state.get_tensor_model_parallel_world_size(),
        "pp": parallel_state.get_pipeline_model_parallel_world_size(),
        "cp": parallel_state.get_context_parallel_world_size(),
        "dp": parallel_state.get_data_parallel_world_size(),
        "ep": parallel_state.get_expert_model_parallel_world_size(),
        "vpp": parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1,
    }


def _groups() -> dict[str, dist.ProcessGroup]:
    """Give the groups of this rank by label, the plain axes first."""
    others = sorted(field.name for field in fields(ProcessGroupCollection) if field.name not in _FIRST_LABELS)
    known = ProcessGroupCollection.use_mpu_process_groups()
    found = {label: getattr(known, label, None) for label in (*_FIRST_LABELS, *others)}
    return {label: group for label, group in found.items() if isinstance(group, dist.ProcessGroup)}


def scratch_memory() -> list[torch.Tensor]:
    """Give Megatron's scratch buffers; their bytes mean nothing before a call writes to them."""
    shared = parallel_state._GLOBAL_MEMORY_BUFFER  # its getter fails where there is none
    return list(shared.buffer.values()) if shared is not None else []


def tracked_generators() -> dict[str, object]:
    """Give the named states of Megatron's random generators; none before its seeds are set."""
    tracker = tracked._CUDA_RNG_STATE_TRACKER  # its getter makes one where there is none
    states: dict[str, object] = tracker.get_states() if hasattr(tracker, "get_states") else {}
    return states


def follow_grad_reduce(chunks: Sequence[nn.Module], scopes: Scopes, undo: ExitStack) -> None:
    """Put Megatron's gradient reduction into its own phase, wherever it starts."""
    for name in ("start_grad_sync", "finish_grad_sync"):
        method = getattr(_ParamAndGradBucketGroup, name)
        replace_attribute(undo, _ParamAndGradBucketGroup, name, _in_grad_reduce(method, scopes))
    configs = {id(config): config for chunk in chunks if (config := getattr(unwrap(chunk), "config", None))}
    for config in configs.values():
        finalize = getattr(config, "finalize_model_grads_func", None)
        if finalize is not None:
            replace_attribute(undo, config, "finalize_model_grads_func", _in_grad_reduce(finalize, scopes))


def _in_grad_reduce(function: Callable[..., Any], scopes: Scopes) -> Callable[..., Any]:
    @functools.wraps(function)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        with scopes.phase(Phase.GRAD_REDUCE):
            return function(*args, **kwargs)

    return reduce

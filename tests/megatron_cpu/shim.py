"""Run Megatron-Core on the CPU: everything that says that the CPU is a CUDA device stands here.

It makes Megatron's control flow, modules, buffers and collectives real; it says nothing about streams,
overlap races or CUDA kernels. Install it in a process of its own only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CudaIsCpu(TorchFunctionMode):
    """Turn ``device="cuda"`` and ``.cuda()`` into the CPU, and let tensors name CUDA types."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if str(given.get("device")).startswith("cuda"):
            given["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        result = func(*args, **given)
        if func is torch.Tensor.type and len(args) == 1 and not given:
            return result.replace("torch.", "torch.cuda.", 1)  # Megatron compares these names
        return result


def install() -> None:
    """Make this process believe that its CPU is cuda:0, for good."""
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.synchronize = lambda *args, **kwargs: None
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    cuda.manual_seed = torch.default_generator.manual_seed
    _install_generators()
    _install_sequence_parallel_norm()
    CudaIsCpu().__enter__()


def _install_generators() -> None:
    """Let Megatron's named random states be states of the CPU generator."""
    from megatron.core.tensor_parallel import random

    random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    logger = logging.getLogger(random.__name__)
    logger.addFilter(lambda record: "CPU RNG state changed" not in record.getMessage())


def _install_sequence_parallel_norm() -> None:
    """Let torch's norms be built under sequence parallelism, their gradients summed over tp."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    original = WrappedTorchNorm.__new__

    def build(cls: type, config: Any, *args: Any, **kwargs: Any) -> torch.nn.Module:
        is_parallel, config.sequence_parallel = config.sequence_parallel, False
        try:
            norm: torch.nn.Module = original(cls, config, *args, **kwargs)
        finally:
            config.sequence_parallel = is_parallel
        for parameter in norm.parameters():
            parameter.sequence_parallel = is_parallel  # type: ignore[attr-defined]
        return norm

    WrappedTorchNorm.__new__ = build

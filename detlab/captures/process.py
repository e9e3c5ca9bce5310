"""What of a process decides which kernels it runs, beside the state of one call: flags, packages, modules."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import nn

KEPT_PREFIXES: Final = (
    "CAUSAL_CONV1D_",
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "CUTE_DSL_",
    "DEEP_EP_",
    "FI_",
    "FLASH_",
    "GLOO_",
    "KMP_",
    "MAMBA_",
    "MKL_",
    "NCCL_",
    "NVIDIA_",
    "NVTE_",
    "NVSHMEM",
    "OMP_",
    "OPENBLAS_",
    "PYTHONHASHSEED",
    "PYTORCH_",
    "RDMAV_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "UB_",
    "UCX_",
    "XLA_",
)
"""Beginnings of the environment variables that a recipe keeps: those that training and its libraries read.

A whole environment holds names of people, paths and passwords, so it is never kept.
"""

PACKAGES: Final = (
    "apex",
    "causal-conv1d",
    "deep-ep",
    "flash-attn",
    "flash-attn-3",
    "flash-linear-attention",
    "flashinfer-python",
    "grouped-gemm",
    "lightning",
    "mamba-ssm",
    "megatron-bridge",
    "megatron-core",
    "nemo-toolkit",
    "numpy",
    "nvidia-cublas-cu12",
    "nvidia-cudnn-frontend",
    "nvidia-modelopt",
    "nvidia-resiliency-ext",
    "torch",
    "torchao",
    "torchtitan",
    "transformer-engine",
    "triton",
)
"""Distributions whose version decides about bits."""

MODULE_FLAGS: Final = ("deterministic_mode", "deterministic")
"""Attributes into which modules copy the flag when they are built: ``VocabParallelEmbedding`` of
megatron-core, attention of Transformer Engine."""

_WRAPPED: Final = re.compile(r"^(?:module(?:\.|$))+")
"""What wrappers for mixed precision and data parallelism put in front of the names of modules."""

_SECRET: Final = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSW(?:OR)?D|API_?KEY|CREDENTIALS?|AUTH)(?:_|$)")


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that a recipe keeps, by name; a secret is never among them."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(KEPT_PREFIXES) and not _SECRET.search(name)
    }


def package_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Give the versions of Python, of the packages that are installed, and of the libraries under torch."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | dict(_libraries())


def _libraries() -> Iterator[tuple[str, str]]:
    """Give what torch was built with or found: CUDA, cuDNN, NCCL, and the driver of the machine."""
    import torch

    if torch.version.cuda:
        yield "cuda", torch.version.cuda
        with suppress(RuntimeError):  # cuDNN raises where its libraries do not go together
            cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
            if cudnn:
                yield "cudnn", str(cudnn)
        if torch.distributed.is_available() and torch.distributed.is_nccl_available():
            nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
            yield "nccl", ".".join(map(str, nccl))
    driver = _driver()
    if driver:
        yield "driver", driver


def _driver(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Give the version of the NVIDIA driver as the kernel tells it; empty without one."""
    try:
        found = re.search(r"Module\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)", path.read_text("utf-8", "replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def process_flags() -> dict[str, Any]:
    """Give flags of torch that no capture holds; those that torch refuses to read are left out."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags: dict[str, Any] = {
        "interop_threads": torch.get_num_interop_threads(),
        "cuda_initialized": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
    }
    for name, owner, attribute in (
        ("allow_bf16_reduced_precision_reduction", matmul, "allow_bf16_reduced_precision_reduction"),
        ("allow_fp16_reduced_precision_reduction", matmul, "allow_fp16_reduced_precision_reduction"),
        ("allow_fp16_accumulation", matmul, "allow_fp16_accumulation"),
        ("matmul_allow_tf32", matmul, "allow_tf32"),
        ("cudnn_allow_tf32", cudnn, "allow_tf32"),
    ):
        try:
            flags[name] = bool(getattr(owner, attribute))
        except (RuntimeError, AttributeError):  # torch's older and newer settings of TF32 say two things
            continue
    return flags


def module_flags(chunks: Iterable[nn.Module]) -> dict[str, bool]:
    """Give the flags that modules hold themselves, by ``name of the module.flag``.

    Parameters
    ----------
    chunks
        The model, or its pipeline chunks; the names of several are told apart by ``chunk0.``, ``chunk1.``.

    Returns
    -------
    Flags that are attributes of a module, and those of a configuration that is not the one of its chunk.
    """
    every = list(chunks)
    found: dict[str, bool] = {}
    for number, chunk in enumerate(every):
        start = f"chunk{number}." if len(every) > 1 else ""
        shared = getattr(_unwrapped(chunk), "config", None)
        for name, module in chunk.named_modules():
            place = start + (_WRAPPED.sub("", name) or type(module).__name__)
            own = getattr(module, "config", None)
            for flag in MODULE_FLAGS:
                value = vars(module).get(flag)
                if value is None and own is not shared:
                    value = getattr(own, flag, None)
                if isinstance(value, bool):
                    found[f"{place}.{flag}"] = value
    return found


def _unwrapped(chunk: nn.Module) -> nn.Module:
    """Give the model inside wrappers for mixed precision and data parallelism."""
    inner: Any = chunk
    while callable(getattr(getattr(inner, "module", None), "named_modules", None)):
        inner = inner.module
    return inner  # type: ignore[no-any-return]


def start_environment(path: Path = Path("/proc/self/environ")) -> dict[str, str] | None:
    """Give the environment that this process was started with; None where the system does not tell.

    Variables that the program sets later are not in it, though libraries that ask later see them.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in content.split(b"\0") if entry)
    return {name: value for name, equals, value in pairs if equals}

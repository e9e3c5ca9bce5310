"""What the result of a torch call may depend on beside its arguments: flags, threads, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

ENV_PREFIXES: Final = ("CUBLAS_WORKSPACE_CONFIG", "NVTE_", "NCCL_", "OMP_", "MKL_")
"""Environment variables that reach kernels begin with one of these."""

STATE_FIELDS: Final[dict[str, type]] = {
    "threads": int,
    "deterministic": bool,
    "deterministic_warn_only": bool,
    "fill_uninitialized_memory": bool,
    "float32_matmul_precision": str,
    "mkldnn": bool,
    "cudnn_benchmark": bool,
    "cudnn_deterministic": bool,
    "grad_mode": bool,
    "autocast": str,
    "cpu_capability": str,
    "device_name": str,
    "versions": dict,
    "env": dict,
}
"""The fields of a capture's state and their types; versions and env map names to text, and autocast is the
dtype that autocast turns operations to, empty when it is off."""

_OLDER_WORDS: Final = {"tf32": "high", "bf16": "medium"}

_PACKAGES: Final = ("torch", "megatron-core", "transformer-engine", "triton")


def torch_state(device: str = "cpu") -> dict[str, Any]:
    """Read the state of this process.

    Parameters
    ----------
    device
        The device of the call, whose model name is recorded.

    Returns
    -------
    The fields of `STATE_FIELDS` but autocast; packages that are not installed are left out of ``versions``.
    """
    import torch

    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill_uninitialized_memory": bool(torch.utils.deterministic.fill_uninitialized_memory),  # type: ignore[attr-defined]
        "float32_matmul_precision": matmul_precision(device),
        "mkldnn": bool(torch.backends.mkldnn.enabled),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "grad_mode": torch.is_grad_enabled(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device_name": torch.cuda.get_device_name(device)
        if device.startswith("cuda")
        else platform.machine(),
        "versions": _versions() | ({"cuda": torch.version.cuda} if torch.version.cuda else {}),
        "env": {
            name: _one_line(os.environ[name]) for name in sorted(os.environ) if name.startswith(ENV_PREFIXES)
        },
    }


def matmul_precision(device: str = "cpu") -> str:
    """Give the precision of float32 matrix products on a device, in the words of torch's older setting.

    Torch refuses to read that one where it and the newer ones, one a backend, say different things.
    """
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        backend = torch.backends.cuda if device.startswith("cuda") else torch.backends.mkldnn
        return _OLDER_WORDS.get(backend.matmul.fp32_precision, "highest")


def call_state(device: str = "cpu") -> dict[str, Any]:
    """Read all fields of `STATE_FIELDS`: `torch_state`, and what only calls above autograd depend on."""
    import torch

    kind = device.partition(":")[0]
    is_on = torch.is_autocast_enabled(kind)
    dtype = str(torch.get_autocast_dtype(kind)).removeprefix("torch.") if is_on else ""
    return torch_state(device) | {"autocast": dtype}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _one_line(text: str) -> str:
    return text if text.isprintable() else ascii(text)

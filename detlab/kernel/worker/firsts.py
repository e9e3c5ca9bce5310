"""The first result of a worker as raw bytes, so that results of two processes can be held side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from detlab.digest import plain_cpu_bytes

_INDEX: Final = "firsts.json"
MAX_BYTES: Final = 256 << 20
"""Larger results are not kept for each condition: digests tell that they differ, only not where."""


def save_firsts(folder: Path, firsts: Sequence[torch.Tensor]) -> None:
    """Write contiguous CPU tensors into a folder, one file each."""
    index = [{"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape)} for t in firsts]
    for number, tensor in enumerate(firsts):
        tensor.reshape(-1).view(torch.uint8).numpy().tofile(folder / f"first{number}.bin")
    (folder / _INDEX).write_text(json.dumps(index), "utf-8")


def kept_firsts(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy results to the CPU, unless they are large."""
    if sum(output.nbytes for output in outputs) > MAX_BYTES:
        return []
    return [plain_cpu_bytes(output).clone() for output in outputs]


def load_firsts(folder: Path) -> list[torch.Tensor]:
    """Read what `save_firsts` wrote; nothing where it wrote nothing."""
    if not (folder / _INDEX).is_file():
        return []
    index = json.loads((folder / _INDEX).read_text("utf-8"))
    return [_tensor(folder / f"first{number}.bin", each) for number, each in enumerate(index)]


def _tensor(path: Path, entry: dict[str, object]) -> torch.Tensor:
    dtype, shape = getattr(torch, str(entry["dtype"])), entry["shape"]
    assert isinstance(dtype, torch.dtype) and isinstance(shape, list)
    raw = bytearray(path.read_bytes())
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).reshape(shape)

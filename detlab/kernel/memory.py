"""Memory for restored storages, at addresses like those that the call was captured with."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Final

import torch

from detlab.captures.blobs import open_blob
from detlab.captures.values import StorageSpec

_LARGEST_ALIGNMENT: Final = 4096


def read_storage(folder: Path, spec: StorageSpec, alignment: int | None = None) -> torch.UntypedStorage:
    """Read the bytes of a storage into the memory of the CPU.

    Parameters
    ----------
    alignment
        The power of two that shall be the largest, up to 4096, to divide the address; kernels choose their
        code by it. Such a storage cannot be resized. None: where torch puts it, resizable.

    Raises
    ------
    CaptureError
        The file of the bytes is missing, of another size, or no plain file.
    """
    with open_blob(folder, spec) as file:  # before memory is taken: a claimed size is no size
        storage = _allocate(spec.num_bytes, alignment)
        file.readinto((ctypes.c_char * spec.num_bytes).from_address(storage.data_ptr()))
    return storage


def alignment_of(address: int) -> int:
    """Give the largest power of two, up to 4096, that divides an address."""
    return min(address & -address, _LARGEST_ALIGNMENT) or _LARGEST_ALIGNMENT


@cache
def machine_memory() -> int:
    """Give the bytes of this machine's memory; without bound where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**63


def _allocate(size: int, alignment: int | None) -> torch.UntypedStorage:
    plain = torch.UntypedStorage(size)  # type: ignore[no-untyped-call]
    if alignment is None or size == 0 or alignment_of(plain.data_ptr()) == alignment:
        return plain
    del plain
    if not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"{alignment} is no alignment")
    larger = torch.empty(size + 2 * _LARGEST_ALIGNMENT, dtype=torch.uint8).numpy()
    address = larger.ctypes.data
    offset = -address % _LARGEST_ALIGNMENT  # a multiple of 4096: 4096 itself, or the next odd multiple below
    if alignment < _LARGEST_ALIGNMENT:
        offset += alignment
    return torch.frombuffer(larger, dtype=torch.uint8, offset=offset, count=size).untyped_storage()

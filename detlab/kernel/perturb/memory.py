"""Memory as a condition: what fresh memory holds, what the caches hold, where arguments begin."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Final

import torch

from detlab.captures import Capture
from detlab.captures.values import StorageSpec, TensorSpec, leaves
from detlab.kernel.conditions import Condition, Poison
from detlab.kernel.restore import RestoredCall

_BYTE: Final[dict[Poison, int]] = {"nan": 0xFF, "max": 0x7F, "zeros": 0x00}
"""The byte that fills fresh memory: of 0xFF every float is a NaN and every integer -1, of 0x7F every float is
among its largest (a float16 is a NaN) and so is every integer."""

_M_PERTURB: Final = -6  # malloc.h of glibc
_SMALL_BYTES: Final = 4096
_BLOCKS_PER_SIZE: Final = 8
_L2_BYTES_OF_CUDA: Final = 256 << 20  # more than any device has; torch tells the true size of newer ones
_LEAST_CACHE, _MOST_CACHE = 32 << 20, 1 << 30


class MemoryOf:
    """What is done to memory before and during every trial of a condition."""

    def __init__(self, condition: Condition, capture: Capture, call: RestoredCall, device: str) -> None:
        self._condition, self._capture, self._call, self._device = condition, capture, call, device
        self._sizes: tuple[int, ...] = ()
        self._buffer: torch.Tensor | None = None

    def prepare(self) -> None:
        """Bring caches and write-only arguments into the state of the condition, after the reset."""
        if self._condition.caches == "cold":
            self._evict()
        if self._condition.caches == "warm":
            for tensor in self._call.tensors:
                _bytes_of(tensor).sum()
        if self._condition.poison is not None:
            for tensor in write_only(self._capture, self._call.tensors):
                _bytes_of(tensor).fill_(_BYTE[self._condition.poison])

    @contextmanager
    def during(self) -> Iterator[None]:
        """Hold what freshly allocated memory contains while the call is made."""
        poison = self._condition.poison
        with nullcontext() if poison is None else poisoned(poison, self._device, self._sizes):
            yield

    def learn(self, outputs: Iterable[torch.Tensor]) -> None:
        """Remember how large the outputs are, so that small ones are poisoned too."""
        self._sizes = tuple(
            sorted({n for t in outputs if 0 < (n := t.untyped_storage().nbytes()) <= _SMALL_BYTES})
        )

    def _evict(self) -> None:
        if self._buffer is None:
            num_bytes = last_level_cache_bytes(self._device)
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        self._buffer.add_(1)


@contextmanager
def poisoned(poison: Poison, device: str, small: Sequence[int] = ()) -> Iterator[None]:
    """Fill memory that is allocated inside with one byte: outputs and workspaces, and nothing that is read.

    On the CPU glibc's own ``M_PERTURB`` fills every block as it is handed out; blocks small enough to come
    from a cache that it does not reach were filled before and given back. On CUDA the free blocks of torch's
    caching allocator are filled. Memory that holds a value already - arguments that are read, also those that
    are read and mutated, as with ``accumulate`` or ``beta`` - was allocated before and is never touched; only
    ``out=`` arguments that share no memory with another argument are filled too, by `MemoryOf.prepare`.

    Parameters
    ----------
    small
        Sizes in bytes of small blocks that will be asked for.
    """
    byte = _BYTE[poison]
    if device != "cpu":
        _fill_free_blocks(device, byte)
        yield
        return
    blocks = [torch.empty(n, dtype=torch.uint8).fill_(byte) for n in small for _ in range(_BLOCKS_PER_SIZE)]
    del blocks
    set_option = _mallopt()
    set_option(_M_PERTURB, (byte ^ 0xFF) or 0x100)  # glibc fills with the complement; 0 would switch it off
    try:
        yield
    finally:
        set_option(_M_PERTURB, 0)


def can_poison(device: str) -> bool:
    """Say whether fresh memory of a device can be filled here: on a CPU only with glibc."""
    return device != "cpu" or hasattr(ctypes.CDLL(None), "mallopt")


def write_only(capture: Capture, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Give the ``out=`` arguments of an op that share no storage with any other argument."""
    out = _names_of_out(capture)
    pairs = [
        (name, spec)
        for name, value in capture.arguments
        for spec in leaves(value)
        if isinstance(spec, TensorSpec)
    ]
    read = {spec.storage for name, spec in pairs if name not in out}
    return [
        tensor
        for (name, spec), tensor in zip(pairs, tensors, strict=True)
        if name in out and spec.storage not in read
    ]


class OffsetCall(RestoredCall):
    """A restored call whose arguments begin some bytes into larger buffers.

    Another start may choose another code path (vectorised or not). A result that depends on it depends on the
    layout; that is no race.
    """

    offset_bytes: int = 0

    def _storage(self, spec: StorageSpec) -> torch.UntypedStorage:
        exact = super()._storage(spec)
        if self._holds_a_state(spec):
            return exact
        larger = torch.UntypedStorage(exact.nbytes() + self.offset_bytes, device=exact.device)  # type: ignore[no-untyped-call]
        whole = torch.empty(0, dtype=torch.uint8, device=exact.device)
        source = torch.empty(0, dtype=torch.uint8, device=exact.device).set_(exact)
        whole.set_(larger)[self.offset_bytes :].copy_(source)
        return larger

    def _tensor(self, spec: TensorSpec) -> torch.Tensor:
        moved = self.offset_bytes // getattr(torch, spec.dtype).itemsize
        shifted = replace(spec, offset=spec.offset + moved)
        return super()._tensor(shifted)

    def _holds_a_state(self, spec: StorageSpec) -> bool:
        """Say whether it is the state of a generator, which is read by its bytes from the first one on."""
        found = [leaf for _, value in self._capture.arguments for leaf in leaves(value)]
        generators = [leaf for leaf in (*found, *self._capture.generators) if hasattr(leaf, "state")]
        return any(self._capture.storages[generator.state] is spec for generator in generators)


def call_with_offset(offset_bytes: int) -> type[RestoredCall]:
    """Give the class of a call whose arguments begin so many bytes into larger buffers."""
    return type("OffsetCall", (OffsetCall,), {"offset_bytes": offset_bytes}) if offset_bytes else RestoredCall


def last_level_cache_bytes(device: str) -> int:
    """Give how much must be written so that nothing stays in the last-level cache: twice its size."""
    if device != "cpu":
        properties = torch.cuda.get_device_properties(device)
        return 2 * int(getattr(properties, "L2_cache_size", _L2_BYTES_OF_CUDA))
    try:
        size = 2 * os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (ValueError, OSError):
        size = 0
    return min(max(size, _LEAST_CACHE), _MOST_CACHE)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """View the bytes of a tensor's storage, from its first to its last element."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _names_of_out(capture: Capture) -> set[str]:
    try:
        schema = torch._C.parse_schema(capture.schema)
    except RuntimeError:
        return set()  # a Python callable; what it reads is not known
    return {argument.name for argument in schema.arguments if argument.is_out}


@lru_cache(maxsize=1)
def _mallopt() -> Callable[[int, int], int]:
    option: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    return option


def _fill_free_blocks(device: str, byte: int) -> None:
    """Allocate every free block of the caching allocator, largest first, fill it and give it back."""
    index, stream = torch.device(device).index or 0, torch.cuda.current_stream(device).cuda_stream
    free = [
        block["size"]
        for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        if segment["device"] == index and segment["stream"] == stream
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    held = [torch.empty(size, dtype=torch.uint8, device=device) for size in sorted(free, reverse=True)]
    for block in held:
        block.fill_(byte)
    torch.cuda.synchronize(device)

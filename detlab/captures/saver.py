"""Torch objects as values of a capture, their bytes as blobs; `detlab.kernel.restore` is the way back."""

from __future__ import annotations

import ctypes
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detlab.captures.values import GeneratorSpec, StorageSpec, TensorSpec, TorchName, Value
from detlab.errors import CaptureError

if TYPE_CHECKING:
    import torch

_PLAIN_HINT: Final = "capture the call that makes it, or the one that unpacks it into plain tensors"
_MAX_ALIGNMENT: Final = 4096


class Saver:
    """Writes each storage once and describes what refers to it.

    Parameters
    ----------
    folder
        Where the blobs go.

    Attributes
    ----------
    storages
        The storages met so far; the position of each is what tensors name.
    """

    def __init__(self, folder: Path) -> None:
        self.storages: list[StorageSpec] = []
        self._folder = folder
        self._seen: dict[tuple[str, int, int], int] = {}

    def value(self, item: object, place: str) -> Value:
        """Describe one argument; `place` names it in errors."""
        import torch

        if item is None or isinstance(item, bool | int | float | complex | str):
            return item
        if isinstance(item, torch.Tensor):
            return self._tensor(item, place)
        if isinstance(item, torch.Generator):
            return self._generator(item)
        if isinstance(item, list):
            return [self.value(part, place) for part in item]
        if isinstance(item, tuple):
            return tuple(self.value(part, place) for part in item)
        for kind in ("dtype", "layout", "memory_format", "device"):
            if isinstance(item, getattr(torch, kind)):
                return TorchName(kind, str(item).removeprefix("torch."))
        raise CaptureError(
            f"argument {place} is of type {type(item).__name__}, which a file cannot hold.", _PLAIN_HINT
        )

    def default_generators(self, device: str) -> tuple[GeneratorSpec, ...]:
        """Describe the default generator of the CPU and of the call's device."""
        import torch

        found = [self._generator(torch.default_generator)]
        if device.startswith("cuda"):
            index = torch.device(device).index or 0
            found.append(self._generator(torch.cuda.default_generators[index]))
        return tuple(found)

    def _tensor(self, tensor: torch.Tensor, place: str) -> TensorSpec:
        if why := why_not_plain(tensor):
            raise CaptureError(f"argument {place} is {why}.", _PLAIN_HINT)
        return TensorSpec(
            storage=self._storage(tensor.untyped_storage(), place),
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            requires_grad=tensor.requires_grad,
            conj=tensor.is_conj(),
            neg=tensor.is_neg(),
        )

    def _generator(self, generator: torch.Generator) -> GeneratorSpec:
        state = generator.get_state().untyped_storage()
        return GeneratorSpec(str(generator.device), self._append(state))

    def _storage(self, storage: torch.UntypedStorage, place: str) -> int:
        device, start, size = str(storage.device), storage.data_ptr(), storage.nbytes()
        if size == 0:  # no bytes, no aliasing
            return self._append(storage)
        key = (device, start, size)  # the same bytes, also through two storage objects
        if key not in self._seen:
            for other, first, length in self._seen:
                if other == device and first < start + size and start < first + length:
                    raise CaptureError(
                        f"argument {place} overlaps another argument in memory that is not of its storage.",
                        "pass both as views of one tensor",
                    )
            self._seen[key] = self._append(storage)
        return self._seen[key]

    def _append(self, storage: torch.UntypedStorage) -> int:
        address = storage.data_ptr()
        alignment = min(address & -address, _MAX_ALIGNMENT) or _MAX_ALIGNMENT
        blob, size = write_blob(self._folder, storage)
        self.storages.append(StorageSpec(blob, size, str(storage.device), alignment))
        return len(self.storages) - 1


def why_not_plain(tensor: torch.Tensor) -> str:
    """Say what keeps a tensor from being a view of bytes; empty when nothing does."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a {type(tensor).__name__}, which wraps other tensors"
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        kinds = {"quantized": tensor.is_quantized, "nested": tensor.is_nested}
        kind = next(
            (name for name, is_it in kinds.items() if is_it), str(tensor.layout).removeprefix("torch.")
        )
        return f"a {kind} tensor on {tensor.device}"
    storage = tensor.untyped_storage()
    if storage.nbytes() and storage.data_ptr() == 0:
        return "a tensor whose storage has no memory"
    layout = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
    if storage.nbytes() < num_bytes_spanned(*layout, tensor.element_size()):
        return "a tensor that reaches beyond its storage"
    return ""


def num_bytes_spanned(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, item: int) -> int:
    """Count the bytes from the start of a storage to the last one that a tensor of this layout touches."""
    if 0 in shape:
        return 0
    return item * (offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)))


def blob_path(folder: Path, blob: str) -> Path:
    """Name the file of a blob; half of its hash tells any two apart, all of it is checked."""
    return folder / f"{blob[:32]}.bin"


def write_blob(folder: Path, storage: torch.UntypedStorage) -> tuple[str, int]:
    """Write the bytes of a storage, whole or not at all; give their sha256 and number."""
    plain: torch.UntypedStorage = storage.cpu()  # type: ignore[no-untyped-call]  # on the CPU: itself
    size = plain.nbytes()
    raw = (ctypes.c_char * size).from_address(plain.data_ptr()) if size else b""
    blob = hashlib.sha256(raw).hexdigest()
    path = blob_path(folder, blob)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(raw)
    partial.replace(path)
    return blob, size

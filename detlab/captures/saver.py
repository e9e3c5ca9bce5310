"""Torch objects as values of a capture, their bytes as blobs; `detlab.kernel.restore` is the way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detlab.captures.blobs import remove_blobs, write_blob
from detlab.captures.values import GeneratorSpec, StorageSpec, TensorSpec, TorchName, Value
from detlab.errors import CaptureError

if TYPE_CHECKING:
    import torch

_PLAIN_HINT: Final = "capture the call that makes it, or the one that unpacks it into plain tensors"
_MAX_ALIGNMENT: Final = 4096
_CUT: Final = 64
"""Compact captures begin at a multiple of this: no kernel's choice of code looks at larger alignments."""


@dataclass(slots=True)
class _Met:
    """A storage that a value refers to, and the bytes of it that tensors span so far."""

    storage: torch.UntypedStorage
    start: int
    stop: int

    def span(self, start: int, stop: int) -> None:
        self.start, self.stop = min(self.start, start // _CUT * _CUT), max(self.stop, stop)

    def held(self, *, compact: bool) -> tuple[int, int]:
        """Give the first byte to hold and the one after the last."""
        if not compact:
            return 0, self.storage.nbytes()
        return (self.start, self.stop) if self.stop > self.start else (0, 0)


class Saver:
    """Describes values, meeting each storage once, and writes the storages when all are known.

    Parameters
    ----------
    compact
        Hold only the bytes that tensors span, instead of whole storages.
    """

    def __init__(self, *, compact: bool = False) -> None:
        self._compact = compact
        self._met: list[_Met] = []
        self._seen: dict[tuple[str, int, int], int] = {}

    @property
    def devices(self) -> list[str]:
        """Where the storages are."""
        return [str(met.storage.device) for met in self._met]

    def value(self, item: object, place: str) -> Value:
        """Describe one argument; `place` names it in errors."""
        import torch

        if item is None or isinstance(item, bool | int | float | complex | str):
            return item
        if isinstance(item, torch.Tensor):
            return self._tensor(item, place)
        if isinstance(item, torch.Generator):
            return self.generator(item)
        if type(item) in (list, tuple, torch.Size, dict):
            return self._container(item, place)
        for kind in ("dtype", "layout", "memory_format", "device"):
            if isinstance(item, getattr(torch, kind)):
                return TorchName(kind, str(item).removeprefix("torch."))
        if isinstance(item, slice) and all(type(part) in (int, type(None)) for part in _parts(item)):
            return item
        raise CaptureError(
            f"argument {place} is of type {type(item).__name__}, which a file cannot hold.", _PLAIN_HINT
        )

    def _container(self, item: Any, place: str) -> Value:
        if isinstance(item, dict):
            if odd := [name for name in item if type(name) is not str]:
                raise CaptureError(f"argument {place} has the key {odd[0]!r}, which is no text.", _PLAIN_HINT)
            return {name: self.value(part, f"{place}[{name!r}]") for name, part in item.items()}
        parts = [self.value(part, f"{place}[{number}]") for number, part in enumerate(item)]
        return parts if isinstance(item, list) else tuple(parts)

    def default_generators(self, device: str) -> tuple[GeneratorSpec, ...]:
        """Describe the default generator of the CPU and of the call's device."""
        import torch

        found = [self.generator(torch.default_generator)]
        if device.startswith("cuda"):
            index = torch.device(device).index or 0
            found.append(self.generator(torch.cuda.default_generators[index]))
        return tuple(found)

    def generator(self, generator: torch.Generator) -> GeneratorSpec:
        """Describe a random generator."""
        state = generator.get_state().untyped_storage()
        return GeneratorSpec(str(generator.device), self._append(state, whole=True))

    def num_bytes(self, *, compact: bool) -> int:
        """Count the bytes of what was met."""
        ends = [met.held(compact=compact) for met in self._met]
        return sum(stop - start for start, stop in ends)

    def write(self, folder: Path) -> tuple[StorageSpec, ...]:
        """Write a blob for each storage; when that fails or is interrupted none is left behind."""
        written: list[StorageSpec] = []
        try:
            for met in self._met:
                written.append(self._write(folder, met))
        except BaseException:
            remove_blobs(folder, written)
            raise
        return tuple(written)

    def placed(self, value: Value) -> Value:
        """Give a value whose tensors count from the first byte that is held of their storages."""
        match value:
            case list():
                return [self.placed(item) for item in value]
            case tuple():
                return tuple(self.placed(item) for item in value)
            case dict():
                return {name: self.placed(item) for name, item in value.items()}
            case TensorSpec() if self._compact:
                return replace(value, offset=value.offset - self._first_element(value))
        return value

    def _first_element(self, spec: TensorSpec) -> int:
        import torch

        start, _ = self._met[spec.storage].held(compact=True)
        itemsize: int = getattr(torch, spec.dtype).itemsize
        return min(start // itemsize, spec.offset)  # a tensor without elements may lie before all others

    def _write(self, folder: Path, met: _Met) -> StorageSpec:
        import torch

        start, stop = met.held(compact=self._compact)
        empty = torch.empty(0, dtype=torch.uint8, device=met.storage.device)
        held = empty.set_(met.storage, start, (stop - start,), (1,))
        address = held.data_ptr()
        alignment = min(address & -address, _MAX_ALIGNMENT) or _MAX_ALIGNMENT
        plain = held.cpu()  # on the CPU: itself
        blob = write_blob(folder, plain.data_ptr(), stop - start)
        full = met.storage.nbytes()
        return StorageSpec(blob, stop - start, start, full, str(met.storage.device), alignment)

    def _tensor(self, tensor: torch.Tensor, place: str) -> TensorSpec:
        if why := why_not_plain(tensor):
            raise CaptureError(f"argument {place} is {why}.", _PLAIN_HINT)
        shape, stride, offset = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
        index = self._storage(tensor.untyped_storage(), place)
        item = tensor.element_size()
        if stop := num_bytes_spanned(shape, stride, offset, item):
            self._met[index].span(offset * item, stop)
        return TensorSpec(
            storage=index,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=shape,
            stride=stride,
            offset=offset,
            requires_grad=tensor.requires_grad,
            conj=tensor.is_conj(),
            neg=tensor.is_neg(),
        )

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

    def _append(self, storage: torch.UntypedStorage, *, whole: bool = False) -> int:
        size = storage.nbytes()
        self._met.append(_Met(storage, 0, size) if whole else _Met(storage, size // _CUT * _CUT, 0))
        return len(self._met) - 1


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


def _parts(item: slice) -> tuple[object, object, object]:
    return item.start, item.stop, item.step

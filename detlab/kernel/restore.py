"""A captured call made whole again: its tensors, storages and generators, as they were before it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from detlab.captures import Capture
from detlab.captures.blobs import COPY_HINT
from detlab.captures.save import tensor_digests
from detlab.captures.saver import num_bytes_spanned
from detlab.captures.values import GeneratorSpec, StorageSpec, TensorSpec, TorchName, Value, leaves
from detlab.digest import tensor_digest
from detlab.errors import CaptureError
from detlab.kernel.memory import machine_memory, read_storage
from detlab.kernel.modules import ARGUMENTS, ModuleCall
from detlab.kernel.ops import written_arguments


class RestoredCall:
    """A callable and its arguments, ready to be run any number of times from the same bits.

    Parameters
    ----------
    func
        The op, see `detlab.kernel.ops.find_op`, or any callable that takes the captured arguments. It gets
        them by name, or by position where the capture was taken by hand from a call that did so. A captured
        op runs below autograd; a captured Python callable runs with gradients where they were on.
    device
        Where the call runs; what was on the capture's device goes there, everything else stays where it was.

    Raises
    ------
    CaptureError
        A value cannot be restored, or the restored inputs do not hash to the captured digests.
    """

    def __init__(self, capture: Capture, func: Callable[..., Any], device: str) -> None:
        self._capture = capture
        self._func: Callable[..., Any] = _of_module(capture, func) or func
        self._device = device
        self._written = written_arguments(capture)
        self._pristine: dict[int, torch.UntypedStorage] = {}
        try:
            self._resizable = {id(capture.storages[index]) for index in self._indices(self._written)}
            self._storages = [self._storage(spec) for spec in capture.storages]
            self._keep_pristine()
            self.reset()
            found = tensor_digests(self.tensors)
        except (RuntimeError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
            finding = f"The arguments of {capture.path} cannot be restored: {error}"
            raise CaptureError(finding, COPY_HINT) from error
        if found != capture.input_digests:
            raise CaptureError(f"{capture.path} does not restore to its captured digests.", COPY_HINT)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in order."""
        return [tensor for _, _, tensor in self._given]

    def reset(self) -> None:
        """Put back every storage that the call mutates, every generator, and the tensors themselves.

        The tensors are built anew because an op may change shape or strides in place.
        """
        for index, pristine in self._pristine.items():
            if self._storages[index].nbytes() != pristine.nbytes():  # never resize: NumPy may look at it
                size, device = pristine.nbytes(), pristine.device
                self._storages[index] = torch.UntypedStorage(size, device=device)  # type: ignore[no-untyped-call]
            self._storages[index].copy_(pristine)
        self._arguments = {name: self._value(value) for name, value in self._capture.arguments}
        self._given = list(self._tensors())
        for spec in self._capture.generators:
            self._default_generator(spec).set_state(self._state(spec))

    def run(self) -> list[torch.Tensor]:
        """Make the call; give its outputs, then its mutated arguments, each object once.

        Raises
        ------
        CaptureError
            The call raised an error, or gave what has no bits to compare.
        """
        grad = not self._capture.is_op and self._capture.state["grad_mode"]
        values = list(self._arguments.values())
        names = list(self._arguments)
        first = self._capture.num_positional
        try:
            with torch.set_grad_enabled(grad), self._autocast():
                returned = self._func(
                    *values[:first], **dict(zip(names[first:], values[first:], strict=True))
                )
        except Exception as error:
            raise CaptureError(
                f"{self._capture.op} raised {type(error).__name__}: {error}",
                "replay under the conditions of training: its device, its flags, its version of torch",
            ) from error
        found = [self._as_tensor(leaf) for leaf in leaves(returned) if leaf is not None]
        found += [tensor for name, _, tensor in self._given if name in self._written]
        each = {id(tensor): tensor for tensor in found}.values()  # before detach makes new objects
        return [tensor.detach() if tensor.requires_grad else tensor for tensor in each]

    def _autocast(self) -> AbstractContextManager[object]:
        """Give autocast as the Python function was captured with; an op runs below it."""
        name, device = self._capture.state["autocast"], torch.device(self._device).type
        if self._capture.is_op or not name:
            is_on = torch.is_autocast_enabled(device)  # otherwise there is nothing to switch off
            return torch.autocast(device, enabled=False) if is_on else nullcontext()
        return torch.autocast(device, dtype=_torch_object("dtype", name))

    def adopt_silent_writes(self) -> list[str]:
        """Look for arguments that the last run changed though the schema says that it only reads them.

        From here on they are reset before and returned after every run, as declared ones are.

        Returns
        -------
        The names of these arguments, each once.
        """
        pairs = zip(self._given, self._capture.input_digests, strict=True)
        names = [
            name
            for (name, spec, tensor), digest in pairs
            if spec.storage not in self._pristine and tensor_digest(tensor) != digest
        ]
        self._written.update(names)
        self._keep_pristine()
        return list(dict.fromkeys(names))

    def _as_tensor(self, leaf: object) -> torch.Tensor:
        """Give a number as a tensor of its own precision."""
        if isinstance(leaf, torch.Tensor):
            return leaf
        kinds = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
        dtype = kinds.get(type(leaf))
        try:
            if dtype is not None:
                return torch.tensor(leaf, dtype=dtype)
        except RuntimeError:
            pass  # an integer of more than 64 bits
        raise CaptureError(
            f"{self._capture.op} gave a {type(leaf).__name__}, which has no bits to compare.",
            "let the call return tensors, numbers, and lists of them",
        )

    def _keep_pristine(self) -> None:
        for index in self._indices(self._written) - self._pristine.keys():
            self._pristine[index] = self._storage(self._capture.storages[index])

    def _indices(self, names: Collection[str]) -> set[int]:
        """Give the storages that these arguments refer to."""
        values = [value for name, value in self._capture.arguments if name in names]
        return {spec.storage for spec in leaves(values) if isinstance(spec, TensorSpec)}

    def _tensors(self) -> Iterator[tuple[str, TensorSpec, torch.Tensor]]:
        for name, value in self._capture.arguments:
            pairs = zip(leaves(value), leaves(self._arguments[name]), strict=True)
            for spec, tensor in pairs:
                if isinstance(spec, TensorSpec) and isinstance(tensor, torch.Tensor):
                    yield name, spec, tensor

    def _storage(self, spec: StorageSpec) -> torch.UntypedStorage:
        """Read the bytes of a storage; what the call may resize lies where torch puts it."""
        device = self._place(spec.device)
        alignment = spec.alignment if device == "cpu" and id(spec) not in self._resizable else None
        storage = read_storage(self._capture.path, spec, alignment)
        if device == "cpu":
            return storage
        there = torch.UntypedStorage(spec.num_bytes, device=device)  # type: ignore[no-untyped-call]
        return there.copy_(storage)

    def _place(self, device: str) -> str:
        return self._device if device == self._capture.device else device

    def _value(self, value: Value) -> object:
        match value:
            case dict():
                return {name: self._value(item) for name, item in value.items()}
            case list() | tuple():
                items = [self._value(item) for item in value]
                return items if isinstance(value, list) else tuple(items)
        return self._leaf(value)

    def _leaf(self, value: Value) -> object:
        match value:
            case TensorSpec():
                return self._tensor(value)
            case GeneratorSpec():
                return torch.Generator(self._generator_device(value)).set_state(self._state(value))
            case TorchName("device", name):
                return torch.device(self._place(name))
            case TorchName(kind, name):
                return _torch_object(kind, name)
        return value

    def _tensor(self, spec: TensorSpec) -> torch.Tensor:
        storage, dtype = self._storages[spec.storage], _torch_object("dtype", spec.dtype)
        if num_bytes_spanned(spec.shape, spec.stride, spec.offset, dtype.itemsize) > storage.nbytes():
            raise TypeError(f"a {spec.dtype} tensor of shape {spec.shape} is larger than its storage")
        if (size := math.prod(spec.shape) * dtype.itemsize) > machine_memory():
            raise TypeError(f"a tensor of {size:,} bytes is more than this machine's memory")
        with warnings.catch_warnings(action="ignore"):  # torch warns of complex32 as if we had chosen it
            empty = torch.empty(0, dtype=dtype, device=storage.device)
        tensor = empty.set_(storage, spec.offset, spec.shape, spec.stride)
        if spec.conj:
            tensor = tensor.conj()
        if spec.neg:
            tensor = torch._neg_view(tensor)
        needs_grad = spec.requires_grad and not self._capture.is_op
        return tensor.detach().requires_grad_() if needs_grad else tensor

    def _state(self, spec: GeneratorSpec) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8).set_(self._storages[spec.state])

    def _default_generator(self, spec: GeneratorSpec) -> torch.Generator:
        device = self._generator_device(spec)
        if device.type == "cpu":
            return torch.default_generator
        return torch.cuda.default_generators[device.index or 0]

    def _generator_device(self, spec: GeneratorSpec) -> torch.device:
        device = torch.device(self._place(spec.device))
        if device.type != torch.device(spec.device).type:
            raise TypeError(
                f"it draws from a generator on {spec.device}, whose state cannot move to {device}"
            )
        return device


def _of_module(capture: Capture, func: object) -> ModuleCall | None:
    """Give the call of a module where forward and backward of one were captured and a module is given."""
    names = tuple(name for name, _ in capture.arguments)
    if not isinstance(func, torch.nn.Module) or capture.is_op or names != ARGUMENTS:
        return None
    return ModuleCall(func)


def _torch_object(kind: str, name: str) -> Any:
    found = vars(torch).get(name)  # getattr would import parts of torch by their name
    if not isinstance(found, getattr(torch, kind)):  # one of four kinds that `decode` lets through
        raise TypeError(f"torch has no {kind} {name!r}")
    return found

"""Where two results of one call first differ, bit by bit, and how far they lie apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.digest import plain_cpu_bytes
from detlab.kernel.differences import ulp_distance

_COMPONENT: Final = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
_PACKED: Final = (torch.float4_e2m1fn_x2,)  # two values a byte: their bits are shown, no distance is told


@dataclass(frozen=True, slots=True)
class Difference:
    """Two results that are not the same bits.

    Attributes
    ----------
    index
        The first element that differs, in row-major order.
    first, other
        That element in both results, written so that the two texts differ.
    ulp, max_ulp
        Distance of that element, and the largest of all, in units in the last place; None where it is no
        float or a NaN.
    num_elements, of_elements
        How many elements differ, of how many.
    """

    index: tuple[int, ...]
    first: str
    other: str
    ulp: int | None
    max_ulp: int | None
    num_elements: int
    of_elements: int

    def __str__(self) -> str:
        place = f"element [{', '.join(map(str, self.index))}]" if self.index else "the one element"
        text = f"{place} is {self.other} and was {self.first}{_apart(self.ulp)}"
        farthest = f", by up to {self.max_ulp:,} ULP" if self.max_ulp is not None else ""
        return f"{text}; {self.num_elements:,} of {self.of_elements:,} elements differ{farthest}"


def plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Give a contiguous copy on the CPU that no later write reaches."""
    return plain_cpu_bytes(tensor.detach()).clone(memory_format=torch.contiguous_format)


def find_difference(first: torch.Tensor, other: torch.Tensor) -> Difference | str | None:
    """Compare two contiguous CPU tensors bit by bit.

    Returns
    -------
    None when they are the same bits; a sentence when dtype or shape differ already.
    """
    if (first.dtype, first.shape) != (other.dtype, other.shape):
        return f"it is {tensor_text(other)} and was {tensor_text(first)}"
    a, b = _bytes(first), _bytes(other)
    places = np.flatnonzero((a != b).any(axis=1))
    if not places.size:
        return None
    distances = _distances(a[places], b[places], first.dtype)
    known = [distance for distance in distances if distance is not None]
    index = tuple(int(i) for i in np.unravel_index(places[0], first.shape))
    was, now = (_element_text(tensor, int(places[0])) for tensor in (first, other))
    if was == now:  # payloads of NaN, packed values
        was, now = (f"{was} (0x{raw[places[0]][::-1].tobytes().hex()})" for raw in (a, b))
    farthest = max(known, default=None)
    return Difference(index, was, now, distances[0], farthest, places.size, first.numel())


def tensor_text(tensor: torch.Tensor) -> str:
    """Write dtype and shape, for example ``float32[2, 3]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """Give the bytes of each element, one row an element."""
    raw: NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return raw.reshape(tensor.numel(), tensor.element_size())


def _distances(a: NDArray[Any], b: NDArray[Any], dtype: torch.dtype) -> list[int | None]:
    """Count the ULP between each two elements; of a complex one the larger of its parts."""
    component = _COMPONENT.get(dtype, dtype)
    if not component.is_floating_point or component in _PACKED:
        return [None] * len(a)
    x, y = (torch.from_numpy(raw.reshape(-1).copy()).view(component) for raw in (a, b))
    steps = ulp_distance(x, y).astype(object).reshape(len(a), -1)
    is_nan = (torch.isnan(x.double()) | torch.isnan(y.double())).numpy().reshape(steps.shape)
    return [None if nan.any() else int(max(row)) for row, nan in zip(steps, is_nan, strict=True)]


def _element_text(tensor: torch.Tensor, position: int) -> str:
    if tensor.dtype in _PACKED:
        return "a packed pair"
    return repr(tensor.reshape(-1)[position].item())


def _apart(ulp: int | None) -> str:
    if ulp is None:
        return ""
    return f", {ulp:,} ULP apart" if ulp else ", another sign of zero"

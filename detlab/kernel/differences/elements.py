"""Some of the elements that differ most, by their index and as text that loses no bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.kernel.differences.bits import PACKED, words
from detlab.kernel.differences.measured import Pairs, same_nan

MAX_ELEMENTS: Final = 20
"""How many elements a report keeps of one output."""

_FARTHEST: Final = np.iinfo(np.uint64).max


@dataclass(frozen=True, slots=True)
class Element:
    """One element that differs.

    Attributes
    ----------
    index
        Where it stands in the output, one number an axis.
    first, other
        Its value in the first result and in the one farthest from it; text, since JSON knows no NaN.
    ulp
        Their distance, of a complex element that of the farther part; None for a NaN or a dtype that is no
        float.
    """

    index: tuple[int, ...]
    first: str
    other: str
    ulp: int | None


class Elements:
    """The elements that differ most so far: first those with a NaN, then by their distance in ULP."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Element]] = {}

    def add(
        self,
        first: torch.Tensor,
        other: torch.Tensor,
        at: NDArray[np.intp],
        start: int,
        pairs: Pairs | None = None,
    ) -> None:
        """Take in the elements at some positions of a piece of the output that begins at `start`."""
        rank = np.zeros(at.size, dtype=np.uint64) if pairs is None else _rank(pairs, at.size)
        for i in _largest(rank):
            place, far = start + int(at[i]), int(rank[i])
            if place not in self._known or self._known[place][0] < far:
                ulp = far if pairs is not None and far != _FARTHEST else None
                a, b = (_text(tensor, int(at[i])) for tensor in (first, other))
                self._known[place] = (far, Element((place,), a, b, ulp))
        kept = sorted(self._known.items(), key=lambda item: (-item[1][0], item[0]))
        self._known = dict(kept[:MAX_ELEMENTS])

    def of_shape(self, shape: tuple[int, ...]) -> tuple[Element, ...]:
        """Give them with their index in an output of that shape, those that differ most first."""
        found = []
        for place, (_, element) in self._known.items():
            index = tuple(int(i) for i in np.unravel_index(place, shape))
            found.append(Element(index, element.first, element.other, element.ulp))
        return tuple(found)


def _rank(pairs: Pairs, num_elements: int) -> NDArray[np.uint64]:
    """Give the distance of each element, of a complex one that of its farther part; a NaN is farthest."""
    far = np.where(pairs.is_number | same_nan(pairs), pairs.ulp, _FARTHEST).astype(np.uint64)
    found: NDArray[np.uint64] = far.reshape(num_elements, -1).max(axis=1)
    return found


def _largest(rank: NDArray[np.uint64]) -> list[int]:
    """Give the positions of the largest, of equal ones those in front."""
    if rank.size > MAX_ELEMENTS:
        least = np.partition(rank, rank.size - MAX_ELEMENTS)[rank.size - MAX_ELEMENTS]
        above, equal = np.flatnonzero(rank > least), np.flatnonzero(rank == least)
        return [*above.tolist(), *equal[: MAX_ELEMENTS - above.size].tolist()]
    return list(range(rank.size))


def _text(tensor: torch.Tensor, place: int) -> str:
    """Write one element so that it can be read back to the same number."""
    if tensor.dtype in (torch.float32, torch.float16):
        return str(tensor[place].numpy()[()])
    if tensor.dtype in PACKED:
        return f"0x{int(words(tensor)[place, 0]):02x}"
    return repr(tensor[place].item())

"""The bytes of a first result, kept to compare others with: in memory, or when they are many in a file."""

from __future__ import annotations

import io
import tempfile
import weakref
from collections.abc import Iterator
from typing import Final

import torch

_MAX_IN_MEMORY: Final = 64 << 20  # a copy of a larger output would be most of what a replay takes
_CHUNK_BYTES: Final = 16 << 20


class FirstResult:
    """A copy of a contiguous CPU tensor that is compared with others piece by piece.

    Above 64 MB it lies in a file without a name, so that a replay of large tensors does not need one
    more of them in memory; where no file can be written, it is kept in memory all the same.
    """

    def __init__(self, plain: torch.Tensor) -> None:
        self.shape, self.dtype = plain.shape, plain.dtype
        self._item = plain.element_size()
        self._memory: torch.Tensor | None = None
        self._file: io.FileIO | None = None
        if plain.numel() * self._item > _MAX_IN_MEMORY:
            self._file = _written(plain)
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        else:
            self._memory = plain.reshape(-1).clone()

    def beside(self, plain: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Give the first result and another of its shape and dtype, piece by piece.

        Yields
        ------
        The flattened index of the first element of the piece, the piece of the first result, of the other.
        """
        flat, step = plain.reshape(-1), max(_CHUNK_BYTES // self._item, 1)
        if self._file is not None:
            self._file.seek(0)
        for start in range(0, flat.numel(), step):
            piece = flat[start : start + step]
            yield start, self._piece(start, piece.numel()), piece

    def _piece(self, start: int, number: int) -> torch.Tensor:
        if self._memory is not None:
            return self._memory[start : start + number]
        piece = torch.empty(number * self._item, dtype=torch.uint8)
        if self._file is None or self._file.readinto(piece.numpy().data) != piece.numel():
            raise OSError("the file that holds the first result was cut")
        return piece.view(self.dtype)


def _written(plain: torch.Tensor) -> io.FileIO | None:
    """Write the bytes of a tensor to a file without a name; None where that cannot be done."""
    raw = plain.reshape(-1).view(torch.uint8).numpy().data
    try:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as what it holds
    except OSError:
        return None
    try:
        written = 0
        while written < raw.nbytes:
            written += file.write(raw[written : written + _CHUNK_BYTES])
    except OSError:
        file.close()
        return None
    return file

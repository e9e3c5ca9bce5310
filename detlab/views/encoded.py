"""Write numbers so small that a page can carry them: a map of 48 million cells in some ten kilobytes.

The other half, which reads them in a browser, is ``static/offline.js``.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_RUNS: Final = 400_000
"""A map of more stretches than this does not shrink to anything that a page should carry."""

_FEW_RUNS: Final = 5_000  # a map of so few stretches is small whatever they are counted from
_SAMPLE: Final = 15  # rows whose middle is taken for what is usual in a column
_VARINT_BITS: Final = 7


def encode_plane(plane: NDArray[np.uint8]) -> bytes | None:
    """Write a map losslessly, as what each row changes in the row before it, or in one row for all.

    The row before suits ranks that differ alike; one row for all suits cells that differ alone, which the
    row after them would have to change back.

    Parameters
    ----------
    plane
        Any numbers of one byte, by row and column.

    Returns
    -------
    zlib over varints: 1 for the row before, or 0 where one row for all stands before the others; the number
    of stretches of equal changes, how many unchanged cells stand before each of them, and the length of each;
    then one byte for each, which changes its cells (exclusive or). None for more than `MAX_RUNS` stretches.
    """
    follows = plane.copy()
    follows[1:] ^= plane[:-1]
    best, kind = _stretches(follows), 1
    if best is None or len(best.lengths) > _FEW_RUNS:
        usual = _usual_row(plane)
        alone = _stretches(np.vstack([usual, plane ^ usual]))
        if alone and (best is None or len(alone.lengths) < len(best.lengths)):
            best, kind = alone, 0
    if best is None:
        return None
    numbers = varints([kind, len(best.skips)]) + varints(best.skips) + varints(best.lengths)
    return zlib.compress(numbers + best.values.tobytes(), 9)


class _Stretches(NamedTuple):
    """Stretches of equal cells that are not 0: how many 0 stand before each, its length, its value."""

    skips: NDArray[np.int64]
    lengths: NDArray[np.int64]
    values: NDArray[np.uint8]


def _stretches(changes: NDArray[np.uint8]) -> _Stretches | None:
    """Find the stretches; None for more than `MAX_RUNS`."""
    flat = np.ascontiguousarray(changes).ravel()
    if np.count_nonzero(flat[1:] != flat[:-1]) > 2 * MAX_RUNS:
        return None
    cells, values = _nonzero(flat)
    begins = np.ones(len(cells), bool)
    begins[1:] = (np.diff(cells) != 1) | (values[1:] != values[:-1])
    firsts = np.flatnonzero(begins)
    lengths = np.diff(np.append(firsts, len(cells)))
    skips = np.diff(cells[firsts], prepend=0)
    skips[1:] -= lengths[:-1]
    return _Stretches(skips, lengths, values[firsts]) if len(firsts) <= MAX_RUNS else None


def _usual_row(plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Give the middle of the cells of some rows, by column: what most rows have, wherever most agree."""
    some = plane[np.linspace(0, len(plane) - 1, min(len(plane), _SAMPLE)).astype(int)]
    usual: NDArray[np.uint8] = np.sort(some, axis=0)[len(some) // 2][None]
    return usual


def _nonzero(flat: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Find the cells that are not 0, eight at a time: nearly all of a map repeats the row before."""
    whole = len(flat) // 8 * 8
    words = np.flatnonzero(flat[:whole].view(np.uint64))
    near = (words[:, None] * 8 + np.arange(8)).ravel()
    near = np.append(near, np.arange(whole, len(flat)))
    cells = near[flat[near] != 0]
    return cells, flat[cells]


def varints(numbers: Any) -> bytes:
    """Write whole numbers from 0 on, seven bits a byte, the low ones first; the last byte has no high bit."""
    left = np.asarray(numbers, np.uint64)
    sizes = np.ones(len(left), np.int64)
    for bits in range(_VARINT_BITS, 64, _VARINT_BITS):
        sizes += left >= np.uint64(1 << bits)
    stops = np.cumsum(sizes)
    out = np.zeros(int(stops[-1]) if len(stops) else 0, np.uint8)
    for byte in range(int(sizes.max(initial=0))):
        here = np.flatnonzero(sizes > byte)
        more = np.where(sizes[here] > byte + 1, np.uint64(128), np.uint64(0))
        shifted = left[here] >> np.uint64(byte * _VARINT_BITS)
        out[stops[here] - sizes[here] + byte] = shifted & np.uint64(127) | more
    return out.tobytes()


def encode_numbers(numbers: NDArray[Any]) -> bytes:
    """Write whole numbers of any sign, as what each changes in the one before."""
    steps = np.diff(numbers.astype(np.int64).ravel(), prepend=0)
    return zlib.compress(varints(np.where(steps < 0, -2 * steps - 1, 2 * steps)), 9)


def encode_text(text: str) -> bytes:
    """Write text, UTF-8 and deflated."""
    return zlib.compress(text.encode("utf-8", "backslashreplace"), 9)


def as_base64(content: bytes) -> str:
    """Write bytes as a page can hold them."""
    return b64encode(content).decode("ascii")

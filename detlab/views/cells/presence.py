"""Which verdicts a cell of many calls holds, a bit each: hiding the worst of them uncovers the next.

A cell that is one call holds its code. A cell of many holds *presence*: 0 where no call was recorded, else
bit *v* for each `Verdict` *v* among its calls, shown as the code of the highest bit that is not hidden. Both
forms agree on 0 and 1, so that cells without a divergence need no look.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.schema import Verdict
from detlab.views.pooling import MATCH, Codes

_BITS: Final = bytes(1 << code >> 1 for code in range(2 + max(Verdict))).ljust(256, b"\0")
"""Presence of a single call, by its code."""


def presence_of(codes: Codes) -> NDArray[np.uint8]:
    """Give the presence of each call alone."""
    return _translate(codes, _BITS)


@lru_cache(maxsize=256)
def table_of(hidden: tuple[int, ...], is_presence: bool) -> bytes | None:
    """Give the code that each value of a cell is shown as; None where that is the value.

    Parameters
    ----------
    hidden
        Codes that are shown as matches.
    is_presence
        Whether cells hold presence, not codes.
    """
    if not is_presence:
        return bytes(MATCH if value in hidden else value for value in range(256)) if hidden else None
    kept = ~sum(1 << code >> 1 for code in hidden)
    return bytes((value & kept | MATCH).bit_length() if value else 0 for value in range(256))


def shown_as(cells: NDArray[np.uint8], table: bytes | None) -> Codes:
    """Give what cells are shown as."""
    return cells if table is None or cells.max(initial=0) <= MATCH else _translate(cells, table)


def hide(codes: Codes, hidden: Sequence[int]) -> Codes:
    """Give codes of single calls with some of them as matches."""
    return shown_as(codes, table_of(tuple(hidden), False))


def _translate(values: NDArray[np.uint8], table: bytes) -> NDArray[np.uint8]:
    """Replace each value: bytes.translate is faster than an index of 8 bits, which numpy widens first."""
    return np.frombuffer(values.tobytes().translate(table), np.uint8).reshape(values.shape)

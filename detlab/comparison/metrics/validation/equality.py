"""Whether two results of one calculation are the same: by their bits, or as far as they were printed."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

Value = float | str | None
"""An exact number, a printed text, or nothing."""


def are_equal(a: Value, b: Value, tolerance: float | None = None) -> bool | None:
    """Say whether two results are equal: a float by its bits, a text by the number that was printed.

    Parameters
    ----------
    a, b
        A float is exact, a text was printed; None: not known.
    tolerance
        Greatest relative difference of equal numbers, in place of that.

    Returns
    -------
    None when one of them is not known. NaN equals NaN whatever its bits; a text that is no number equals
    itself alone; a text and an exact number are equal when the one is the other, rounded.
    """
    if a is None or b is None:
        return None
    x, y = _number(a), _number(b)
    if x is None or y is None:
        return a == b
    if tolerance is not None:
        return _near(x, y, tolerance)
    if isinstance(a, str) != isinstance(b, str) and math.isfinite(x) and math.isfinite(y):
        text, exact = (a, y) if isinstance(a, str) else (b, x)
        return abs(Decimal(exact) - Decimal(text)) * 2 <= _unit(str(text))
    return _bits(x) == _bits(y)


def _number(value: float | str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def _near(x: float, y: float, tolerance: float) -> bool:
    """Compare as Megatron does: NaN and infinities equal themselves alone, others by relative difference."""
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    if not (math.isfinite(x) and math.isfinite(y)) or x == -y:
        return False
    return abs((x - y) / (x + y) * 2) <= tolerance


def _unit(text: str) -> Decimal:
    """Give one unit of the last printed digit."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent)

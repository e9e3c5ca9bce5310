"""What the bytes of each dtype mean: their size, and their values as float64 for sizes of differences."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

ITEM_SIZE: Final = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes of one element; a dtype that is not here (quantised, sub-byte) is unreadable."""

_FLOAT8: Final = {
    "float8_e4m3fn": (4, 7, "fn"), "float8_e4m3fnuz": (4, 8, "fnuz"),
    "float8_e5m2": (5, 15, "ieee"), "float8_e5m2fnuz": (5, 16, "fnuz"),
}  # fmt: skip
"""Bits of the exponent, its bias, and how NaN and infinity are written (OCP 8-bit floating point, and the
"fnuz" kind of arXiv:2206.02915)."""


def as_float64(raw: Array, dtype: str) -> Array | None:
    """Give the values of elements as float64 (of complex numbers: complex128), or None where none are known.

    Parameters
    ----------
    raw
        Bytes of whole elements: shape (num_bytes,), uint8, contiguous.
    dtype
        One of `ITEM_SIZE`.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return _converted(raw, dtype)


def _converted(raw: Array, dtype: str) -> Array | None:
    if dtype == "bfloat16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "complex32":
        return raw.view(np.float16).astype(np.float64).view(np.complex128)
    if dtype in _FLOAT8 or dtype == "float8_e8m0fnu":
        return _float8_values(dtype)[raw]
    if dtype == "float4_e2m1fn_x2":
        return None
    kind = np.complex128 if dtype.startswith("complex") else np.float64
    return raw.view(np.uint8 if dtype == "bool" else dtype).astype(kind)


@lru_cache
def _float8_values(dtype: str) -> Array:
    """Give the 256 values of an 8-bit float."""
    if dtype == "float8_e8m0fnu":  # a power of two alone; 0xFF is NaN
        return np.array([*(2.0 ** (code - 127) for code in range(255)), np.nan])
    return np.array([_float8(code, *_FLOAT8[dtype]) for code in range(256)])


def _float8(code: int, exponent_bits: int, bias: int, kind: str) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    fraction_bits = 7 - exponent_bits
    exponent, fraction = (code & 0x7F) >> fraction_bits, code & ((1 << fraction_bits) - 1)
    if kind == "fnuz" and code == 0x80:
        return np.nan
    if kind == "fn" and code & 0x7F == 0x7F:
        return np.nan
    if kind == "ieee" and exponent == (1 << exponent_bits) - 1:
        return np.nan if fraction else sign * np.inf
    if exponent == 0:
        return float(sign * fraction * 2.0 ** (1 - bias - fraction_bits))
    return float(sign * (1 + fraction / (1 << fraction_bits)) * 2.0 ** (exponent - bias))

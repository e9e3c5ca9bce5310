"""Which matrix product a call of a trace is, and which a line of cuBLASLt's log is, in words of both."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

from detlab.schema import Meta, TensorMeta

OPS: Final[dict[str, int]] = {
    "mm": 0, "_int_mm": 0, "addmm": 1, "_addmm_activation": 1, "bmm": 0, "baddbmm": 1, "linear": 0,
    "matmul": 0, "_scaled_mm": 0,
}  # fmt: skip
"""Ops of torch that a matrix product computes, and where their first operand stands among the tensors."""

_DTYPES: Final = {
    "R_64F": "float64", "R_32F": "float32", "R_16F": "float16", "R_16BF": "bfloat16",
    "R_8F_E4M3": "float8_e4m3fn", "R_8F_E5M2": "float8_e5m2", "R_8I": "int8", "R_32I": "int32",
    "C_32F": "complex64", "C_64F": "complex128",
}  # fmt: skip

_SIZES: Final = re.compile(r"^m=(\d+) n=(\d+) k=(\d+) (\w+);")
_TYPES: Final = re.compile(r"; ([ABD])=(\w+)")
_BATCH: Final = re.compile(r"batch\w*count=(\d+)", re.IGNORECASE)


class Product(NamedTuple):
    """A matrix product as both a trace and a library can tell it.

    A library that counts columns first computes the transpose, so which of its sizes is the number of rows
    does not tell them apart, nor which operand comes first.
    """

    small: int
    large: int
    k: int
    batch: int
    dtypes: tuple[str, ...]
    made: str

    def __str__(self) -> str:
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        dtypes = " and ".join(dict.fromkeys(self.dtypes))
        return f"{self.small}x{self.large} with k={self.k}{batch} of {dtypes}"

    @property
    def is_deep(self) -> bool:
        """Whether m and n are small beside k: there libraries split the sum along k to fill the device."""
        return self.k >= 2 * self.large


def is_product(op: str) -> bool:
    """Say whether an op of a trace is a matrix product."""
    return _base(op) in OPS


def _base(op: str) -> str:
    parts = op.replace("::", ".").split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "aten" else parts[0]


def of_call(op: str, meta: Meta) -> Product | None:
    """Give the product that a call computes; None where its tensors do not tell."""
    first = OPS.get(_base(op))
    if first is None or len(meta.inputs) < first + 2 or not meta.outputs:
        return None
    left, right = meta.inputs[first], meta.inputs[first + 1]
    sizes = _linear(left, right) if _base(op) == "linear" else _plain(left, right)
    if sizes is None:
        return None
    m, n, k, batch = sizes
    dtypes = tuple(sorted((left.dtype, right.dtype)))
    return Product(min(m, n), max(m, n), k, batch, dtypes, meta.outputs[0].dtype)


def _plain(left: TensorMeta, right: TensorMeta) -> tuple[int, int, int, int] | None:
    a, b = left.shape, right.shape
    if len(a) != len(b) or len(a) not in (2, 3) or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    return a[-2], b[-1], a[-1], prod(a[:-2])


def _linear(left: TensorMeta, weight: TensorMeta) -> tuple[int, int, int, int] | None:
    a, w = left.shape, weight.shape
    if len(w) != 2 or not a or a[-1] != w[-1]:
        return None
    return prod(a[:-1]), w[0], a[-1], 1


def layout_of_call(op: str, meta: Meta) -> str:
    """Give the layout that a library sees which counts columns first, such as ``TN``.

    The operands change places, and one that is stored row by row is there not transposed. Empty where the
    strides do not tell.
    """
    first = OPS.get(_base(op), 0)
    letters = [_stored(each) for each in meta.inputs[first : first + 2]]
    if _base(op) == "linear" and len(letters) == 2:
        letters[1] = {"N": "T", "T": "N"}.get(letters[1], "")
    return f"{letters[1]}{letters[0]}" if len(letters) == 2 and all(letters) else ""


def _stored(tensor: TensorMeta) -> str:
    if len(tensor.stride) != len(tensor.shape) or len(tensor.shape) < 2:
        return ""
    if tensor.stride[-1] == 1:
        return "N"
    return "T" if tensor.stride[-2] == 1 else ""


@lru_cache(maxsize=16_384)
def of_problem(problem: str) -> tuple[Product, str] | None:
    """Give the product, and its layout, that the text of a problem of cuBLASLt tells."""
    sizes = _SIZES.match(problem)
    types: dict[str, str] = dict(_TYPES.findall(problem))
    if sizes is None or {"A", "B", "D"} - types.keys():
        return None
    m, n, k = (int(each[:18]) for each in sizes.groups()[:3])
    batch = max([int(each[:18]) for each in _BATCH.findall(problem)], default=1)
    named: dict[str, str] = {name: _DTYPES.get(text, text) for name, text in types.items()}
    dtypes = tuple(sorted((named["A"], named["B"])))
    return Product(min(m, n), max(m, n), k, batch, dtypes, named["D"]), sizes[4]


def short_problem(problem: str) -> str:
    """Write a problem of cuBLASLt by its sizes, layout and dtypes; any other as it is."""
    sizes, types = _SIZES.match(problem), dict.fromkeys(each[1] for each in _TYPES.findall(problem))
    return f"{sizes[0].rstrip(';')} of {' and '.join(types)}" if sizes and types else problem

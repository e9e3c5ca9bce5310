"""Which numbers of several runs can be the same one: by their bits, or by as many digits as were printed."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.readers.metrics.frame import METRIC_STATES

NOT_RUN, EXACT, PRINTED = 0, 20, 21
"""Kinds of cells beside the states: the run has no number; its bits are known; its printed digits are."""

_STATES: Final = {name: number for number, name in enumerate(METRIC_STATES, 1)}

_BY_BITS, _BY_DIGITS, _MAYBE_NOT_POSITIVE = -100_000, 100_000, 1
"""Precisions beside the exponent of the last digit: exact; this and the number of significant digits, where a
metric was always printed with as many; and that of an absent number that can be zero, negative or NaN."""

_ROUNDING: Final = 4 * float(np.finfo(np.float64).eps)
"""Share of a number by which its distance to another one may be wrong: decimal fractions are not exact."""

CELL: Final = np.dtype(
    [("kind", "u1"), ("precision", "i4"), ("key", "u8"), ("size", "f8"), ("apart", "f8")]
)  # fmt: skip
"""A number of one run at one place: its kind, its precision (of two numbers of one precision, other keys are
other numbers), its bits, its size, and how far apart neighbouring numbers are that can be written like it."""


def cells_of(points: pl.DataFrame) -> NDArray[np.void]:
    """Say of each number of one run what tells it from other numbers.

    Parameters
    ----------
    points
        ``name``, ``value``, ``width``, ``resolution``, ``state`` and ``vague``, one row per number.
    """
    state = pl.col("state").cast(pl.String)
    as_bits = pl.col("value").reinterpret(dtype=pl.UInt64)
    is_number = state.is_in(["value", "zero"])
    known = pl.when(pl.col("width") > 0).then(EXACT).otherwise(PRINTED)
    kind = pl.when(is_number).then(known).otherwise(state.replace_strict(_STATES, return_dtype=pl.Int32))
    key = pl.when(is_number | (state == "inf")).then(as_bits)
    told = points.select(
        "value", "vague", kind=kind, key=key.fill_null(0),
        apart=pl.when(kind == PRINTED).then("resolution").fill_null(0),
        precision=_significant_digits().over("name") + _BY_DIGITS,
    )  # fmt: skip
    cells = np.zeros(len(points), CELL)
    for field in ("kind", "key", "apart"):
        cells[field] = told[field]
    printed, exact = (cells["kind"] == kind for kind in (PRINTED, EXACT))
    cells["size"] = np.where(printed | exact, told["value"].fill_null(0).to_numpy(), 0)
    unit = told.select(pl.when(pl.col("apart") > 0).then(pl.col("apart").log10().round())).to_series()
    digits = told["precision"].fill_null(unit).fill_null(0).to_numpy()
    vague = told["vague"].to_numpy()
    cells["precision"] = np.select([exact, printed, vague], [_BY_BITS, digits, _MAYBE_NOT_POSITIVE], 0)
    return cells


def _significant_digits() -> pl.Expr:
    """Give the number of significant digits of a metric that was always printed with as many; else null.

    Then 9.99 and 10.0 were written alike and are two numbers, though 9.99 rounds to 10.0.
    """
    size = pl.col("value").abs()
    usable = (pl.col("width") == 0) & (size > 0) & size.is_finite() & (pl.col("resolution") > 0)
    leading = (size.log10() + 1e-12).floor()  # the logarithm of a power of ten may fall short of it
    digits = pl.when(usable).then(leading - pl.col("resolution").log10().round() + 1)
    return pl.when(digits.min() == digits.max()).then(digits.max())


def drop_unknown(cells: NDArray[np.void]) -> None:
    """Take out, in place, absent numbers that may be zero, negative or NaN where another run has one."""
    maybe = (cells["kind"] == _STATES["absent"]) & (cells["precision"] == _MAYBE_NOT_POSITIVE)
    if maybe.any():
        such = (cells["kind"] == _STATES["nan"]) | ((cells["kind"] >= EXACT) & (cells["size"] <= 0))
        cells["kind"][maybe & such.any(axis=1, keepdims=True)] = NOT_RUN


def same(a: NDArray[np.void], b: NDArray[np.void]) -> NDArray[np.bool_]:
    """Say where two runs have equal numbers of one precision, or the same state."""
    return np.asarray((a["kind"] == b["kind"]) & (a["key"] == b["key"]) & (a["kind"] != NOT_RUN))


def of_several_precisions(cells: NDArray[np.void]) -> NDArray[np.bool_]:
    """Say at which places (rows) runs have numbers of more than one precision."""
    numbers = cells["kind"] >= EXACT
    low = np.where(numbers, cells["precision"], np.iinfo(np.int32).max).min(axis=1)
    high = np.where(numbers, cells["precision"], np.iinfo(np.int32).min).max(axis=1)
    return np.asarray(low < high)


def fit(cells: NDArray[np.void]) -> NDArray[np.bool_]:
    """Say which pairs of runs can have the same number at some places: one number, written in two ways.

    Parameters
    ----------
    cells
        Places by runs.

    Returns
    -------
    Places by runs by runs.
    """
    a, b = cells[:, :, None], cells[:, None, :]
    numbers = (a["kind"] >= EXACT) & (b["kind"] >= EXACT)
    printed = (a["kind"] == PRINTED) & (b["kind"] == PRINTED)
    alike = (a["precision"] == b["precision"]) | (printed & (a["apart"] == b["apart"]))
    slack = _ROUNDING * np.maximum(np.abs(a["size"]), np.abs(b["size"]))
    near = np.abs(a["size"] - b["size"]) <= (a["apart"] + b["apart"]) / 2 + slack
    return np.asarray(np.where(numbers & ~alike, near, same(a, b)))


def groups_of(fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Keep the pairs of runs that are in one group: those that fit, of runs whose fitting runs all do.

    A run that fits two which do not fit each other is in no group, not even its own. What is left is an
    equivalence relation.
    """
    counts = fits.astype(np.float32)
    triangles = np.einsum("pij,pij->pi", counts @ counts, counts)
    decided = triangles == counts.sum(axis=2) ** 2
    return np.asarray(fits & decided[:, :, None] & decided[:, None, :])

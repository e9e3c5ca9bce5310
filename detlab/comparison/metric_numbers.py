"""Which numbers of several runs can be the same one: by their bits, or by as many digits as were printed."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.metrics.precision import changes_format
from detlab.readers.metrics.frame import METRIC_STATES

NOT_RUN, EXACT, PRINTED = 0, 20, 21
"""Kinds of cells beside the states: the run has no number; its bits are known; its printed digits are."""

_STATES: Final = {name: number for number, name in enumerate(METRIC_STATES, 1)}

_NO_FORMAT, _BY_BITS, _MAYBE_NOT_POSITIVE = -10_000, -10_001, 1
"""In place of digits or of an exponent: the format has none; the number is exact; and for an absent number
that it can be zero, negative or NaN."""

_ROUNDING: Final = 4 * float(np.finfo(np.float64).eps)
"""Share of a number by which its distance to another one may be wrong: decimal fractions are not exact."""

CELL: Final = np.dtype(
    [("kind", "u1"), ("digits", "i2"), ("last", "i2"), ("key", "u8"), ("size", "f8"), ("apart", "f8")]
)
"""A number of one run at one place: its kind; the number of significant digits and the exponent of the last
digit that its metric is always printed with; its bits; its size; how far apart neighbours in print are."""


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
        apart=pl.when(kind == PRINTED).then("resolution").fill_null(0), **_formats(),
    )  # fmt: skip
    cells = np.zeros(len(points), CELL)
    for field in ("kind", "key", "apart"):
        cells[field] = told[field]
    printed, exact = (cells["kind"] == kind for kind in (PRINTED, EXACT))
    cells["size"] = np.where(printed | exact, told["value"].fill_null(0).to_numpy(), 0)
    for field in ("digits", "last"):
        shown = told[field].cast(pl.Int32).fill_null(_NO_FORMAT).to_numpy()
        cells[field] = np.select([exact, printed], [_BY_BITS, shown], 0)
    cells["digits"][told["vague"].to_numpy()] = _MAYBE_NOT_POSITIVE
    return cells


def _formats() -> dict[str, pl.Expr]:
    """Give the number of significant digits of a metric that was always printed with as many, else null.

    Then 9.99 and 10.0 were written alike and are two numbers, though 9.99 rounds to 10.0. And give the
    exponent of its last digit; null where that changes while the number of digits does not. Where both
    change, the format drops trailing zeros: 2.5 and 2.51 were written alike.
    """
    size, unit = pl.col("value").abs(), pl.col("resolution")
    usable = (pl.col("width") == 0) & (unit > 0)
    exponent = pl.when(usable).then(unit.log10().round())
    leading = (size.log10() + 1e-12).floor()  # the logarithm of a power of ten may fall short of it
    digits = pl.when(usable & (size > 0) & size.is_finite()).then(leading - exponent + 1)
    is_constant = digits.min().over("name") == digits.max().over("name")
    changes = exponent.min().over("name") < exponent.max().over("name")
    return {
        "digits": pl.when(is_constant).then(digits.max().over("name")),
        "last": pl.when(~(is_constant & changes).fill_null(False)).then(
            pl.when(changes_format("name")).then(exponent).otherwise(exponent.min().over("name"))
        ),
    }


def drop_unknown(cells: NDArray[np.void]) -> None:
    """Take out, in place, absent numbers that may be zero, negative or NaN where another run has one."""
    maybe = (cells["kind"] == _STATES["absent"]) & (cells["digits"] == _MAYBE_NOT_POSITIVE)
    if maybe.any():
        such = (cells["kind"] == _STATES["nan"]) | ((cells["kind"] >= EXACT) & (cells["size"] <= 0))
        cells["kind"][maybe & such.any(axis=1, keepdims=True)] = NOT_RUN


def same(a: NDArray[np.void], b: NDArray[np.void]) -> NDArray[np.bool_]:
    """Say where two runs have equal numbers of one format, or the same state."""
    return np.asarray((a["kind"] == b["kind"]) & (a["key"] == b["key"]) & (a["kind"] != NOT_RUN))


def of_several_formats(cells: NDArray[np.void]) -> NDArray[np.bool_]:
    """Say at which places (rows) runs have numbers that were not all written alike."""
    numbers = cells["kind"] >= EXACT
    alike = np.zeros(len(cells), bool)
    for field in ("digits", "last"):
        low = np.where(numbers, cells[field], np.iinfo(np.int16).max).min(axis=1)
        high = np.where(numbers, cells[field], np.iinfo(np.int16).min).max(axis=1)
        alike |= (low >= high) & (low != _NO_FORMAT)
    return ~alike


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
    alike = printed & (a["apart"] == b["apart"])
    for field in ("digits", "last"):
        alike |= (a[field] == b[field]) & (a[field] != _NO_FORMAT)
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

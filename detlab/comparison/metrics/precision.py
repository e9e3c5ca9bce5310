"""Judge two numbers by what each can prove: bits where they are known, printed digits where they are not."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

OUTCOMES: Final = (
    "bit-equal",
    "equal as printed",
    "differs",
    "state differs",
    "unknown",
    "only in a",
    "only in b",
)
"""Bits known and equal; no difference at the printed precision; not the same number; one is a number and
the other NaN, infinite, skipped or not printed; a number that was not printed and may be the other, or means
over other steps; and where one run has no number."""

DIFFERENT: Final = ("differs", "state differs")
COMPARED: Final = OUTCOMES[:4]

_LOST: Final = 4
"""So many trailing zeros may be lost in a few numbers, and more in many."""

_ROUNDING: Final = 4 * float(np.finfo(np.float64).eps)


def judge(pairs: pl.DataFrame) -> pl.DataFrame:
    """Say of each pair of numbers whether they are the same.

    Numbers whose bits are known are equal when their bits are; one of 32 and one of 64 bits when the wider
    is the narrower. Printed numbers of one format are equal when their texts say the same. In other cases
    each printed number stands for all that are nearer to it than to its neighbours, and two are equal as
    printed when one number can be both.

    Parameters
    ----------
    pairs
        As from `pairs.pair_runs`.

    Returns
    -------
    The pairs with ``outcome`` (Enum of `OUTCOMES`), ``exact`` (whether the bits of both are known),
    ``resolution`` (the coarser one; null: both exact), ``resolution_ulp`` (the same in units in the last
    place of a float32 of that size; null for zero), ``difference`` (b minus a), ``relative`` (its size
    relative to the larger of both), ``ulp`` (distance in units in the last place, from one representable
    number to the next, where both are exact and differ; in the width of both, but 32 where all exact numbers
    of a metric are of 32 bits, whatever they were stored in, and where one of the two is).
    """
    judged = pairs.with_columns(
        outcome=_outcome(), exact=_exact(), resolution=pl.max_horizontal("resolution_a", "resolution_b")
    )
    both = pl.col("value_a").is_finite() & pl.col("value_b").is_finite()
    difference = pl.when(both).then(pl.col("value_b") - pl.col("value_a"))
    larger = pl.max_horizontal(pl.col("value_a").abs(), pl.col("value_b").abs())
    judged = judged.with_columns(
        difference=difference,
        relative=pl.when(larger > 0).then(difference.abs() / larger).otherwise(difference.abs()),
        resolution_ulp=pl.Series(_resolution_ulp(judged), nan_to_null=True),
    )
    return _with_ulp(judged)


def _exact() -> pl.Expr:
    return ((pl.col("width_a") > 0) & (pl.col("width_b") > 0)).fill_null(False)


def _said(outcome: str) -> pl.Expr:
    return pl.lit(outcome, pl.Enum(OUTCOMES))


def _outcome() -> pl.Expr:
    state_a, state_b = pl.col("state_a"), pl.col("state_b")
    numbers = state_a.is_in(["value", "zero"]) & state_b.is_in(["value", "zero"])
    return (
        pl.when(state_b.is_null())
        .then(_said("only in a"))
        .when(state_a.is_null())
        .then(_said("only in b"))
        .when(_may_be_the_same())
        .then(_said("unknown"))
        .when(~numbers & (state_a != state_b))
        .then(_said("state differs"))
        .when(_exact())
        .then(pl.when(_same_bits()).then(_said("bit-equal")).otherwise(_said("differs")))
        .when(pl.when(numbers).then(_same_text()).otherwise(_same_sign()))
        .then(_said("equal as printed"))
        .otherwise(_said("differs"))
    )


def _may_be_the_same() -> pl.Expr:
    """Say where a number that was not printed, because it is not above zero, stands against such a one."""
    sides = [
        pl.col(f"vague_{one}") & ((pl.col(f"state_{other}") == "nan") | (pl.col(f"value_{other}") <= 0))
        for one, other in (("a", "b"), ("b", "a"))
    ]
    return pl.any_horizontal(sides).fill_null(False)


def _wide(name: str) -> pl.Expr:
    return pl.col(name).reinterpret(dtype=pl.UInt64)


def _same_bits() -> pl.Expr:
    one_width = pl.col("width_a") == pl.col("width_b")
    as_they_are = pl.col("bits_a") == pl.col("bits_b")
    return pl.when(one_width).then(as_they_are).otherwise(_wide("value_a") == _wide("value_b"))


def _same_sign() -> pl.Expr:
    """Compare two infinities; NaN, skipped and absent have no sign that is known."""
    infinite = pl.col("state_a") == "inf"
    return pl.when(infinite).then(pl.col("value_a") == pl.col("value_b")).otherwise(pl.lit(True))


def _same_text() -> pl.Expr:
    """Compare two numbers of which one at least is known as text only."""
    printed = (pl.col("width_a") == 0) & (pl.col("width_b") == 0)
    digits = [significant_digits(f"value_{run}", f"resolution_{run}") for run in "ab"]
    one_format = pl.any_horizontal(
        pl.col("resolution_a") == pl.col("resolution_b"),
        digits[0] == digits[1],
        pl.col("finest_a") == pl.col("finest_b"),
    ).fill_null(False)
    same = _wide("value_a") == _wide("value_b")
    a, b = pl.col("value_a"), pl.col("value_b")
    reach = (pl.col("resolution_a").fill_null(0) + pl.col("resolution_b").fill_null(0)) / 2
    slack = _ROUNDING * pl.max_horizontal(a.abs(), b.abs())  # decimal fractions are not exact in binary
    return pl.when(printed & one_format).then(same).otherwise((a - b).abs() <= reach + slack)


def significant_digits(value: str, resolution: str) -> pl.Expr:
    """Count the digits that a number was printed with, leading zeros left out; null for zero."""
    size, unit = pl.col(value).abs(), pl.col(resolution)
    known = (size > 0) & (unit > 0)
    leading = (size.log10() + 1e-12).floor()  # the logarithm of a power of ten may fall short of it
    return pl.when(known).then((leading - unit.log10().round() + 1).cast(pl.Int32, strict=False))


def changes_format(name: str | None = None) -> pl.Expr:
    """Say of the printed numbers of a metric whether their format changed on the way, as after an upgrade.

    Numbers with fewer decimals than others may have lost trailing zeros: one in ten loses one. More of them,
    or a zero that stands, show that these were printed with fewer. For ``value`` and ``resolution``, of one
    metric or over each ``name``.
    """
    value, unit = pl.col("value"), pl.col("resolution")
    usable = (pl.col("width") == 0) & (unit > 0) & (value != 0) & value.is_finite()
    exponent = pl.when(usable).then(unit.log10().round())
    is_zero = (
        usable & ((value / unit).round() % 10 == 0) & ((exponent < -1) | (value != value.round()))
    ).any()
    low, total, num = exponent.min(), exponent.sum(), exponent.count()
    if name is not None:
        is_zero, low, total, num = (each.over(name) for each in (is_zero, low, total, num))
    return ((total - low * num > 0) & (is_zero | (total - low * num > _LOST + num / 4))).fill_null(False)


def _resolution_ulp(judged: pl.DataFrame) -> NDArray[np.float64]:
    unit = judged["resolution"].to_numpy()
    larger = judged.select(pl.max_horizontal(pl.col("value_a").abs(), pl.col("value_b").abs())).to_series()
    size = larger.to_numpy()
    known = np.isfinite(unit) & np.isfinite(size) & (size > 0) & (size < np.finfo(np.float32).max)
    ulps = np.full(len(unit), np.nan)
    ulps[known] = unit[known] / np.spacing(size[known].astype(np.float32)).astype(np.float64)
    return ulps


def _with_ulp(judged: pl.DataFrame) -> pl.DataFrame:
    """Measure the exact numbers that differ; for all others there is nothing to count."""
    places = judged.select(((pl.col("outcome") == "differs") & pl.col("exact")).arg_true()).to_series()
    ulps = np.full(len(judged), np.nan)
    rows = judged.select("name", "value_a", "value_b", "width_a", "width_b")[places]
    if len(rows):
        names = narrow_names(judged)
        narrow = rows.select(
            pl.col("name").is_in(names.implode()) | (pl.min_horizontal("width_a", "width_b") == 32)
        )
        mixed = rows["width_a"].to_numpy() != rows["width_b"].to_numpy()
        ulps[places.to_numpy()] = ulp_distance(
            rows["value_a"].to_numpy(), rows["value_b"].to_numpy(), narrow.to_series().to_numpy(), mixed
        )
    return judged.with_columns(ulp=pl.Series(ulps, nan_to_null=True))


def narrow_names(judged: pl.DataFrame) -> pl.Series:
    """List the metrics of which every exact number, in both runs, is a number of 32 bits."""
    sides = [
        judged.select("name", value=pl.when(pl.col(f"width_{run}") > 0).then(f"value_{run}")) for run in "ab"
    ]
    value = pl.col("value")
    held = value.cast(pl.Float32).cast(pl.Float64) == value
    fits = pl.concat(sides).group_by("name").agg(fits=held.filter(value.is_finite()).all())
    return fits.filter("fits")["name"]


def ulp_distance(
    a: NDArray[np.float64], b: NDArray[np.float64], narrow: NDArray[np.bool_], mixed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Count the steps from one representable number to the next between a and b: none from 0.0 to -0.0.

    Parameters
    ----------
    a, b
        Numbers.
    narrow
        Whether to count in float32 (else in float64).
    mixed
        Whether one of the two is no float32: the distance is then a fraction of float32's spacing.

    Returns
    -------
    The distance; NaN where either is not finite.
    """
    with np.errstate(all="ignore"):
        a32, b32 = a.astype(np.float32), b.astype(np.float32)
        wide = _apart(_ordered(a.view(np.int64)), _ordered(b.view(np.int64)))
        near = _apart(_ordered(a32.view(np.int32)), _ordered(b32.view(np.int32)))
        spacing = np.spacing(np.maximum(np.abs(a32), np.abs(b32))).astype(np.float64)
        fraction = np.abs(a - b) / spacing
    distance = np.where(narrow, np.where(mixed, fraction, near), wide)
    return np.where(np.isfinite(a) & np.isfinite(b), distance, np.nan)


def _ordered(bits: NDArray[Any]) -> NDArray[np.int64]:
    """Give each representable number its place in their order, 0.0 and -0.0 the same one."""
    magnitude = (bits & np.iinfo(bits.dtype).max).astype(np.int64)
    return np.where(bits < 0, -magnitude, magnitude)


def _apart(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
    """Subtract without an overflow: two numbers of different signs may be 2**64 apart."""
    one_sign = (a < 0) == (b < 0)
    exact = np.abs(np.where(one_sign, a - b, 0)).astype(np.float64)
    return np.where(one_sign, exact, np.abs(a.astype(np.float64)) + np.abs(b.astype(np.float64)))

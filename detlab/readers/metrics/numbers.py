"""Numbers as text: whether they are floats written to their last bit, or rounded ones."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.readers.metrics.frame import exact_metrics, join_metrics, printed_metrics, ten_to

_ENOUGH_BITS: Final = 20.0
"""How much likelier, as a power of two, numbers must be as 32-bit floats than as rounded ones."""

_ODD_BITS: Final = 10.0
"""How unlikely, as a power of two, it is that somebody rounds to 16 significant digits."""


def native_width(texts: pl.Series) -> int | None:
    """Say which floats the numbers of one metric are, when each of them was written to its last bit.

    A float is written to its last bit as the shortest text that only it is nearest to, or with 17
    significant digits and more. Any short text is that of some float, so that one number shows nothing;
    many do: rounded numbers lie on a grid of decimals (or of significant digits), and floats on a grid of
    binary digits, and numbers that all lie on both are likelier to be of the *coarser* one, by the ratio of
    the spacings for each different number. 32-bit floats may be written as such (``8.29681``) or as the
    64-bit float of the same value (``8.296810150146484``). With 20 bits of likelihood asked for, rounded
    numbers pass for exact ones in fewer than one metric of a million. 32-bit floats may have been rounded
    too, so that none of their bits may be lost on the grid of rounded numbers.

    Parameters
    ----------
    texts
        The numbers of one metric as they were written. What is no finite number does not count.

    Returns
    -------
    32 or 64: every number is a float of that width written to its last bit. 0: they are rounded, or too
    few to tell. None: nothing shows, because all are whole numbers.
    """
    known = _taken_apart(texts)
    telling = known.filter(pl.col("value") != pl.col("value").round())
    if not len(telling):
        return None
    digits = int(telling["digits"].max())  # type: ignore[arg-type]
    written = known["shortest64"] | ((known["digits"] >= 16) & (digits >= 17))
    values = telling["value"].to_numpy()
    if known["shortest32"].all() or (written & (known["value"] == known["narrow"])).all():
        spacing = np.abs(np.spacing(values.astype(np.float32))).astype(np.float64)
        if _loses_nothing(telling, spacing) and _likelihood_bits(telling, spacing) >= _ENOUGH_BITS:
            return 32
    if digits < 16 or not written.all():
        return 0
    exact = digits >= 17 or _likelihood_bits(telling, np.abs(np.spacing(values))) >= -_ODD_BITS
    return 64 if exact else 0


def may_be_cut(texts: pl.Series) -> bool:
    """Say whether the last number of a metric, which no line end follows, may go on in the whole file.

    It cannot where it is a float to its last bit by itself, or has as many decimals as any of the others.
    """
    last = texts[-1].lower()
    if last.endswith(("nan", "inf", "infinity")):
        return False
    width = native_width(texts[-1:])
    if width:
        return width == 64 and int(_taken_apart(texts[-1:])["digits"][0]) < 17
    others = texts[:-1].str.to_lowercase()
    decimals = others.str.extract(r"\.([0-9]+)$").str.len_bytes().max()
    rounded = native_width(others) == 0 and not others.str.contains("e").any()
    return not (rounded and len(last.partition(".")[2]) == decimals)


def written_metrics(fields: pl.DataFrame) -> pl.DataFrame:
    """Make metrics of numbers in a file whose writer may or may not have rounded them.

    Parameters
    ----------
    fields
        ``step``, ``name``, ``text`` (the number as written) and any of the optional columns of the frame.
        A row whose text is no number is left out.

    Returns
    -------
    The columns of `METRIC_SCHEMA`, in the order of the rows: for each metric exact numbers where
    `native_width` finds that they are, else printed ones. NaN and infinity are printed ones.
    """
    return metrics_of_width(fields, native_widths(fields))


def native_widths(fields: pl.DataFrame) -> dict[str, int]:
    """Give the width of each metric of a file by its name: 32, 64, or 0 for rounded or too few to tell.

    Whole numbers are as exact as the other metrics of the file if none of these is rounded.

    Parameters
    ----------
    fields
        As `written_metrics` takes it.
    """
    found: dict[str, int | None] = {
        str(name): native_width(rows["text"])
        for (name,), rows in fields.group_by("name", maintain_order=True)
    }
    shown = [width for width in found.values() if width is not None]
    others = max(shown) if shown and min(shown) > 0 else 0
    return {name: others if width is None else width for name, width in found.items()}


def metrics_of_width(fields: pl.DataFrame, widths: dict[str, int]) -> pl.DataFrame:
    """Make metrics of written numbers whose width is known: 32, 64, or 0 for printed.

    Parameters
    ----------
    fields
        As `written_metrics` takes it.
    widths
        The width of each metric by its name.

    Returns
    -------
    The columns of `METRIC_SCHEMA`, in the order of the rows.
    """
    if not len(fields):
        return join_metrics([])
    read = fields.with_columns(
        value=_number(pl.Float64),
        width=pl.col("name").cast(pl.String).replace_strict(widths, return_dtype=pl.UInt8),
        at=pl.int_range(pl.len()),
    ).filter(pl.col("value").is_not_null())
    read = read.with_columns(width=pl.when(pl.col("value").is_finite()).then("width").otherwise(0))
    by_width = {width: read.filter(pl.col("width") == width) for width in (0, 32, 64)}
    narrow = by_width[32].with_columns(value=_number(pl.Float32).cast(pl.Float64))
    order = np.argsort(pl.concat([rows["at"] for rows in by_width.values()]).to_numpy(), kind="stable")
    parts = [_rounded(by_width[0]), exact_metrics(narrow, width=32), exact_metrics(by_width[64])]
    return join_metrics(parts)[order]


def _rounded(rows: pl.DataFrame) -> pl.DataFrame:
    """Make printed metrics whose resolution is that of the metric, since a writer may drop trailing zeros.

    It is the last of as many decimals, or of as many significant digits, as any number of the metric has:
    whichever is coarser over all of them. Of whole numbers without a decimal point, each is exact.
    """
    value, text = pl.col("value"), pl.col("text").str.to_lowercase()
    numbers = rows.select(
        "name",
        "value",
        decimals=_decimals(text).max().over("name"),
        digits=_digits(text).max().over("name"),
        rounded=value.is_finite() & ~_is_whole(text).all().over("name"),
    )
    size = pl.when(value != 0).then(value.abs().log10().floor()).cast(pl.Int64, strict=False)
    by_digits = size - pl.col("digits") + 1
    by_decimals = pl.when(value != 0).then(-pl.col("decimals"))
    coarser = (by_decimals.sum() >= by_digits.sum()).over("name")
    power = pl.when(coarser).then(-pl.col("decimals")).otherwise(by_digits).fill_null(-pl.col("decimals"))
    known = numbers.select("rounded", unit=ten_to(power))
    metrics = printed_metrics(rows)
    return metrics.with_columns(
        width=pl.when(known["rounded"]).then(pl.lit(0, pl.UInt8)).otherwise("width"),
        bits=pl.when(~known["rounded"]).then("bits"),
        resolution=pl.when(known["rounded"]).then(known["unit"]).otherwise("resolution"),
    )


def _number(kind: Any) -> pl.Expr:
    return pl.col("text").str.replace_all(",", "", literal=True).cast(kind, strict=False)


def _taken_apart(texts: pl.Series) -> pl.DataFrame:
    """Give, of each different finite number but zero, what its text shows.

    Returns
    -------
    ``value``, ``narrow`` (nearest 32-bit float), ``decimals`` and ``digits`` (significant ones) as written,
    ``shortest32`` and ``shortest64``: the text is the shortest of such a float.
    """
    frame = pl.DataFrame({"text": texts.cast(pl.String).unique(maintain_order=True)}).with_columns(
        value=_number(pl.Float64), narrow=_number(pl.Float32)
    )
    frame = frame.filter(pl.col("value").is_finite() & (pl.col("value") != 0))
    text = pl.col("text").str.to_lowercase()
    padded = text.str.contains(r"\.[0-9]*0(e|$)") & ~text.str.contains(r"\.0(e|$)")
    shortest = [
        (_significant(text) == _significant(pl.col(column).cast(pl.String).str.to_lowercase())) & ~padded
        for column in ("narrow", "value")
    ]
    return frame.select(
        "value",
        pl.col("narrow").cast(pl.Float64),
        decimals=_decimals(text),
        digits=_digits(text),
        shortest32=shortest[0],
        shortest64=shortest[1],
    )


def _decimals(text: pl.Expr) -> pl.Expr:
    fraction = text.str.extract(r"\.([0-9]*)").str.len_bytes().cast(pl.Int64).fill_null(0)
    return fraction - text.str.extract(r"e([-+]?[0-9]+)").cast(pl.Int64).fill_null(0)


def _digits(text: pl.Expr) -> pl.Expr:
    """Count significant digits, with trailing zeros."""
    return _mantissa(text).str.strip_chars_start("0").str.len_bytes().cast(pl.Int64)


def _is_whole(text: pl.Expr) -> pl.Expr:
    return ~text.str.contains(r"[.e]|nan|inf")


def _mantissa(text: pl.Expr) -> pl.Expr:
    return text.str.replace(r"e.*$", "").str.replace_all(r"[^0-9]", "")


def _significant(text: pl.Expr) -> pl.Expr:
    return _mantissa(text).str.strip_chars("0")


def _grids(numbers: pl.DataFrame) -> tuple[float, NDArray[np.float64]]:
    """Give the last place of a rounded number as a power of ten: by decimals, and of each by its digits."""
    digits = float(numbers["digits"].max())  # type: ignore[arg-type]
    sizes = np.floor(np.log10(np.abs(numbers["value"].to_numpy())))
    return -float(numbers["decimals"].max()), sizes - digits + 1  # type: ignore[arg-type]


def _likelihood_bits(numbers: pl.DataFrame, spacing: NDArray[np.float64]) -> float:
    """Say how much likelier numbers are as floats than as rounded ones, as a power of two."""
    by_decimals, by_digits = _grids(numbers)
    rounded = max(by_decimals * len(by_digits), float(np.sum(by_digits)))
    return float(np.sum(np.log2(spacing)) - rounded * np.log2(10))


def _loses_nothing(numbers: pl.DataFrame, spacing: NDArray[np.float64]) -> bool:
    """Say whether no two floats were rounded to one number."""
    by_decimals, by_digits = _grids(numbers)
    return bool(np.all(np.maximum(by_decimals, by_digits) <= np.log10(spacing)))

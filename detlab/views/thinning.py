"""Fewer points of a long curve, such that none of its extremes is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

BUCKETS: Final = 1_000
"""As many as a figure has pixels in its width, about."""


def thin(frame: pl.DataFrame, columns: Sequence[str], num_buckets: int = BUCKETS) -> pl.DataFrame:
    """Keep of each of many equal stretches the lowest and the highest row of every column.

    Parameters
    ----------
    frame
        Rows in the order in which they are drawn.
    columns
        Numbers; null, NaN and infinity are no extremes.
    num_buckets
        Number of stretches.

    Returns
    -------
    Rows of the frame in their order: the first and the last, two at most of each stretch for each column, and
    the first of each stretch at which a column is not a finite number, so that a gap stays one. All, where
    they are not more than that.
    """
    size = -(-len(frame) // num_buckets)
    if size <= 2:
        return frame
    kept = [np.array([0, len(frame) - 1])]
    for name in columns:
        values = frame[name].to_numpy().astype(np.float64)
        kept += [_extremes(values, size, sign) for sign in (1.0, -1.0)] + [_gaps(values, size)]
    return frame[np.unique(np.concatenate(kept))]


def _in_buckets(values: NDArray[np.float64], size: int, fill: float) -> NDArray[np.float64]:
    padded = np.full(-(-len(values) // size) * size, fill)
    padded[: len(values)] = values
    return padded.reshape(-1, size)


def _extremes(values: NDArray[np.float64], size: int, sign: float) -> NDArray[np.int64]:
    """Give the place of the highest value of each stretch that has any; of the lowest for a negative sign."""
    known = np.where(np.isfinite(values), sign * values, -np.inf)
    buckets = _in_buckets(known, size, -np.inf)
    places = buckets.argmax(axis=1)
    has = np.isfinite(buckets[np.arange(len(buckets)), places])
    rows: NDArray[np.int64] = (np.arange(len(buckets)) * size + places)[has]
    return rows


def _gaps(values: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Give the place of the first value of each stretch that is not a finite number."""
    buckets = _in_buckets((~np.isfinite(values)).astype(np.float64), size, 0.0)
    places = buckets.argmax(axis=1)
    has = buckets[np.arange(len(buckets)), places] > 0
    rows: NDArray[np.int64] = (np.arange(len(buckets)) * size + places)[has]
    return rows

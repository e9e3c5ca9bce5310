"""The band of a record: what the records before it make likely, and how far a spike is above that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from detlab.comparison.metrics.spikes.series import Floats, Series

WINDOW: Final = 64
"""How many records before a record make its band: medians and MAD, which a few outliers do not move."""
ENOUGH: Final = 8
"""With fewer records before it a record has no band, and is judged by its size alone."""
TRIGGER_MADS: Final = 10.0
"""A spike has a record so many MADs (in units of a standard deviation) above the level, and more in a short
window, whose MAD is uncertain. With noise like a Gaussian or a Laplace distribution this is passed by chance
in one of some 10,000 records at most (Gaussian: none in millions), with tails like Student's t of three
degrees of freedom in one of 1,500."""
BAND_MADS: Final = 4.0
"""Above so many it is out of the band: where a spike begins, and below which it has recovered."""
_LEAST_RISE: Final = {False: 0.05, True: math.log(1.5)}
"""A loss 5 % and a norm half above its level are in the band however quiet the curve is."""
_FEW_POINTS_RISE: Final = {False: 0.30, True: math.log(5.0)}
"""With few records before it a loss that rises by 30 %, or a norm to five times, is a jump."""
_LONE_RISE: Final = 0.50
"""The same for a loss with one or two records before it, which say nothing of its noise."""
_SIGMA: Final = 1.4826
"""A standard deviation in MADs, for Gaussian noise."""


@dataclass(frozen=True, slots=True)
class Band:
    """What the records before one say of it: their level, and the height that noise does not reach."""

    level: float
    mad: float
    top: float


def band_of(series: Series, index: int) -> Band:
    """Give the band of a record, of the records before it."""
    levels, mads = level_of(series.values[None, max(0, index - WINDOW) : index])
    level, mad = float(levels[0]), float(mads[0])
    least = float(least_rise(series, levels)[0])
    return Band(level, mad, level + max(BAND_MADS * mad, least, series.resolution))


def least_rise(series: Series, level: Floats) -> Floats:
    """Give the rise over each level that is in the band however quiet the curve is."""
    least = _LEAST_RISE[series.is_log]
    return np.full_like(level, least) if series.is_log else np.abs(level) * least


def level_of(windows: Floats) -> tuple[Floats, Floats]:
    """Give the level at the end of each window, and the MAD around its drift.

    The drift is the line through the medians of both halves. The level is the median of the later half; of
    a curve that rises, where that line arrives.
    """
    size = windows.shape[1]
    half = size // 2
    early, late = np.median(windows[:, :half], axis=1), np.median(windows[:, size - half :], axis=1)
    slope = (late - early) / (size - half)
    middle = size - (half + 1) / 2
    drifted = windows - slope[:, None] * (np.arange(size) - middle)
    center = np.median(drifted, axis=1)
    mad = np.median(np.abs(drifted - center[:, None]), axis=1) * _SIGMA
    return late + np.maximum(slope, 0) * (size - middle), mad


def needed_mads(num_before: int) -> float:
    """Give the MADs that a trigger needs: twice as many where the MAD rests on eight records."""
    return TRIGGER_MADS * (1 + ENOUGH / num_before)


def mad_of(series: Series, band: Band) -> float:
    """Give what heights are measured in: the MAD, but no less than a printed digit or a thousandth."""
    least = 1e-3 * (1.0 if series.is_log else abs(band.level))
    return max(band.mad, series.resolution / 2, least, 1e-300)


def few_points_rise(series: Series, base: float, num_before: int) -> float:
    """Give the rise that is a jump; a loss around zero has no size to hold it against."""
    if series.is_log:
        return _FEW_POINTS_RISE[True]
    share = _FEW_POINTS_RISE[False] if num_before > 2 else _LONE_RISE
    return share * base if base > 0 else math.inf

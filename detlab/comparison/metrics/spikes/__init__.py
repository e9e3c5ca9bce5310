"""Spikes: where a loss or a norm leaves, upwards, the band of the records before it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from detlab.comparison.metrics.spikes.bands import (
    ENOUGH,
    WINDOW,
    Band,
    band_of,
    few_points_rise,
    least_rise,
    level_of,
    mad_of,
    needed_mads,
)
from detlab.comparison.metrics.spikes.series import Floats, Ints, Series, series_of

_ONSET_SHARE: Final = 0.05
"""With few points a climb begins where it has made this share of its height."""
_FEW: Final = 3
_JUMP_NOISES: Final = 4.0
"""With few points a jump is so many times what the curve goes back and forth."""
STAY: Final = 8
"""A metric has recovered when so many records, or all that follow, are back in the band."""
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Excursion:
    """One metric out of its band.

    Attributes
    ----------
    name, rank, segment
        The metric.
    onset, peak, recovery
        Steps: the first record out of the band, the highest, and the first from which it stays back in it;
        recovery None: it does not.
    rise
        Step at which the stretch out of the band begins that leads to the peak without a break.
    before
        Step of the last record before the onset.
    last
        Step of the last record that belongs to it, as far as is known.
    base, top
        Level of the records before, and the highest value, in the unit of the metric.
    height
        Of the peak over the level, in MADs scaled to standard deviations; None with few points.
    num_before
        Number of records before the onset that the band rests on.
    latest, end
        Where it does not recover: the last value, and the step of that record; else None.
    """

    name: str
    rank: int | None
    segment: int
    onset: int
    peak: int
    recovery: int | None
    rise: int
    before: int
    last: int
    base: float
    top: float
    height: float | None
    num_before: int
    latest: float | None = None
    end: int | None = None

    @property
    def has_few_points(self) -> bool:
        """Whether it was found by the size of a jump alone."""
        return self.height is None


def find_spikes(metrics: pl.DataFrame) -> list[Excursion]:
    """Find where losses and norms spike.

    Only what came before a record judges it, so that a spike does not hide itself; a curve that falls or
    rises slowly stays in its band. Spikes are upwards. The first record after a restart is none by itself:
    it averages over fewer steps. Skipped steps have no values.

    Parameters
    ----------
    metrics
        Columns of `METRIC_SCHEMA`.

    Returns
    -------
    In the order of segments and onsets.
    """
    found = [each for series in series_of(metrics, WINDOW) for each in _excursions(series)]
    return sorted(found, key=lambda each: (each.segment, each.onset))


def _excursions(series: Series) -> Iterator[Excursion]:
    at = series.start
    triggers = _triggers(series)
    while True:
        place = np.searchsorted(triggers, at)
        if place == len(triggers):
            return
        found, at = _follow(series, int(triggers[place]))
        if found is not None:
            yield found


def _triggers(series: Series) -> Ints:
    """List the indices of records that are far above what came before them, ascending."""
    values = series.values
    early = min(WINDOW, len(values))
    first = [i for i in range(1, early) if (_jumps(series, i) if i < ENOUGH else _is_far(series, i))]
    median = pl.Series(values).rolling_median(WINDOW // 2).shift(1).fill_null(np.inf).to_numpy()
    maybe = np.flatnonzero(values - median > least_rise(series, median))
    maybe = maybe[maybe >= WINDOW]
    later = [_far_above(series, maybe[at : at + _CHUNK]) for at in range(0, len(maybe), _CHUNK)]
    return np.concatenate([np.array(first, np.int64), *later])


def _far_above(series: Series, indices: Ints) -> Ints:
    """Keep the records that are so many MADs above the level of the records before them."""
    level, mad = level_of(sliding_window_view(series.values, WINDOW)[indices - WINDOW])
    rise = series.values[indices] - level
    high = rise > needed_mads(WINDOW) * np.maximum(mad, series.resolution / 2)
    return indices[high & (rise > least_rise(series, level))]


def _is_far(series: Series, index: int) -> bool:
    band = band_of(series, index)
    needed = max(needed_mads(index) * max(band.mad, series.resolution / 2), band.top - band.level)
    return bool(series.values[index] - band.level > needed)


def _jumps(series: Series, index: int) -> bool:
    """Say whether a record with few before it is high above the last three of them, and above their noise."""
    before = series.values[:index] if index < ENOUGH else series.values[index - ENOUGH : index]
    base = float(np.median(before[-_FEW:]))
    rise = float(series.values[index]) - base
    return rise >= few_points_rise(series, base, index) and rise > _JUMP_NOISES * _noise(before)


def _noise(values: Floats) -> float:
    """Give the largest way back and forth: a curve that only falls, or only climbs, has no noise."""
    steps = np.diff(values)
    turns = steps[1:] * steps[:-1] < 0
    return float(np.max(np.minimum(np.abs(steps[1:]), np.abs(steps[:-1])) * turns, initial=0.0))


def _follow(series: Series, trigger: int) -> tuple[Excursion | None, int]:
    """Follow an excursion from a record far above its band to both ends; also give where to look on."""
    is_few = trigger < ENOUGH
    if is_few:
        onset, band = _few_points_onset(series, trigger)
    else:
        onset, band = _onset(series, trigger)
    recovered = _recovery(series, trigger, band)
    end = len(series.values) if recovered is None else recovered
    if trigger == series.start > 0 and end == trigger + 1:  # the first record after a restart, and it alone
        return None, trigger + 1
    look_on = max(trigger + 1, min(end, onset + WINDOW))
    peak = onset + int(np.argmax(series.values[onset:look_on]))
    if is_few:
        onset = _few_points_rise_index(series, onset - 1, peak)
    rise = onset if is_few else _first_of_stretch(series.values, peak, band.top, onset)
    height = None if is_few else float((series.values[peak] - band.level) / mad_of(series, band))
    steps = series.steps
    found = Excursion(
        name=series.name,
        rank=series.rank,
        segment=series.segment,
        onset=int(steps[onset]),
        peak=int(steps[peak]),
        recovery=None if recovered is None else int(steps[recovered]),
        rise=int(steps[rise]),
        before=int(steps[onset - 1]),
        last=int(steps[look_on - 1]),
        base=_unit(series, band.level),
        top=_unit(series, float(series.values[peak])),
        height=height,
        num_before=min(onset, WINDOW),
        latest=_unit(series, float(series.values[-1])) if recovered is None else None,
        end=int(steps[-1]) if recovered is None else None,
    )
    return found, look_on


def _unit(series: Series, value: float) -> float:
    return math.exp(value) if series.is_log else value


def _onset(series: Series, trigger: int) -> tuple[int, Band]:
    """Walk back to the first record out of the band; the band is that of the record there."""
    onset = _first_of_stretch(series.values, trigger, band_of(series, trigger).top, max(series.start, ENOUGH))
    return onset, band_of(series, onset)


def _first_of_stretch(values: Floats, index: int, top: float, floor: int) -> int:
    while index > floor and values[index - 1] > top:
        index -= 1
    return index


def _few_points_onset(series: Series, trigger: int) -> tuple[int, Band]:
    """Walk down a climb to the record after its lowest, with a band around the records up to there."""
    low = trigger - 1
    while low > 0 and series.values[low - 1] < series.values[low]:
        low -= 1
    base = float(np.median(series.values[max(0, low - _FEW + 1) : low + 1]))
    least = float(least_rise(series, np.array([base]))[0])
    return low + 1, Band(base, 0.0, base + max(least, series.resolution))


def _few_points_rise_index(series: Series, low: int, peak: int) -> int:
    """Find where a climb from its lowest record has made a share of its height."""
    climbed = series.values[low + 1 : peak + 1] - series.values[low]
    return low + 1 + int(np.argmax(climbed >= _ONSET_SHARE * climbed[-1]))


def _recovery(series: Series, start: int, band: Band) -> int | None:
    """Find the first record after one from which the next ones are all in the band."""
    horizon = 4 * WINDOW
    while True:
        inside = series.values[start + 1 : start + 1 + horizon] <= band.top
        is_end = start + 1 + horizon >= len(series.values)
        runs = np.concatenate([[0], np.cumsum(~inside)])
        ends = np.minimum(np.arange(len(inside)) + STAY, len(inside))
        stays = np.flatnonzero(runs[ends] == runs[:-1])
        if not is_end:  # the last records have too few after them to say that it stays
            stays = stays[stays + STAY <= len(inside)]
        if len(stays):
            return start + 1 + int(stays[0])
        if is_end:
            return None
        horizon *= 4

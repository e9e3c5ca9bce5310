"""How well a ratio of step times is known: a 95 % interval, from one run a side or from several.

One run a side: the paired circular block bootstrap. The same steps of both runs are drawn together, in
blocks, because neighbouring steps resemble each other (clocks, neighbours on the network, lengths of
sequences), and drawing single steps would make the interval too narrow. The length of the blocks follows from
the correlation: Politis and White, *Automatic block-length selection for the dependent bootstrap*,
Econometric Reviews 23 (2004), as corrected by Patton, Politis and White, 28 (2009). Percentiles are widened
for the small number of blocks: Hesterberg, *What teachers should know about the bootstrap*, The American
Statistician 69 (2015). The ratio is that of medians, which a step that saves a checkpoint does not move.

Several runs a side: what differs from run to run (placement, clocks, caches) is the same for all steps of a
run, and no number of steps averages it out. The runs are then the sample: Georges, Buytaert and Eeckhout,
OOPSLA 2007; Kalibera and Jones, *Rigorous benchmarking in reasonable time*, ISMM 2013. The interval is that
of Student's t over the logarithms of the medians of runs, never narrower than what the steps leave open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Side = Mapping[str, Floats]
"""Step times of each run of a side by its label: positive, of the same steps in the same order."""

Ends = tuple[float, float]

SEED: Final = 20240625
"""The seed of the bootstrap: the same files give the same interval."""

MIN_STEPS: Final = 8
"""Fewer common steps give no interval."""

FEW_STEPS: Final = 30
"""With fewer common steps, or blocks of them, the interval is rough."""

_DRAWS: Final = (400, 2000)
_NUMBERS: Final = 40_000_000
"""Numbers that are drawn in all; long runs are drawn less often, for their interval is narrow anyway."""

_AT_ONCE: Final = 200_000
"""Numbers of one run that are drawn at a time."""

_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom."""


@dataclass(frozen=True)
class Ratio:
    """Step time of the deterministic side over that of the default side.

    Attributes
    ----------
    value
        The ratio of medians; over several runs the geometric mean of that of every pair of arms.
    low, high
        The 95 % interval; None where too few steps are common.
    noise
        The largest median of one side's repeats over the smallest, of the side where it is larger; None where
        neither side was repeated.
    pairs
        The labels of each pair of arms, and the ratio of its medians.
    num_blocks
        Blocks of the bootstrap, which are the independent pieces of the runs.
    """

    value: float
    low: float | None
    high: float | None
    noise: float | None
    pairs: tuple[tuple[str, str, float], ...]
    num_blocks: int

    @property
    def ends(self) -> Ends | None:
        """The interval, where there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def is_told_apart(self) -> bool:
        """Whether the two sides differ by more than the noise."""
        return self.ends is not None and not self.ends[0] <= 1.0 <= self.ends[1]


def ratio_of(a: Side, b: Side) -> Ratio:
    """Give the ratio of the step times of two sides, b over a.

    Parameters
    ----------
    a, b
        The runs of the default and of the deterministic side, at least one each.
    """
    medians = [{label: float(np.median(times)) for label, times in side.items()} for side in (a, b)]
    logs = [np.log(np.array(list(side.values()))) for side in medians]
    difference = float(logs[1].mean() - logs[0].mean())
    size = len(next(iter(a.values())))
    block = _block_length(_mean_log(b) - _mean_log(a))
    ends = _steps_leave_open(a, b, block) if size >= MIN_STEPS else None
    if ends is not None and max(map(len, logs)) > 1:
        of_runs = _runs_leave_open(difference, *logs)
        ends = min(ends[0], of_runs[0]), max(ends[1], of_runs[1])
    repeated = [float(np.ptp(each)) for each in logs if len(each) > 1]
    return Ratio(
        value=math.exp(difference),
        low=math.exp(ends[0]) if ends else None,
        high=math.exp(ends[1]) if ends else None,
        noise=math.exp(max(repeated)) if repeated else None,
        pairs=tuple((x, y, medians[1][y] / medians[0][x]) for x in medians[0] for y in medians[1]),
        num_blocks=math.ceil(size / block),
    )


def _mean_log(side: Side) -> Floats:
    mean: Floats = np.mean([np.log(times) for times in side.values()], axis=0)
    return mean


def _steps_leave_open(a: Side, b: Side, block: int) -> Ends:
    """Bootstrap the logarithm of the ratio over blocks of steps."""
    times_a, times_b = np.array(list(a.values())), np.array(list(b.values()))
    size = times_a.shape[1]
    num_draws = int(np.clip(_NUMBERS // (size * (len(times_a) + len(times_b))), *_DRAWS))
    generator, num_blocks = np.random.default_rng(SEED), math.ceil(size / block)
    at_once = max(1, _AT_ONCE // size)
    drawn: list[Floats] = []
    for begin in range(0, num_draws, at_once):
        begins = generator.integers(0, size, (min(at_once, num_draws - begin), num_blocks, 1))
        steps = ((begins + np.arange(block)) % size).reshape(len(begins), -1)[:, :size]
        of_b, of_a = (np.log(np.median(times[:, steps], axis=2)).mean(axis=0) for times in (times_b, times_a))
        drawn.append(of_b - of_a)
    tail = _widened_tail(num_blocks)
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail])
    return float(low), float(high)


def _widened_tail(num_blocks: int) -> float:
    """Give the share to cut from each end of the draws so that few blocks still cover 95 %."""
    if num_blocks < 2:
        return 0.0
    return NormalDist().cdf(-_student(num_blocks - 1) * math.sqrt(num_blocks / (num_blocks - 1)))


def _runs_leave_open(difference: float, a: Floats, b: Floats) -> Ends:
    """Give the interval of Student's t for the difference of two means, with the spread of both sides."""
    freedom = len(a) + len(b) - 2
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    half = _student(freedom) * math.sqrt(squares / freedom * (1 / len(a) + 1 / len(b)))
    return difference - half, difference + half


def _student(freedom: int) -> float:
    """Give Student's t at 97.5 %; beyond the table by the first terms of its expansion."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom)


def _block_length(series: Floats) -> int:
    """Choose how many steps a block has: as long as steps resemble those before them."""
    size = len(series)
    if size < MIN_STEPS:
        return 1
    cut = _without_outliers(series)
    most = max(1, math.ceil(min(3 * math.sqrt(size), size / 4)))
    lags = min(size - 1, most + max(5, math.ceil(math.sqrt(math.log10(size)))))
    covariance = np.array([float(cut[: size - lag] @ cut[lag:]) / size for lag in range(lags + 1)])
    if covariance[0] <= 0:
        return 1
    width = _bandwidth(covariance / covariance[0], size)
    at = np.arange(1, min(width, lags) + 1)
    weight = np.clip(2 * (1 - at / max(width, 1)), 0, 1)  # flat to the half, then down to zero
    slope = 2 * float((weight * at * covariance[at]).sum())
    level = covariance[0] + 2 * float((weight * covariance[at]).sum())
    if level <= 0:
        return 1
    wanted = (2 * slope**2 / (4 / 3 * level**2)) ** (1 / 3) * size ** (1 / 3)
    return int(np.clip(math.ceil(wanted), 1, most))


def _bandwidth(correlation: Floats, size: int) -> int:
    """Give twice the lag from which on the correlation is no larger than chance would make it."""
    chance = 2 * math.sqrt(math.log10(size) / size)
    run = max(5, math.ceil(math.sqrt(math.log10(size))))
    large = np.abs(correlation[1:]) >= chance
    for lag in range(len(large)):
        if not large[lag : lag + run].any():
            return max(2 * lag, 1)
    return 2 * len(large)


def _without_outliers(series: Floats) -> Floats:
    """Give distances from the median, those beyond three deviations cut to that."""
    from_median = series - np.median(series)
    spread = 3 * 1.4826 * float(np.median(np.abs(from_median)))
    cut: Floats = np.clip(from_median, -spread, spread) if spread > 0 else from_median
    centred: Floats = cut - cut.mean()
    return centred

"""What a number of trials proves: distinct results, modal share, and the bounds of the rate of others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["done", "crashed", "timed out", "refused"]
"""How a condition ended; anything but ``done`` is itself a result, told by the note."""


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """The trials under one condition.

    Attributes
    ----------
    name
        The condition in a few words.
    trials
        Number of results; 0 only where the status is not ``done``.
    distinct
        Number of different results; a result is all outputs together.
    modal_share
        Share of the trials that gave the most frequent result, from 0 to 1.
    upper_bound_95
        With 95 % confidence the rate of other results is below this; None when some were seen.
    interval_95
        Lower and upper end of the two-sided 95 % interval (Clopper and Pearson) of the rate of results other
        than the most frequent one, see `interval_95`; None without a trial. In JSON a list of two numbers,
        and it may be left out.
    status
        ``done``; ``crashed`` or ``timed out`` when the process ended or was ended before all trials were made
        (those before it are counted); ``refused`` when the condition cannot be had here. In JSON it may be
        left out for ``done``.
    note
        One sentence that explains the status or what the condition leaves open; empty when there is nothing
        to say, and then it may be left out in JSON.
    """

    name: str
    trials: int
    distinct: int
    modal_share: float
    upper_bound_95: float | None
    interval_95: tuple[float, float] | None = None
    status: Status = "done"
    note: str = ""


def summarize(
    name: str, results: Iterable[Hashable], *, status: Status = "done", note: str = ""
) -> ConditionResult:
    """Count the results of the trials under one condition; none at all only if its status says why."""
    counts = Counter(results)
    trials = counts.total()
    if not trials and status != "done":
        return ConditionResult(name, 0, 0, 0.0, None, None, status, note)
    bound = upper_bound_95(trials) if len(counts) <= 1 else None
    modal = counts.most_common(1)[0][1]
    interval = interval_95(trials - modal, trials)
    return ConditionResult(name, trials, len(counts), modal / trials, bound, interval, status, note)


def upper_bound_95(trials: int) -> float:
    """Give the one-sided 95 % upper bound on a rate that was seen 0 times in `trials` independent trials.

    It is the rate p at which ``(1 - p) ** trials`` is 0.05, about 3 / trials: the exact bound of Clopper and
    Pearson (Biometrika 26, 1934) for zero successes, known in its short form as the rule of three (Hanley and
    Lippman-Hand, JAMA 249, 1983). Trials that run back to back are not quite independent, so it holds for the
    conditions of the trials and no others.
    """
    if trials < 1:
        raise ValueError("no trials, no bound")
    return float(1.0 - 0.05 ** (1.0 / trials))


def interval_95(seen: int, trials: int) -> tuple[float, float]:
    """Give the exact two-sided 95 % interval of a rate that was seen `seen` times in `trials` trials.

    Clopper and Pearson (Biometrika 26, 1934): the lower end is the rate at which `seen` or more would come in
    2.5 % of the cases, the upper end the one at which `seen` or fewer would. With nothing seen it begins at 0
    and ends a little above the one-sided `upper_bound_95`, which spends all 5 % on one side.
    """
    if not 0 <= seen <= trials or trials < 1:
        raise ValueError(f"{seen} of {trials} is no rate")
    lower = _rate(lambda p: at_least(seen, trials, p) < _TAIL) if seen else 0.0
    upper = _rate(lambda p: at_least(seen + 1, trials, p) < 1.0 - _TAIL) if seen < trials else 1.0
    return lower, upper


def at_least(seen: int, trials: int, rate: float) -> float:
    """Give the probability of `seen` or more in `trials` independent trials of a rate.

    It is the regularised incomplete beta function ``I_rate(seen, trials - seen + 1)`` (Abramowitz and Stegun
    26.5.24), whose continued fraction takes few terms also for a million trials.
    """
    if seen <= 0:
        return 1.0
    if seen > trials or rate <= 0.0:
        return 0.0
    if rate >= 1.0:
        return 1.0
    a, b = float(seen), trials - seen + 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(rate) + b * math.log1p(-rate)
    )
    if rate < (a + 1.0) / (a + b + 2.0):  # else the fraction of the other side converges faster
        return front * _fraction(a, b, rate) / a
    return 1.0 - front * _fraction(b, a, 1.0 - rate) / b


def percent(rate: float) -> str:
    """Write a rate as a percentage of two decimals below 1 % and one above, for example ``4.9 %``."""
    return f"{100 * rate:.{1 if rate >= 0.01 else 2}f} %"


_TAIL: Final = 0.025
_TINY: Final = 1e-300
_MAX_TERMS: Final = 100_000
_EPSILON: Final = 1e-15


def _rate(is_below: Callable[[float], bool]) -> float:
    """Bisect [0, 1] for the rate up to which a condition holds."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method (DLMF 8.17.22)."""
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _EPSILON:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

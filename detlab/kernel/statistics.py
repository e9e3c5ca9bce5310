"""What a number of trials proves: distinct results, modal share, and the bound when nothing was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """The trials under one condition.

    Attributes
    ----------
    name
        The condition in a few words.
    distinct
        Number of different results; a result is all outputs together.
    modal_share
        Share of the trials that gave the most frequent result, from 0 to 1.
    upper_bound_95
        With 95 % confidence the rate of other results is below this; None when some were seen.
    """

    name: str
    trials: int
    distinct: int
    modal_share: float
    upper_bound_95: float | None


def summarize(name: str, results: Iterable[Hashable]) -> ConditionResult:
    """Count the results of the trials under one condition; there must be one at least."""
    counts = Counter(results)
    trials = counts.total()
    bound = upper_bound_95(trials) if len(counts) == 1 else None
    return ConditionResult(name, trials, len(counts), counts.most_common(1)[0][1] / trials, bound)


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


def percent(rate: float) -> str:
    """Write a rate as a percentage of two decimals below 1 % and one above, for example ``4.9 %``."""
    return f"{100 * rate:.{1 if rate >= 0.01 else 2}f} %"

"""One row per metric: where it was compared, how strongly, what differs and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.pairs import name_of
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, narrow_names, significant_digits
from detlab.readers.metrics.frame import METRIC_STATES
from detlab.readers.metrics.names import is_measurement
from detlab.text import plural

METRIC_COLUMNS: Final[dict[str, Any]] = {
    "name": pl.String,
    "kind": pl.String,
    "steps_common": pl.Int64,
    "steps_different": pl.Int64,
    "first_step": pl.Int64,
    "visible_step": pl.Int64,
    "evidence": pl.String,
    "resolution": pl.String,
    "resolution_ulp": pl.Float64,
    "max_ulp": pl.Float64,
    "max_difference": pl.Float64,
    "max_relative": pl.Float64,
    "mean_a": pl.Float64,
    "mean_b": pl.Float64,
    "states": pl.List(pl.Struct({"state": pl.String, "a": pl.Int64, "b": pl.Int64})),
    "steps_only_a": pl.Int64,
    "steps_only_b": pl.Int64,
}
"""Columns of `MetricsComparison.metrics`.

``name``, as run a has it; ``kind`` (compared; measurement: of the machine, never evidence; only in a, only
in b); ``steps_common`` (steps at which both have it, of one rank at least), ``steps_different`` (null: not
compared) and the ``first_step`` that differs; ``visible_step`` (the first at which the curves differ by
more than 0.5 % of their range, or in state); ``evidence`` (exact, printed: what equality proves);
``resolution`` in words and ``resolution_ulp``, its median in units in the last place of a float32 (null:
exact); ``max_ulp`` (of exact numbers), ``max_difference`` and ``max_relative`` of those that differ;
``mean_a`` and ``mean_b`` of the finite numbers; ``states`` (how many numbers of each run are in each state);
``steps_only_a`` and ``steps_only_b``.
"""

VISIBLE: Final = 0.005
"""Share of the range of two curves from which on a difference is seen: two pixels of a picture 400 high."""

_MIDDLE: Final = (0.02, 0.98)
"""Quantiles between which the range is taken, so that a spike does not hide what happens beside it."""


def summarise(judged: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sum up each metric.

    Parameters
    ----------
    judged
        As from `precision.judge`, one frame for each metric.

    Returns
    -------
    The columns of `METRIC_COLUMNS`, one row for each frame.
    """
    return pl.DataFrame([_summary(part) for part in judged], METRIC_COLUMNS)


def _summary(rows: pl.DataFrame) -> dict[str, Any]:
    outcome = rows["outcome"]
    common = rows.filter(outcome.is_in(COMPARED) | outcome.is_null())
    differing = common.filter(pl.col("outcome").is_in(DIFFERENT))
    is_compared = not outcome.has_nulls()
    return {
        "name": name_of(rows),
        "kind": _kind(rows),
        "steps_common": _num_steps(common),
        "steps_different": _num_steps(differing) if is_compared else None,
        "first_step": differing["step"].min(),
        "visible_step": visible_step(common, differing),
        "evidence": ("exact" if bool(common["exact"].all()) else "printed") if len(common) else None,
        "resolution": resolution_words(common if len(common) else rows),
        "resolution_ulp": common["resolution_ulp"].median(),
        "max_ulp": differing["ulp"].max(),
        "max_difference": differing["difference"].abs().max(),
        "max_relative": differing["relative"].max(),
        "mean_a": _mean(rows, "a"),
        "mean_b": _mean(rows, "b"),
        "states": _states(rows),
        "steps_only_a": _num_steps(rows.filter(outcome == "only in a")),
        "steps_only_b": _num_steps(rows.filter(outcome == "only in b")),
    }


def _num_steps(rows: pl.DataFrame) -> int:
    """Count the steps of rows that are in their order."""
    steps = rows["step"].to_numpy()
    return int(np.count_nonzero(np.diff(steps))) + 1 if len(steps) else 0


def _kind(rows: pl.DataFrame) -> str:
    if bool(rows[:1].select(is_measurement(pl.col("name"))).item()):
        return "measurement"
    for run, other in (("a", "b"), ("b", "a")):
        if not rows[f"state_{other}"].count():
            return f"only in {run}"
    return "compared"


def _mean(rows: pl.DataFrame, run: str) -> float | None:
    value = pl.col(f"value_{run}")
    mean: float | None = rows.select(value.filter(value.is_finite()).mean()).item()
    return mean


def _states(rows: pl.DataFrame) -> list[dict[str, Any]]:
    counts = {
        run: dict(rows[f"state_{run}"].drop_nulls().value_counts().cast({f"state_{run}": pl.String}).rows())
        for run in "ab"
    }
    names = [name for name in METRIC_STATES if name in counts["a"] or name in counts["b"]]
    return [{"state": name, **{run: counts[run].get(name, 0) for run in "ab"}} for name in names]


def visible_step(common: pl.DataFrame, differing: pl.DataFrame) -> int | None:
    """Find the first step at which two curves can be told apart by eye.

    That is where they differ by more than `VISIBLE` of the range of the wider one, or where one is a number
    and the other is not. The range is that of the middle 96 % of the finite numbers of a curve at all common
    steps, and a thousandth of their size at least: a curve that hardly moves is not seen to move.
    """
    if not len(differing):
        return None
    scale = max(_scale(common[f"value_{run}"]) for run in "ab")
    seen = (pl.col("difference").abs() > VISIBLE * scale) | pl.col("difference").is_null()
    step: int | None = differing.filter(seen)["step"].min()  # type: ignore[assignment]
    return step


def _scale(values: pl.Series) -> float:
    """Give the height of a picture that shows the middle of a curve."""
    finite = values.filter(values.is_finite())
    low, median, high = (finite.quantile(share, "nearest") or 0.0 for share in (_MIDDLE[0], 0.5, _MIDDLE[1]))
    return max(high - low, abs(median) / 1000)


def resolution_words(rows: pl.DataFrame, runs: str = "ab") -> str:
    """Say how precisely runs give a metric: ``as printed, 5 decimals``, ``32 bits``."""
    words = [_precision_words(rows, run, runs) for run in runs]
    told = list(dict.fromkeys(word for word in words if word))
    return " against ".join(told)


def _precision_words(rows: pl.DataFrame, run: str, runs: str) -> str:
    """Say how precisely one run gives a metric; nothing where it has no number."""
    numbers = rows.filter(pl.col(f"state_{run}").is_in(["value", "zero"]))
    if not len(numbers):
        return ""
    printed = numbers.filter(pl.col(f"width_{run}") == 0)
    if len(printed):
        return f"as printed, {_digits(printed, run)}"
    value = numbers[f"value_{run}"]
    if bool((value == value.round()).all()):
        return "integers"
    if numbers[f"width_{run}"].max() == 32:
        return "32 bits"
    narrow = runs == "ab" and len(narrow_names(rows)) > 0
    return "64 bits that hold numbers of 32" if narrow else "64 bits"


def _digits(printed: pl.DataFrame, run: str) -> str:
    units = printed[f"resolution_{run}"].filter(printed[f"resolution_{run}"] > 0)
    decimals = (-units.log10()).round().cast(pl.Int32).unique()
    if len(decimals) == 1 and decimals[0] > 0:
        return _counted(int(decimals[0]), "decimal")
    digits = printed.select(significant_digits(f"value_{run}", f"resolution_{run}")).to_series().drop_nulls()
    if digits.n_unique() == 1:
        return _counted(int(digits[0]), "significant digit")
    if len(decimals) == 1:
        return f"to {10.0 ** -int(decimals[0]):g}"
    return f"{digits.min()!r} to {digits.max()!r} significant digits"


def _counted(number: int, what: str) -> str:
    return f"{number} {plural(what, number)}"

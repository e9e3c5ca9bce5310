"""Step times of runs: which metric holds them, and the steps that all runs have, in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from detlab.checks.tax.interval import MIN_STEPS, Floats
from detlab.errors import InputError, NotComparable
from detlab.run import Run, spans

Bools = npt.NDArray[np.bool_]

_TIMES: Final = (
    r"elapsed time per iteration",
    r"iter(ation)?[-_ ]time",
    r"step[-_ ]time",
    r"time[-_ ]per[-_ ](step|iteration)",
    r"train_step_timing",
    r"sec/step",
    r"s(ec(onds)?)?[-_ /]per[-_ /](step|iteration|it)",
    r"(time_metrics/)?end_to_end",
    r"seconds$",
)
"""Names of the time of one step, the first that fits: Megatron-LM's console (``elapsed time per iteration``)
and its TensorBoard and golden values (``iteration-time``), DeepSpeed (``iter time``), NeMo and Lightning
(``train_step_timing``), logs of ranks (``sec/step``), torchtitan (``end_to_end``), MaxText (``seconds``)."""

_RATES: Final = (
    r"(train_)?(steps|iterations|it|updates)[-_ ]per[-_ ]second",
    r"ups$",
    r"tps$",
    r"wps$",
    r"(train_)?samples([-_ ]per[-_ ]|/)sec(ond)?$",
    r"tokens/s",
)
"""Names of what is the faster the greater it is: a step takes its inverse, in units that are not known."""

_TIMES_NOT: Final = r"(?i) vs |eval|valid|ckpt|checkpoint|data|_std|std$|throughput|count$"

_MS: Final = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6, "min": 6e4}

_IN_NAME: Final = r"\((ms|s|sec|us|ns)\)|_(ms|us|ns|sec|s)$| in (ms|s)\b"

_FAR: Final = 5.0
"""Deviations (1.4826 of the median absolute one) beyond the median at which a step is called slow."""

_LEAST_EXCESS: Final = 1.2
"""A slow step takes at least this times the median: where all steps last the same, rounding is no outlier."""


@dataclass(frozen=True)
class Times:
    """Step times of all runs at the same steps.

    Attributes
    ----------
    steps
        The steps, ascending, without those of the warm-up.
    default, deterministic
        For each run of a side its times at these steps, in milliseconds; of a rate, its inverse.
    metric
        The metric that they were read from.
    is_time
        False where only a rate is logged: the ratio means something, milliseconds do not.
    warm_up
        Steps at the beginning that were left out.
    slow
        For each side the steps that took far longer than the others.
    notes
        What a reader must know.
    """

    steps: tuple[int, ...]
    default: Mapping[str, Floats]
    deterministic: Mapping[str, Floats]
    metric: str
    is_time: bool
    warm_up: tuple[int, ...]
    slow: tuple[tuple[int, ...], tuple[int, ...]]
    notes: tuple[str, ...]


def step_times(
    default: Sequence[Run], deterministic: Sequence[Run], *, metric: str | None, warm_up: int | None
) -> Times:
    """Read the step times of all runs and keep the steps that all of them have.

    Parameters
    ----------
    default, deterministic
        Runs with step metrics.
    metric
        The metric to read; None: the first known name that each run has.
    warm_up
        How many of the first common steps to leave out; None: those before the first that is not slow.

    Raises
    ------
    InputError
        A run has no such metric.
    NotComparable
        No step is common, or runs log times of other kinds.
    """
    sides, notes = (default, deterministic), []
    labels = unique_labels([run.label for side in sides for run in side])
    chosen = [_chosen(run, metric) for side in sides for run in side]
    if len({is_time for _, is_time in chosen}) > 1:
        raise NotComparable(
            f"Some runs log the time of a step and others a rate: {', '.join(name for name, _ in chosen)}.",
            "choose a metric that all of them have: metric=…, on the command line --metric NAME",
        )
    read = [
        _of_run(run, name, is_time)
        for run, (name, is_time) in zip([run for side in sides for run in side], chosen, strict=True)
    ]
    common = _common(read, labels)
    notes += _notes(read, labels, common)
    values = {label: _at(each, common) for label, each in zip(labels, read, strict=True)}
    left = _num_warm_up(list(values.values()), common) if warm_up is None else min(warm_up, len(common))
    if left == len(common):
        raise NotComparable(
            f"All {left} common steps are warm-up.", "give longer runs, or a smaller warm_up=…"
        )
    kept = {label: each[left:] for label, each in values.items()}
    parts = [
        {label: kept[label] for label in side} for side in (labels[: len(default)], labels[len(default) :])
    ]
    steps = common[left:]
    return Times(
        tuple(steps), parts[0], parts[1], chosen[0][0], chosen[0][1], tuple(common[:left]),
        (_slow_steps(parts[0], steps), _slow_steps(parts[1], steps)), tuple(notes),
    )  # fmt: skip


def unique_labels(labels: Sequence[str]) -> list[str]:
    """Tell labels that occur more than once apart by a number."""
    return [
        each if labels.count(each) == 1 else f"{each} [{labels[: at + 1].count(each)}]"
        for at, each in enumerate(labels)
    ]


def copies(times: Times) -> list[tuple[str, str]]:
    """Give pairs of runs of which every step took exactly as long, which no two measured runs do.

    Few steps, or times that were printed as one or two different numbers, show nothing of the kind.
    """
    every = {**times.default, **times.deterministic}
    telling = {label: each for label, each in every.items() if len(np.unique(each)) >= MIN_STEPS}
    return [(a, b) for a, b in combinations(telling, 2) if np.array_equal(telling[a], telling[b])]


def _chosen(run: Run, metric: str | None) -> tuple[str, bool]:
    """Choose the metric of a run that says how long a step took; say whether it is a time or a rate."""
    names = run.metrics["name"].unique(maintain_order=True).cast(pl.String).to_list()
    if metric is not None:
        if metric not in names:
            raise InputError(f"{run.label} has no metric '{metric}'.", f"it has: {', '.join(names[:12])}")
        return metric, not any(re.search(rf"(?i)\b{each}", metric) for each in _RATES)
    usable = [name for name in names if not re.search(_TIMES_NOT, name)]
    for patterns, is_time in ((_TIMES, True), (_RATES, False)):
        for pattern in patterns:
            for name in usable:
                if re.search(rf"(?i)(^|[^a-z]){pattern}", name):
                    return name, is_time
    raise InputError(
        f"{run.label} ({run.source}) logs no time of a step that is known by its name.",
        f"say which it is: metric=…, on the command line --metric NAME; it has: {', '.join(names[:12])}",
    )


def _of_run(run: Run, name: str, is_time: bool) -> pl.DataFrame:
    """Give ``step``, ``ms`` and ``ranks`` of one run; of a step that ran again after a restart the last time.

    Of several ranks the slowest counts, for which the others wait.
    """
    rows = run.metrics.filter(
        pl.col("name").cast(pl.String) == name, pl.col("value").is_finite(), pl.col("value") > 0
    )
    scale = _scale(rows, name) if is_time else 1.0
    value = pl.col("value") * scale if is_time else 1 / pl.col("value")
    return (
        rows.with_columns(ms=value)
        .filter(pl.col("segment") == pl.col("segment").max().over("step"))
        .group_by("step")
        .agg(pl.col("ms").max(), ranks=pl.col("rank").n_unique())
        .sort("step")
    )


def _scale(rows: pl.DataFrame, name: str) -> float:
    """Give milliseconds in the unit of a metric, which its record or its name says; seconds if neither."""
    said = rows["unit"].drop_nulls().cast(pl.String)
    found = re.search(_IN_NAME, name)
    in_name = next((each for each in found.groups() if each), "") if found else ""
    return _MS.get(said[0] if len(said) else in_name, _MS["s"])


def _common(read: Sequence[pl.DataFrame], labels: Sequence[str]) -> list[int]:
    steps = set(read[0]["step"])
    for each in read[1:]:
        steps &= set(each["step"])
    if not steps:
        had = "; ".join(
            f"{label} has {len(each)}, {spans(each['step'].to_list())[:40]}"
            for label, each in zip(labels, read, strict=True)
        )
        raise NotComparable(
            f"The runs have no step with a time in common: {had}.",
            "give runs of the same steps, from the same start, logged at the same interval",
        )
    return sorted(steps)


def _at(times: pl.DataFrame, steps: Sequence[int]) -> Floats:
    found: Floats = (
        times.filter(pl.col("step").is_in(pl.Series(steps).implode())).sort("step")["ms"].to_numpy()
    )
    return found


def _notes(read: Sequence[pl.DataFrame], labels: Sequence[str], common: Sequence[int]) -> list[str]:
    """Say what of the runs was not used, or is not quite the same thing."""
    notes = []
    every = {
        label: int(np.median(np.diff(each["step"].to_numpy()))) if len(each) > 1 else 1
        for label, each in zip(labels, read, strict=True)
    }
    if len(set(every.values())) > 1:
        said = ", ".join(f"{label} every {num}" for label, num in every.items())
        notes.append(
            f"the runs log at other intervals ({said}): where a record is a mean over its interval, "
            "a pair is of other steps"
        )
    left = {label: len(each) - len(common) for label, each in zip(labels, read, strict=True)}
    if any(left.values()):
        said = ", ".join(f"{num} of {label}" for label, num in left.items() if num)
        notes.append(f"steps without a partner were left out: {said}")
    if any(each["ranks"].max() not in (None, 1) for each in read):
        notes.append("where several ranks log a time, that of the slowest counts")
    return notes


def _is_slow(times: Floats) -> Bools:
    middle = float(np.median(times))
    spread = 1.4826 * float(np.median(np.abs(times - middle)))
    slow: Bools = times > max(middle + _FAR * spread, _LEAST_EXCESS * middle)
    return slow


def _num_warm_up(values: Sequence[Floats], steps: Sequence[int]) -> int:
    """Count the first steps that are slow in any run, up to a tenth of all and at least one."""
    slow = np.any([_is_slow(each) for each in values], axis=0)
    most = max(1, len(steps) // 10)
    return int(np.argmin(slow[:most])) if not slow[:most].all() else most


def _slow_steps(side: Mapping[str, Floats], steps: Sequence[int]) -> tuple[int, ...]:
    slow = np.any([_is_slow(each) for each in side.values()], axis=0)
    return tuple(np.array(steps)[slow].tolist())

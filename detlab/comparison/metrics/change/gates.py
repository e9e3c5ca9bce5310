"""The three gates of a deliberate change: repeatability, equivalence with the baseline, restart replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.comparison.metric_classes import MetricClasses
from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.pairs import pair_runs, pair_segments, points_of
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, judge
from detlab.errors import NotComparable
from detlab.readers.metrics.names import is_loss, is_measurement
from detlab.run import Run
from detlab.schema import Evidence
from detlab.text import plural

REPEATABILITY: Final = "fixed-environment repeatability"
EQUIVALENCE: Final = "baseline equivalence"
REPLAY: Final = "restart replay"

PASS, FAIL, NOT_TESTED = "pass", "fail", "not tested"

GATE_COLUMNS: Final[dict[str, Any]] = {
    "gate": pl.String,
    "verdict": pl.String,
    "evidence": pl.String,
    "why": pl.String,
    "first_step": pl.Int64,
    "metrics": pl.List(pl.String),
}
"""Columns of `ChangeComparison.gates`."""

_SETS: Final = ("baseline", "changed")
_SHOWN: Final = 4


@dataclass(frozen=True)
class Gate:
    """One question with its answer.

    Attributes
    ----------
    name, verdict
        The question; ``pass``, ``fail`` or ``not tested``.
    why
        One sentence.
    first_step, metrics
        Where runs first differ, and in what.
    """

    name: str
    verdict: str
    why: str
    first_step: int | None = None
    metrics: tuple[str, ...] = ()


def repeatability(within: Sequence[MetricClasses | None], sizes: Sequence[int]) -> Gate:
    """Ask whether the runs of each set are equal among themselves.

    Parameters
    ----------
    within
        The classes of the baseline runs and of the changed runs; None where there is one run.
    sizes
        Number of runs in each.
    """
    told, verdicts = [], []
    firsts: list[tuple[int, list[str]]] = []
    for name, found, size in zip(_SETS, within, sizes, strict=True):
        shared = _shared(found) if found else None
        if found is None or shared is None or shared.is_empty():
            verdicts.append(NOT_TESTED)
            lack = "has one run: repeat it" if size == 1 else "has no step that two runs share"
            told.append(f"the {name} set {lack}")
            continue
        step, metrics = found.first()
        if step is None:
            verdicts.append(PASS)
            told.append(
                f"{size} {name} runs are equal among themselves{_strength(found)} ({_extent(shared)})"
            )
        else:
            verdicts.append(FAIL)
            told.append(
                f"{name} runs differ among themselves from step {step} on, first in {_names(metrics)}"
            )
            firsts.append((step, metrics))
    verdict = FAIL if FAIL in verdicts else NOT_TESTED if NOT_TESTED in verdicts else PASS
    first_step, metrics = min(firsts, default=(None, []))
    return Gate(REPEATABILITY, verdict, _sentence(told), first_step, tuple(metrics))


def equivalence(together: MetricClasses, num_baseline: int, baseline: MetricClasses | None) -> Gate:
    """Ask whether the changed runs equal those of the baseline.

    Parameters
    ----------
    together
        The classes of all runs, those of the baseline first.
    num_baseline
        How many these are.
    baseline
        The classes of the baseline runs alone, if there are several.
    """
    numbers = together.numbers
    has_both = (numbers[:, :num_baseline] > 0).any(axis=1) & (numbers[:, num_baseline:] > 0).any(axis=1)
    shared = together.places.filter(pl.Series(has_both, dtype=pl.Boolean))
    if shared.is_empty():
        return Gate(EQUIVALENCE, NOT_TESTED, "the two sets share no number that both prove something about.")
    differing = together.differing().join(shared, on=["step", "name"], how="semi", maintain_order="left")
    if differing.is_empty():
        why = f"the changed runs equal the baseline{_strength(together)} ({_extent(shared)})."
        return Gate(EQUIVALENCE, PASS, why)
    step = int(differing["step"][0])
    metrics = differing.filter(pl.col("step") == step)["name"].to_list()
    told = [f"the changed runs differ from the baseline from step {step} on, first in {_names(metrics)}"]
    own = baseline.first()[0] if baseline else None
    if own is not None and own <= step:
        told.append(
            f"the baseline differs from itself from step {own} on, so this alone does not show the change"
        )
    return Gate(EQUIVALENCE, FAIL, _sentence(told), step, tuple(metrics))


def restart_replay(runs: Sequence[Run], restarts: Sequence[tuple[Run, Run | None]]) -> Gate:
    """Ask whether steps that ran again after a restart gave the same as before.

    With a log interval above one, a printed loss is the mean since the last record, and the first record
    after a restart may be one over fewer steps: losses of that record are left out.

    Parameters
    ----------
    runs
        Runs whose own segments are looked at.
    restarts
        Resumed runs with the continuous one, or None for a run with several segments.

    Raises
    ------
    NotComparable
        A restart has no step that can be held against another.
    """
    parts = []
    for run, continuous in [*((run, None) for run in runs), *restarts]:
        part = _replayed(run, continuous)
        if part.is_empty() and any(run is resumed for resumed, _ in restarts):
            raise _no_common_step(run, continuous)
        parts.append(part.select("name", "step", "outcome", "exact"))
    judged = pl.concat(parts)
    if judged.is_empty():
        return Gate(
            REPLAY, NOT_TESTED, "no run has steps that ran twice: give restarts=[(resumed, continuous)]."
        )
    differing = judged.filter(pl.col("outcome").is_in(DIFFERENT)).sort("step", maintain_order=True)
    if differing.is_empty():
        strength = " to the last bit" if judged["exact"].all() else " as printed"
        why = f"steps that ran again are equal to those before{strength} ({where(judged['step'])})."
        return Gate(REPLAY, PASS, why)
    step = int(differing["step"][0])
    here = differing.filter(pl.col("step") == step)["name"]
    metrics = sorted(here.cast(pl.String).unique())
    why = f"steps that ran again differ from those before from step {step} on, first in {_names(metrics)}."
    return Gate(REPLAY, FAIL, why, step, tuple(metrics))


def _replayed(run: Run, continuous: Run | None) -> pl.DataFrame:
    """Judge the steps of a resumed run, or of later segments, that have others to be held against."""
    points = _evident(run)
    pairs = pair_segments(points) if continuous is None else pair_runs(_evident(continuous), points)
    judged = judge(pairs).filter(pl.col("outcome").is_in(COMPARED))
    interval = run.metrics["step"].unique().sort().diff().median()
    if not isinstance(interval, float) or interval <= 1:
        return judged
    heads = points.group_by("segment").agg(head=pl.col("step").min())
    is_head = pl.struct("segment_b", "step").is_in(
        heads.select(pl.struct(segment_b="segment", step="head")).to_series().implode()
    )
    return judged.filter(~(is_head & is_loss(pl.col("name"))))


def _evident(run: Run) -> pl.DataFrame:
    return points_of(run).filter(~is_measurement(pl.col("name")))


def _no_common_step(run: Run, continuous: Run | None) -> NotComparable:
    if continuous is None:
        return NotComparable(
            f"{run.label} has no step that ran twice.",
            "give the continuous run beside it: restarts=[(resumed, continuous)]",
        )
    return NotComparable(
        f"{run.label} and {continuous.label} have no metric and step in common.",
        "give the run that went through the steps of the resumed one",
    )


def _shared(found: MetricClasses) -> pl.DataFrame:
    """Give the places at which two runs or more have a class."""
    return found.places.filter(pl.Series(np.sum(found.numbers > 0, axis=1) > 1, dtype=pl.Boolean))


def _strength(found: MetricClasses) -> str:
    return " as printed" if found.evidence is Evidence.PRINTED else " to the last bit"


def _extent(places: pl.DataFrame) -> str:
    num = places["name"].n_unique()
    return f"{num} {plural('metric', num)}, {where(places['step'])}"


def _names(metrics: Sequence[str]) -> str:
    more = f" and {len(metrics) - _SHOWN} more" if len(metrics) > _SHOWN else ""
    return ", ".join(metrics[:_SHOWN]) + more


def _sentence(parts: Sequence[str]) -> str:
    return "; ".join(parts) + "."

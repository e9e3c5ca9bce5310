"""Compare the step metrics of two runs: every number of every common step, by what both can prove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike

import polars as pl

from detlab.comparison.metrics.averages import means_of_other_steps, spans_of
from detlab.comparison.metrics.coverage import problems_of, where
from detlab.comparison.metrics.notes import notes_of
from detlab.comparison.metrics.pairs import KEY, name_of, pair_metrics, points_of
from detlab.comparison.metrics.precision import COMPARED, OUTCOMES, judge
from detlab.comparison.metrics.refusals import (
    names_of,
    refuse_unusable,
    refuse_without_common_names,
    refuse_without_common_steps,
)
from detlab.comparison.metrics.replays import replays_of
from detlab.comparison.metrics.result import VALUE_COLUMNS, MetricsComparison
from detlab.comparison.metrics.summary import summarise
from detlab.errors import NotComparable
from detlab.readers import as_run
from detlab.readers.metrics.names import is_measurement
from detlab.run import Run
from detlab.store import Subset

_UNKNOWN = pl.lit("unknown", pl.Enum(OUTCOMES))

Place = str | PathLike[str]


def compare_metrics(
    a: Run | Place | Sequence[Place],
    b: Run | Place | Sequence[Place],
    *,
    names: Sequence[str] | None = None,
    pairs: Mapping[str, str] | None = None,
    offset: int = 0,
    measurements: bool = False,
) -> MetricsComparison:
    """Compare the step metrics of two runs.

    Numbers of the same metric, rank and step are compared; where a run ran a step again after a restart, the
    last one counts. Where the bits of both are known these are compared, and the distance of two numbers is
    counted in units in the last place of the width that they were written with; of a metric whose exact
    numbers are all numbers of 32 bits, in both runs, in those of float32, whatever they were stored in.
    Printed numbers are compared as far as they were printed: that they are equal proves nothing about the
    bits.

    Parameters
    ----------
    a, b
        The runs, or the files that hold their metrics.
    names
        Compare these metrics only.
    pairs
        Metrics that have another name in run b: ``{"loss": "lm loss"}`` compares ``loss`` of run a with
        ``lm loss`` of run b, under the name ``loss``.
    offset
        Added to the steps of run b, for runs that count their steps from different numbers.
    measurements
        Compare timings, throughput, memory and energy too. They never change the verdict.

    Raises
    ------
    InputError
        A name is not there.
    NotComparable
        A run has no metrics or two values of one number, or the runs have no metric or no step in common.
    """
    runs = _told_apart(as_run(a), as_run(b))
    for run in runs:
        refuse_unusable(run)
    paired = dict(pairs or {})
    chosen = names_of(*runs, names, paired)
    refuse_without_common_names(*runs, chosen, paired)
    joined = _pairs(runs, chosen, paired, offset)
    judged, averages = _without_other_means([judge(part) for part in joined], runs, offset)
    numbers = [part for part in judged if not _measures(part)]
    if not measurements:
        judged = [_not_compared(part) if _measures(part) else part for part in judged]
    return MetricsComparison(
        *runs,
        values=pl.concat([part.select(*VALUE_COLUMNS) for part in judged]),
        metrics=summarise(judged),
        replays=pl.concat([replays_of(run) for run in runs]),
        problems=(*problems_of(runs, numbers), *averages),
        notes=tuple(notes_of(runs, numbers, paired)),
    )


def _told_apart(a: Run, b: Run) -> tuple[Run, Run]:
    """Give two runs that are called the same, as two logs of one name are, names of their own."""
    if a.label != b.label:
        return a, b
    return replace(a, label=f"{a.label} (a)"), replace(b, label=f"{b.label} (b)")


def _pairs(
    runs: tuple[Run, Run], names: Sequence[str], paired: Mapping[str, str], offset: int
) -> list[pl.DataFrame]:
    """Join the numbers of both runs, metric by metric; refuse them when none stands beside another."""
    a, b = (points_of(run) for run in runs)
    a = _within(a, runs[1].subset, -offset)
    b = _within(b, runs[0].subset, offset)
    joined = [part for part in pair_metrics(a, b, paired, offset) if name_of(part) in names]
    known = [pl.col(f"state_{run}").is_not_null() for run in "ab"]
    numbers = [part for part in joined if not _measures(part)]
    if not any(part.select((known[0] & known[1]).any()).item() for part in numbers):
        common = [part for part in numbers if part.select(known[0].any() & known[1].any()).item()]
        sides = [pl.concat([part.filter(each).select(KEY) for part in common]) for each in known]
        refuse_without_common_steps(sides[0], sides[1], [run.label for run in runs], offset)
    return joined


def _without_other_means(
    judged: list[pl.DataFrame], runs: tuple[Run, Run], offset: int
) -> tuple[list[pl.DataFrame], list[tuple[str, str]]]:
    """Judge no two losses that are means over other steps; say which."""
    spans = [spans_of(run) for run in runs]
    told: list[tuple[str, str]] = []
    kept: list[pl.DataFrame] = []
    for part in judged:
        averages = means_of_other_steps(part, spans[0], spans[1], offset)
        if averages.any():
            steps = where(part.filter(averages)["step"])
            what = f"averages {name_of(part)} over other steps than {runs[0].label} at {steps}: not compared"
            told.append((runs[1].label, what))
            part = part.with_columns(outcome=pl.when(~averages).then("outcome").otherwise(_UNKNOWN))
        kept.append(part)
    if told and not any(part["outcome"].is_in(COMPARED).any() for part in kept if not _measures(part)):
        raise NotComparable(
            f"{told[0][0]} {told[0][1]}; and there is nothing else.",
            "compare runs of one log interval, or their TensorBoard files, which have the loss of every step",
        )
    return kept, told


def _measures(part: pl.DataFrame) -> bool:
    return bool(part[:1].select(is_measurement(pl.col("name"))).item())


def _not_compared(part: pl.DataFrame) -> pl.DataFrame:
    """Take the outcome from numbers that nobody asked to compare."""
    return part.with_columns(outcome=pl.when(~pl.col("outcome").is_in(COMPARED)).then("outcome"))


def _within(points: pl.DataFrame, asked: Subset, offset: int) -> pl.DataFrame:
    """Keep what was asked of the other run too: what it left out by request is not missing there."""
    for place, ranges in (
        (pl.col("step") + offset, asked.steps.ranges),
        (pl.col("rank"), asked.ranks.ranges),
    ):
        wanted = [place.is_between(*ends) for ends in ranges]
        if wanted:
            points = points.filter(place.is_null() | pl.any_horizontal(wanted))
    return points

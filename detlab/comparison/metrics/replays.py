"""Restart replays inside one run: steps that ran again after a restart, against those of before."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.averages import means_of_other_steps, spans_of
from detlab.comparison.metrics.pairs import pair_segments, points_of
from detlab.comparison.metrics.precision import judge
from detlab.comparison.metrics.summary import METRIC_COLUMNS, summarise
from detlab.readers.metrics.names import choose_names, is_measurement
from detlab.run import Run

_SHOWN: Final = (
    "name",
    "steps_common",
    "steps_different",
    "first_step",
    "evidence",
    "resolution",
    "resolution_ulp",
    "max_ulp",
    "max_difference",
    "max_relative",
)

REPLAY_COLUMNS: Final[dict[str, Any]] = {
    "run": pl.String,
    "segment": pl.Int64,
    "against": pl.Int64,
    **{name: METRIC_COLUMNS[name] for name in _SHOWN},
}
"""Columns of `MetricsComparison.replays`: ``run`` (its label), ``segment``, the earlier segment ``against``
which its steps are held, and of each metric that is no measurement what `METRIC_COLUMNS` says."""


def replays_of(run: Run) -> pl.DataFrame:
    """Hold the steps that a run ran again against the segment that last ran them before.

    Returns
    -------
    The columns of `REPLAY_COLUMNS`, by segment; none where no step ran twice.
    """
    segments = run.metrics["segment"]
    if segments.min() == segments.max():
        return pl.DataFrame(schema=REPLAY_COLUMNS)
    names = choose_names(run.metrics, lambda name: ~is_measurement(name))
    numbers = points_of(run).filter(pl.col("name").is_in(names))
    pairs = pair_segments(numbers)
    spans = spans_of(run)
    pairs = pairs.filter(~means_of_other_steps(pairs, spans, spans))
    rows = [_rows(run.label, part) for part in pairs.partition_by("segment_b", "segment_a")]
    return pl.concat([pl.DataFrame(schema=REPLAY_COLUMNS), *rows]).sort(
        "segment", "against", maintain_order=True
    )


def _rows(label: str, pairs: pl.DataFrame) -> pl.DataFrame:
    place = {"run": label, "segment": pairs["segment_b"][0], "against": pairs["segment_a"][0]}
    judged = [judge(part) for part in pairs.partition_by("name", maintain_order=True)]
    told = summarise(judged).with_columns(
        pl.lit(value).cast(REPLAY_COLUMNS[name]).alias(name) for name, value in place.items()
    )
    return told.filter(pl.col("steps_common") > 0).select(*REPLAY_COLUMNS)

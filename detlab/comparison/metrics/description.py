"""What the files of one run hold: formats, segments, metrics and their states, before any comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.refusals import names_of
from detlab.comparison.metrics.replays import replays_of
from detlab.comparison.metrics.result import SCHEMA, finite, segments_of
from detlab.comparison.metrics.summary import resolution_words
from detlab.comparison.metrics.text import lined_up, replay_lines, short_name
from detlab.comparison.text import as_html, wrapped
from detlab.errors import NotComparable
from detlab.readers import as_run
from detlab.readers.metrics.frame import METRIC_STATES
from detlab.readers.metrics.names import is_measurement
from detlab.run import Run
from detlab.text import plural

DESCRIPTION_COLUMNS: Final[dict[str, Any]] = {
    "name": pl.String,
    "kind": pl.String,
    "steps": pl.Int64,
    "first_step": pl.Int64,
    "last_step": pl.Int64,
    "first": pl.Float64,
    "last": pl.Float64,
    "min": pl.Float64,
    "max": pl.Float64,
    "resolution": pl.String,
    **dict.fromkeys(METRIC_STATES, pl.Int64),
}
"""Columns of `MetricsDescription.metrics`: ``name``; ``kind`` (metric, measurement); ``steps`` that have it,
the first and the last; the ``first``, ``last``, smallest and largest number that is one; ``resolution`` in
words; and how many numbers are in each state."""

_MAX_ROWS: Final = 20
_MAX_LINES: Final = 6


@dataclass(frozen=True, eq=False, repr=False)
class MetricsDescription:
    """What the files of one run hold.

    Attributes
    ----------
    run
        The run.
    metrics
        One row per metric, with the columns of `DESCRIPTION_COLUMNS`.
    replays
        As in `MetricsComparison`.
    """

    run: Run
    metrics: pl.DataFrame
    replays: pl.DataFrame

    @property
    def exit_code(self) -> int:
        """0; 2 where one number has two values, so that nothing can be compared with it."""
        return 2 if self.run.log and self.run.log.conflicts else 0

    @cached_property
    def segments(self) -> pl.DataFrame:
        """The stretches between restarts; columns as in `MetricsComparison.segments`."""
        return segments_of(self.run)

    @property
    def files(self) -> list[dict[str, Any]]:
        """The files that were read: ``source``, ``format``, ``num_records``, ``why``; none for a trace."""
        return self.run.log.files.to_dicts() if self.run.log else []

    def to_json(self) -> dict[str, Any]:
        """Give the description in its JSON form, see ``detlab/schemas/metrics.json``."""
        return {
            "schema": SCHEMA,
            "run": self.run.label,
            "files": self.files,
            "segments": self.segments.to_dicts(),
            "metrics": finite(self.metrics.to_dicts()),
            "replays": finite(self.replays.to_dicts()),
            "problems": [{"where": self.run.label, "what": what} for what in self.run.problems],
        }

    def __repr__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        return as_html(self)


def describe_metrics(run: Run | str, *, names: Sequence[str] | None = None) -> MetricsDescription:
    """Say what the files of one run hold.

    Parameters
    ----------
    run
        The run, or the files that hold its metrics.
    names
        Look at these metrics only.

    Raises
    ------
    InputError
        A name is not there.
    NotComparable
        The run has no metrics.
    """
    loaded = as_run(run)
    if loaded.metrics.is_empty():
        raise NotComparable(
            f"{loaded.label} ({loaded.source}) holds no step metrics.",
            "give the log or event files of the same run",
        )
    chosen = names_of(loaded, loaded, names, {})
    parts = loaded.metrics.partition_by("name", maintain_order=True)
    rows = [_row(part) for part in parts if str(part["name"][0]) in chosen]
    return MetricsDescription(loaded, pl.DataFrame(rows, DESCRIPTION_COLUMNS), replays_of(loaded))


def _row(rows: pl.DataFrame) -> dict[str, Any]:
    numbers = rows.filter(pl.col("value").is_finite())["value"]
    measures = bool(rows[:1].select(is_measurement(pl.col("name"))).item())
    one = rows.rename({name: f"{name}_a" for name in ("value", "state", "width", "resolution")})
    counts = dict(rows["state"].value_counts().cast({"state": pl.String}).rows())
    return {
        "name": str(rows["name"][0]),
        "kind": "measurement" if measures else "metric",
        "steps": rows["step"].n_unique(),
        "first_step": rows["step"].min(),
        "last_step": rows["step"].max(),
        "first": numbers.first(ignore_nulls=True) if len(numbers) else None,
        "last": numbers.last(ignore_nulls=True) if len(numbers) else None,
        "min": numbers.min(),
        "max": numbers.max(),
        "resolution": resolution_words(one, runs="a"),
        **{state: counts.get(state, 0) for state in METRIC_STATES},
    }


def _lines(told: MetricsDescription) -> list[str]:
    steps, num = told.run.metrics["step"].unique(), len(told.metrics)
    lines = [wrapped(f"{told.run.label}: {num} {plural('metric', num)}, {where(steps)}.")]
    for file in told.files[:_MAX_LINES]:
        what = f"{file['format'] or 'no format'}, {file['num_records']:,} records"
        lines.append(wrapped(f"  {file['source']}: {what} ({file['why']})"))
    lines += _more(len(told.files), _MAX_LINES, "files")
    rows = [_cells(row) for row in told.metrics.head(_MAX_ROWS).to_dicts()]
    lines += ["", *lined_up(rows), *_more(len(told.metrics), _MAX_ROWS, "metrics: see metrics"), ""]
    if len(told.segments) > 1:
        for row in told.segments.head(_MAX_LINES).to_dicts():
            place = f"segment {row['segment']}: steps {row['first_step']} to {row['last_step']}"
            lines.append(wrapped(f"{place} ({row['source']}; {row['why']})"))
        lines += _more(len(told.segments), _MAX_LINES, "segments: see segments")
    lines += map(wrapped, replay_lines(told.replays))
    lines += [wrapped(f"problem: {what}") for what in told.run.problems[:_MAX_LINES]]
    return [*lines, *_more(len(told.run.problems), _MAX_LINES, "problems: see run.problems")]


def _more(num: int, shown: int, what: str) -> list[str]:
    return [f"  … and {num - shown} more {what}"] if num > shown else []


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    odd = [f"{row[state]:,} {state}" for state in METRIC_STATES[1:] if row[state]]
    span = "no number" if row["min"] is None else f"{row['min']:.6g} to {row['max']:.6g}"
    measures = " (measurement)" if row["kind"] == "measurement" else ""
    known = "; ".join(each for each in (row["resolution"], ", ".join(odd)) if each)
    return short_name(row["name"]), f"{row['steps']:,} steps", f"{span}{measures}", known

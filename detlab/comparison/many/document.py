"""The classes of many runs by step metrics, in the JSON form that `detlab metrics` shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from detlab.readers.metrics.frame import METRIC_STATES

if TYPE_CHECKING:
    from detlab.comparison.many import ManyComparison

_LARGEST: Final = float(np.finfo(np.float32).max)

SCHEMA: Final = "detlab.metrics/1"


def metrics_json(many: ManyComparison) -> dict[str, Any]:
    """Give the classes in their JSON form, see ``detlab/schemas/metrics.json``."""
    metrics, steps = many.metrics, many.metrics.places["step"]
    first, names = metrics.first()
    return {
        "schema": SCHEMA,
        "runs": list(many.labels),
        "verdict": many.verdict,
        "evidence": many.evidence.name.lower(),
        "complete": many.complete,
        "coverage": {"steps": steps.n_unique(), "first_step": steps.min(), "last_step": steps.max()},
        "first": None if first is None else {"step": first, "metrics": names},
        "metrics": _metrics(many),
        "classes": [list(members) for members in many.classes],
        "conclusion": many.conclusion,
        "segments": _segments(many),
        "problems": [{"where": where, "what": what} for where, what in many.problems],
    }


def _metrics(many: ManyComparison) -> list[dict[str, Any]]:
    """Sum up each metric over the steps at which two runs or more have a class."""
    numbers = many.metrics.numbers
    places = many.metrics.places.with_columns(
        common=pl.Series((numbers > 0).sum(axis=1) > 1, dtype=pl.Boolean),
        several=pl.Series(numbers.max(axis=1, initial=0) > 1, dtype=pl.Boolean),
    )
    step = pl.col("step")
    rows = places.group_by("name").agg(
        steps_common=pl.col("common").sum(),
        steps_different=pl.col("several").sum(),
        first_step=step.filter("several").min(),
        evidence=pl.when(pl.col("resolution").count() > 0).then(pl.lit("printed")).otherwise(pl.lit("exact")),
    )
    units = _resolution_ulps(many)
    return [
        row | {"resolution_ulp": units.get(row["name"]), "states": _states(many, row["name"])}
        for row in rows.sort("name").to_dicts()
    ]


def _resolution_ulps(many: ManyComparison) -> dict[str, float]:
    """Give the median resolution of each printed metric in units in the last place of a float32."""
    value, unit = pl.col("value"), pl.col("resolution")
    known = value.is_finite() & (value != 0) & (value.abs() < _LARGEST) & (unit > 0)
    rows = pl.concat(
        run.metrics.filter(known).select(pl.col("name").cast(pl.String), "value", "resolution")
        for run in many.runs
    )
    spacing = np.spacing(np.abs(rows["value"].to_numpy()).astype(np.float32)).astype(np.float64)
    ulps = rows.select("name", ulp=pl.Series(rows["resolution"].to_numpy() / spacing))
    return dict(ulps.group_by("name").agg(pl.col("ulp").median()).rows())


def _states(many: ManyComparison, name: str) -> list[dict[str, Any]]:
    """Count the numbers of each run in each state, in the order of the states."""
    counts = [
        dict(run.metrics.filter(pl.col("name") == name)["state"].cast(pl.String).value_counts().rows())
        for run in many.runs
    ]
    found = [state for state in METRIC_STATES if any(state in each for each in counts)]
    return [{"state": state, "runs": [each.get(state, 0) for each in counts]} for state in found]


def _segments(many: ManyComparison) -> list[dict[str, Any]]:
    return [
        {"run": label} | row
        for run, label in zip(many.runs, many.labels, strict=True)
        for row in (run.log.segments.to_dicts() if run.log else ())
    ]

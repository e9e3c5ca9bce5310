"""Megatron's golden values: one JSON file with ``start_step``, ``step_interval`` and ``values`` a metric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.errors import TraceError
from detlab.readers.metrics.files import FileFormat, FileNumbers
from detlab.readers.metrics.frame import join_metrics, missing_metrics
from detlab.readers.metrics.json_numbers import Written, read_json, step_of
from detlab.readers.metrics.numbers import metrics_of_width, native_widths

_NOT_RUN: Final = "nan"
"""The string (not the literal) that stands for a step that a resumed run did not execute."""

_SCHEMA: Final[dict[str, Any]] = {"step": pl.Int64, "name": pl.String, "text": pl.String}


def recognise(path: Path, head: bytes) -> str:
    """Look for the keys of one metric."""
    if head.lstrip().startswith(b"{") and b'"start_step"' in head and b'"values"' in head:
        return "it is JSON with start_step and values"
    return ""


def read(path: Path) -> FileNumbers:
    """Read golden values.

    A step at which every metric is the string "nan" was not run, and has no row. One at which others have
    numbers was run: its "nan" is absent. The literal NaN is NaN.

    Raises
    ------
    TraceError
        The file is cut, is no JSON, or has no metric.
    """
    content = read_json(path)
    entries = list(_entries(content)) if isinstance(content, dict) else []
    problems = tuple(f"{path.name}: {each.problem}" for each in entries if each.problem)
    if all(each.problem for each in entries):
        raise TraceError(
            f"{path} holds no golden value{': ' + entries[0].problem if entries else ''}.",
            "give the JSON file with start_step, end_step, step_interval and values for each metric",
        )
    good = [(each.step, each.name, each.text) for each in entries if not each.problem]
    rows = pl.DataFrame(good, _SCHEMA, orient="row")
    numbers = rows.filter(pl.col("text").is_not_null())
    run = numbers["step"].unique()
    gaps = rows.filter(pl.col("text").is_null())
    absent = gaps.filter(pl.col("step").is_in(run.implode())).with_columns(
        state=pl.lit("absent"), note=pl.lit('written as "nan": not logged, or NaN')
    )
    not_run = gaps.filter(~pl.col("step").is_in(run.implode()))["step"].n_unique()
    note = f'{not_run} steps of which every metric is the string "nan" were not run' if not_run else ""
    return FileNumbers(join_metrics([_of_one_file(numbers), missing_metrics(absent)]), problems, note)


class _Entry(NamedTuple):
    step: int = -1
    name: str = ""
    text: str | None = None
    problem: str = ""


def _entries(content: dict[str, Any]) -> Iterator[_Entry]:
    """Give every value of every metric, or what is wrong with it; null where it is not there."""
    for name, metric in content.items():
        steps = _steps(metric)
        if steps is None:
            yield _Entry(problem=f"'{name}' has no values by step")
            continue
        for key, value in steps:
            step = step_of(key)
            if step is None:
                yield _Entry(problem=f"'{name}' has a value at '{key}', which is no step")
            elif isinstance(value, Written):
                yield _Entry(step, name, str(value))
            elif value == _NOT_RUN or value is None:
                yield _Entry(step, name)
            else:
                yield _Entry(problem=f"'{name}' of step {step} is {value!r:.40}, which is no number")


def _steps(metric: object) -> list[tuple[str, object]] | None:
    """Give (step, value) of one metric; older files have a list, and the steps in numbers beside it."""
    if not isinstance(metric, dict):
        return None
    values = metric.get("values")
    if isinstance(values, list):
        start, interval = (step_of(metric.get(key)) for key in ("start_step", "step_interval"))
        if start is None or not interval:
            return None
        return [(str(start + index * interval), value) for index, value in enumerate(values)]
    return list(values.items()) if isinstance(values, dict) else None


def _of_one_file(numbers: pl.DataFrame) -> pl.DataFrame:
    """Make metrics; where the file was rounded, all its values were, and as far as the longest shows."""
    widths = native_widths(numbers)
    if any(widths.values()):
        return metrics_of_width(numbers, widths)
    metrics = metrics_of_width(numbers, widths)
    return metrics.with_columns(
        resolution=pl.when(pl.col("resolution").is_not_null()).then(pl.col("resolution").min())
    )


GOLDEN: Final = FileFormat("Megatron golden values", recognise, read)

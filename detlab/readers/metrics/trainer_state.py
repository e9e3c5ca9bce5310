"""Hugging Face's ``trainer_state.json``: one entry of ``log_history`` for each time that it logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.errors import TraceError
from detlab.readers.metrics.files import FileFormat, FileNumbers
from detlab.readers.metrics.frame import join_metrics, missing_metrics
from detlab.readers.metrics.json_numbers import Written, read_json, step_of
from detlab.readers.metrics.numbers import metrics_of_width, native_widths

FILTERED: Final = "logged as 0 beside a grad norm of NaN: logging_nan_inf_filter leaves NaN losses out"

_SCHEMA: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "name": pl.String,
    "text": pl.String,
    "segment": pl.UInt16,
    "filtered": pl.Boolean,
}


def recognise(path: Path, head: bytes) -> str:
    """Look for the list of entries."""
    named = path.name == "trainer_state.json"
    listed = head.lstrip().startswith(b"{") and b'"log_history"' in head
    return "it is JSON with log_history" if listed else "its name is trainer_state.json" if named else ""


def read(path: Path) -> FileNumbers:
    """Read the history of a trainer, with that of the runs which it resumed.

    A segment begins where the steps of the entries go back. A loss of 0 beside a grad norm of NaN is NaN:
    ``logging_nan_inf_filter`` had left it out of the mean.

    Raises
    ------
    TraceError
        The file is cut, is no JSON, or has no entry.
    """
    content = read_json(path)
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list):
        raise TraceError(f"{path} has no list log_history.", "give the trainer_state.json of a checkpoint")
    steps = [step_of(entry.get("step")) if isinstance(entry, dict) else None for entry in history]
    problems = tuple(
        f"{path.name}: entry {index} of log_history has no step"
        for index, step in enumerate(steps)
        if step is None
    )
    entries = [(step, entry) for step, entry in zip(steps, history, strict=True) if step is not None]
    rows = pl.DataFrame(list(_rows(entries)), _SCHEMA, orient="row")
    if not len(rows):
        raise TraceError(
            f"{path} has no number in any entry of log_history.",
            "give a checkpoint saved after the first log",
        )
    plain = rows.filter(~pl.col("filtered") & pl.col("text").is_not_null())
    filtered = rows.filter("filtered").with_columns(state=pl.lit("nan"), note=pl.lit(FILTERED))
    null = rows.filter(pl.col("text").is_null()).with_columns(state=pl.lit("absent"), note=pl.lit("null"))
    numbers = metrics_of_width(plain, native_widths(rows.filter(pl.col("text").is_not_null())))
    missing = missing_metrics(pl.concat([filtered, null]))
    return FileNumbers(join_metrics([numbers, missing]), problems)


def _rows(entries: list[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, str, str | None, int, bool]]:
    steps = np.array([step for step, _ in entries], np.int64)
    segments = np.cumsum(np.diff(steps, prepend=steps[:1]) < 0).tolist()
    for (step, entry), segment in zip(entries, segments, strict=True):
        no_norm = _is_nan(entry.get("grad_norm"))
        for name, value in entry.items():
            if name != "step" and (value is None or isinstance(value, Written)):
                text = None if value is None else str(value)
                yield step, name, text, segment, name == "loss" and no_norm and _is_zero(text)


def _is_nan(value: object) -> bool:
    return isinstance(value, Written) and value == "NaN"


def _is_zero(text: str | None) -> bool:
    return text is not None and float(text) == 0


TRAINER_STATE: Final = FileFormat("trainer_state.json", recognise, read)

"""What a format is of which a whole file is numbers, and what is read from one such file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

_MANY: Final = 1000
"""More restarts than a run has: its rows are in no order."""


class FileNumbers(NamedTuple):
    """What one file holds.

    Attributes
    ----------
    metrics
        The columns of `METRIC_SCHEMA`, with segments from 0; ``source`` need not be set.
    problems
        One sentence for each thing that is missing or damaged, with its place.
    note
        What is to be said of the file and is no problem; "" for nothing.
    started
        When the file was begun, in seconds since 1970; None when it does not say.
    """

    metrics: pl.DataFrame
    problems: tuple[str, ...] = ()
    note: str = ""
    started: float | None = None
    ended: float | None = None


class FileFormat(NamedTuple):
    """A format of which a whole file is numbers.

    Attributes
    ----------
    name
        What the format is called for people.
    recognise
        Takes a file and its first bytes to what shows that it is of this format; "" when it is not.
    read
        Takes a file to its numbers; a `TraceError` where it is damaged beyond use.
    """

    name: str
    recognise: Callable[[Path, bytes], str]
    read: Callable[[Path], FileNumbers]


def count_segments(rows: pl.DataFrame) -> NDArray[np.int64]:
    """Count the segments of a file: one begins where the steps of a metric of the present one go back.

    Parameters
    ----------
    rows
        ``step``, ``name`` and perhaps ``rank`` in the order in which they were written.
    """
    key = ["name", "rank"] if "rank" in rows.columns else ["name"]
    before = rows.with_row_index("index").select(
        pl.col("index").shift().over(key),
        back=(pl.col("step") < pl.col("step").shift().over(key)).fill_null(False),
    )
    begins = np.zeros(len(rows), np.int64)
    start = 0
    previous = before["index"].to_numpy()
    for at in np.flatnonzero(before["back"].to_numpy()):
        if previous[at] >= start:
            start = int(at)
            begins[at] = 1
    return np.cumsum(begins) if begins.sum() < _MANY else np.zeros_like(begins)

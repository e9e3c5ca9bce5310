"""What a format is of which a whole file is numbers, and what is read from one such file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl


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

"""Text files of one number a step, to its last bit: ``1 8.296810150146484``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import polars as pl

from detlab.errors import TraceError
from detlab.readers.metrics.files import FileFormat, FileNumbers, count_segments
from detlab.readers.metrics.lines import line_frames
from detlab.readers.metrics.numbers import may_be_cut, written_metrics

_NUMBER: Final = r"[-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|(?i:nan|inf|infinity))"
_LINE: Final = rf"^\s*(?<step>[0-9]{{1,18}})[ \t]+(?<text>{_NUMBER})\s*$"
_BESIDE: Final = r"^\s*(#.*)?$"
_HEAD: Final = re.compile(rb"^\s*[0-9]+[ \t]+[-+]?([0-9]+\.[0-9]+(e[-+]?[0-9]+)?|nan|inf)\s*$", re.I)
_TITLE: Final = re.compile(rb"^\s*(#.*)?$")

_SHOWN: Final = 3
NAME: Final = "loss"
"""The files that are in use hold losses."""


def recognise(path: Path, head: bytes) -> str:
    """Look at the first lines: each is a step and a number, or a comment."""
    lines = [line for line in head.splitlines()[:-1] or [head] if not _TITLE.match(line)][:20]
    if lines and all(_HEAD.match(line) for line in lines):
        return "its lines are a step and a number each"
    return ""


def read(path: Path) -> FileNumbers:
    """Read a file of steps and numbers; a segment begins where the steps go back.

    Raises
    ------
    TraceError
        No line is a step and a number, or the file is not text.
    """
    lines = pl.concat([*line_frames(path)] or [pl.DataFrame(schema={"text": pl.String})])
    lines = lines.filter(~pl.col("text").str.contains(_BESIDE)) if len(lines) else lines
    parts = lines.with_columns(pl.col("text").str.extract_groups(_LINE).alias("parts"))
    fields = parts.drop("text").unnest("parts") if len(lines) else None
    good = fields.filter(pl.col("text").is_not_null()) if fields is not None else None
    if fields is None or good is None or not len(good):
        raise TraceError(
            f"{path} has no line with a step and a number.", "give a file with lines like 1 8.296810150146484"
        )
    problems = _no_numbers(path, fields)
    if not good["whole"][-1] and may_be_cut(good["text"]):
        problems.append(
            f"{path.name}, line {good['line'][-1]}: the last number may have been cut; it is left out"
        )
        good = good[:-1]
    rows = good.with_columns(pl.col("step").cast(pl.Int64), name=pl.lit(NAME))
    rows = rows.with_columns(segment=pl.Series(count_segments(rows), dtype=pl.UInt16))
    return FileNumbers(
        written_metrics(rows.select("step", "name", "text", "segment", "line")), tuple(problems)
    )


def _no_numbers(path: Path, fields: pl.DataFrame) -> list[str]:
    bad = fields.filter(pl.col("text").is_null())["line"]
    told = [f"{path.name}, line {line}: no step and number" for line in bad.head(_SHOWN)]
    more = len(bad) - _SHOWN
    return [*told, f"{path.name}: and {more} more lines without a step and a number"] if more > 0 else told


STEP_VALUE: Final = FileFormat("steps and numbers", recognise, read)

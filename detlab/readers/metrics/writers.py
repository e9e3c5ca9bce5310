"""Files of one run in the order of time: those that follow a restart, and those written side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from detlab.readers.metrics.assemble import FileContent

_RANK: Final = re.compile(r"^rank[_-]?(\d+)$")

Files = list[tuple[Path, FileContent]]


def in_order_of_time(files: Sequence[tuple[Path, FileContent]]) -> list[FileContent]:
    """Put the files that say when they were begun in that order; the others stay where they are.

    Files that were written during the same time are of several writers, and none follows a restart. Where
    two of these have a metric of one name, it is of the rank that the folder is named after, or is named
    after the folder (``validation/loss``), or after the place of its file among them (``writer_1/loss``).
    Where files of two formats have a metric at a step, it is that of the format with more exact numbers.
    """
    timed = sorted(
        (each for each in files if each[1].started is not None), key=lambda each: each[1].started or 0.0
    )
    ordered = iter([content for group in _groups(timed) for content in _told_apart(group)])
    return _said_once([content if content.started is None else next(ordered) for _, content in files])


def _said_once(files: list[FileContent]) -> list[FileContent]:
    """Leave out what files of another format have as well, with more of its bits."""
    formats = {file.format: [each.metrics for each in files if each.format == file.format] for file in files}
    if sum(any(map(len, parts)) for parts in formats.values()) < 2:
        return files
    share = (pl.col("width") > 0).mean().fill_null(0)
    exact = {name: float(pl.concat(parts).select(share).item()) for name, parts in formats.items()}
    order = sorted(exact, key=lambda name: -exact[name])
    key = ["step", "name"]
    told: list[FileContent] = []
    for file in files:
        better = order[: order.index(file.format)]
        kept = file.metrics
        for name in better:
            kept = kept.join(pl.concat(formats[name]), on=key, how="anti", maintain_order="left")
        also = f"; {', '.join(better)} have {len(file.metrics) - len(kept)} of its numbers as well"
        told.append(
            file._replace(
                metrics=kept, why=f"{file.why}{also}" if len(kept) < len(file.metrics) else file.why
            )
        )
    return told


def _groups(files: Files) -> list[Files]:
    """Put files together that were written during the same time."""
    groups: list[Files] = []
    latest = 0.0
    for path, content in files:
        if not groups or (content.started or 0.0) >= latest:
            groups.append([])
        groups[-1].append((path, content))
        latest = max(latest, content.ended or 0.0)
    return groups


def _told_apart(group: Files) -> list[FileContent]:
    """Give the names of several writers their folder, and all one segment."""
    named = [set(content.metrics["name"].unique()) for _, content in group]
    folders = {path.parent for path, _ in group}
    told: list[FileContent] = []
    for index, (path, content) in enumerate(group):
        others = set().union(*named[:index], *named[index + 1 :])
        label = path.parent.name if len(folders) == len(group) else f"writer_{index}"
        metrics = _labelled(content.metrics, label, named[index] & others)
        why = content.why
        first = next((each.source for each in told if len(each.metrics)), "")
        if first and len(metrics):
            why = f"{why}; written during the same time as {first}"
        beside = bool(first) and len(metrics) > 0
        told.append(content._replace(metrics=metrics, why=why, beside=beside))
    return told


def _labelled(metrics: pl.DataFrame, label: str, names: set[str]) -> pl.DataFrame:
    """Say in the rank or in the name of these metrics whose they are."""
    if not names:
        return metrics
    rank = _RANK.match(label)
    if rank:
        return metrics.with_columns(rank=pl.lit(int(rank[1]), pl.Int64))
    name = pl.col("name").cast(pl.String)
    longer = pl.when(name.is_in(list(names))).then(pl.concat_str(pl.lit(f"{label}/"), name)).otherwise(name)
    return metrics.with_columns(name=longer.cast(pl.Categorical))

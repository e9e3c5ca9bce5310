"""A run: one execution of training as it was recorded, whatever format it came in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.schema import Coordinate
from detlab.store import Manifest, RankTrace, Subset, spans
from detlab.text import bounded

if TYPE_CHECKING:
    import polars as pl

    from detlab.readers.metrics.log import Log

__all__ = ["Run", "left_out", "spans"]


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """One execution of training.

    Attributes
    ----------
    label
        Name of the run for people.
    source
        The folder or file it was read from.
    manifest
        What is true of the whole run.
    ranks
        One `RankTrace` per recorded rank, by global rank.
    metrics
        One row per number, with the columns of `detlab.readers.metrics.METRIC_SCHEMA`: ``step``, ``rank``,
        ``name``, ``value``, and what equality of two values can prove.
    captures
        Folders of the calls captured in this run.
    problems
        One sentence for each thing that is missing or damaged.
    subset
        The ranks and steps that were asked for when it was loaded.
    left_out_ranks, left_out_steps
        Ranks and steps that were recorded and not asked for; nothing of them was read.
    log
        What its log files say beside the metrics; None for a trace.
    """

    label: str
    source: str
    manifest: Manifest
    ranks: tuple[RankTrace, ...]
    metrics: pl.DataFrame
    captures: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()
    subset: Subset = Subset()  # noqa: RUF009 - frozen, and takes all
    left_out_ranks: tuple[int, ...] = ()
    left_out_steps: tuple[int, ...] = ()
    log: Log | None = None

    @property
    def num_events(self) -> int:
        """Number of whole events over all ranks."""
        return sum(rank.num_events for rank in self.ranks)

    @property
    def num_bytes(self) -> int:
        """Size of the files of its ranks; 0 for a run that was made in memory."""
        return sum(rank.num_bytes for rank in self.ranks)

    @property
    def steps(self) -> list[int]:
        """The steps that any rank has events of, ascending."""
        return sorted({step for rank in self.ranks for step in rank.steps})

    @property
    def by_coordinate(self) -> dict[Coordinate, RankTrace]:
        """The ranks by their place in the parallel layout."""
        return {rank.header.coordinate: rank for rank in self.ranks}

    def __repr__(self) -> str:
        problems = f", {len(self.problems)} problems" if self.problems else ""
        label = bounded(repr(self.label))
        if not self.ranks:
            steps = self.metrics["step"]
            spanned = f"steps {steps.min()!r} to {steps.max()!r}" if len(steps) else "no steps"
            names = self.metrics["name"].n_unique()
            return f"Run({label}: step metrics only, {names} metrics, {spanned}{problems})"
        size = f", {num_bytes_text(self.num_bytes)}" if self.num_bytes else ""
        asked = "" if self.subset.takes_all else ", the rest left out by request"
        return (
            f"Run({label}: {len(self.ranks)} of {self.manifest.world_size} ranks, "
            f"steps {spans(self.steps)}, {self.num_events:,} events{size}{asked}{problems})"
        )


def left_out(runs: Iterable[Run]) -> dict[str, list[int]]:
    """Give the ``ranks`` and ``steps`` that were left out by request of any of some runs."""
    loaded = list(runs)
    ranks = {rank for run in loaded for rank in run.left_out_ranks}
    return {"ranks": sorted(ranks), "steps": sorted({step for run in loaded for step in run.left_out_steps})}


def num_bytes_text(number: int) -> str:
    """Write a number of bytes for people, for example ``1.3 GB``."""
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"

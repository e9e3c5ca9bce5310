"""A run: one execution of training as it was recorded, whatever format it came in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.schema import Coordinate
from detlab.store import Manifest, RankTrace

if TYPE_CHECKING:
    import polars as pl


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
        One row per step, rank and metric: ``step`` (Int64), ``rank`` (Int64), ``name`` (String),
        ``value`` (Float64).
    captures
        Folders of the calls captured in this run.
    problems
        One sentence for each thing that is missing or damaged.
    """

    label: str
    source: str
    manifest: Manifest
    ranks: tuple[RankTrace, ...]
    metrics: pl.DataFrame
    captures: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def num_events(self) -> int:
        """Number of whole events over all ranks."""
        return sum(rank.num_events for rank in self.ranks)

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
        return (
            f"Run({self.label!r}: {len(self.ranks)} of {self.manifest.world_size} ranks, "
            f"steps {spans(self.steps)}, {self.num_events:,} events{problems})"
        )


def spans(numbers: list[int]) -> str:
    """Write ascending numbers as spans, for example ``0-3, 8``; ``none`` when there are none."""
    parts: list[str] = []
    start = 0
    for position, number in enumerate(numbers):
        if position + 1 == len(numbers) or numbers[position + 1] != number + 1:
            first = numbers[start]
            parts.append(str(number) if first == number else f"{first}-{number}")
            start = position + 1
    return ", ".join(parts) or "none"

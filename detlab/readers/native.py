"""detlab's own traces: one folder a run, written by the recorder."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from detlab.errors import TraceError
from detlab.run import Run
from detlab.store import Manifest, RankTrace, open_rank, read_manifest, read_metric_logs
from detlab.store.layout import CAPTURES, MANIFEST, find_ranks


def matches(path: Path) -> bool:
    """Say whether this is a folder that a recorder wrote into."""
    return path.is_dir() and (bool(find_ranks(path)) or (path / MANIFEST).exists())


def load(path: Path, label: str) -> Run:
    """Load every rank as far as it is whole; what is missing becomes a problem of the run.

    Raises
    ------
    TraceError
        Not one rank can be read.
    """
    manifest, problems = _manifest(path)
    ranks: list[RankTrace] = []
    for rank in find_ranks(path):
        try:
            ranks.append(open_rank(path, rank))
        except TraceError as error:
            problems.append(error.finding)
    if not ranks:
        reason = problems[0] if problems else "it has no rank header"
        raise TraceError(f"{path} holds no readable rank: {reason}", "record the run anew, or copy it again")
    problems += [problem for rank in ranks for problem in rank.problems]
    metrics, more = read_metric_logs(path)
    return Run(
        label=label or manifest.label or path.name,
        source=str(path),
        manifest=manifest,
        ranks=tuple(ranks),
        metrics=pl.DataFrame(metrics, METRICS_SCHEMA, orient="row"),
        captures=tuple(sorted(found.parent for found in path.glob(f"{CAPTURES}/*/capture.json"))),
        problems=tuple(problems + more),
    )


METRICS_SCHEMA = {"step": pl.Int64, "rank": pl.Int64, "name": pl.String, "value": pl.Float64}
"""Columns of `Run.metrics`."""


def _manifest(path: Path) -> tuple[Manifest, list[str]]:
    try:
        return read_manifest(path), []
    except TraceError as error:
        return Manifest("", world_size=len(find_ranks(path))), [error.finding]

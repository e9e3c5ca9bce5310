"""detlab's own traces: one folder a run, written by the recorder."""

from __future__ import annotations

from pathlib import Path

from detlab.errors import TraceError
from detlab.progress import bar
from detlab.readers.metrics.frame import recorded_metrics
from detlab.run import Run
from detlab.store import (
    Manifest,
    RankTrace,
    Subset,
    open_rank,
    read_manifest,
    read_metric_logs,
    select_steps,
)
from detlab.store.layout import CAPTURES, MANIFEST, find_ranks


def matches(path: Path) -> bool:
    """Say whether this is a folder that a recorder wrote into."""
    return path.is_dir() and (bool(find_ranks(path)) or (path / MANIFEST).exists())


def load(path: Path, label: str, subset: Subset) -> Run:
    """Load the ranks asked for as far as they are whole; what is missing becomes a problem of the run.

    Raises
    ------
    InputError
        No rank is asked for.
    TraceError
        Not one rank can be read.
    """
    manifest, problems = _manifest(path)
    ranks: list[RankTrace] = []
    chosen, left_out = subset.choose_ranks(find_ranks(path), path)
    with bar(f"loading {path.name}", len(chosen), "rank") as shown:
        for rank in shown.over(chosen):
            try:
                ranks.append(open_rank(path, rank))
            except TraceError as error:
                problems.append(error.finding)
    if not ranks:
        reason = problems[0] if problems else "it has no rank header"
        raise TraceError(f"{path} holds no readable rank: {reason}", "record the run anew, or copy it again")
    problems += [problem for rank in ranks for problem in rank.problems]
    steps = {step for rank in ranks for step in rank.steps}
    metrics, more = read_metric_logs(path)
    metrics = [row for row in metrics if row[0] in subset.steps and row[1] in subset.ranks]
    return Run(
        label=label or manifest.label or path.name,
        source=str(path),
        manifest=manifest,
        ranks=tuple(select_steps(rank, subset.steps) for rank in ranks),
        metrics=recorded_metrics(metrics),
        captures=tuple(sorted(found.parent for found in path.glob(f"{CAPTURES}/*/capture.json"))),
        problems=tuple(problems + more),
        subset=subset,
        left_out_ranks=left_out,
        left_out_steps=tuple(sorted(step for step in steps if step not in subset.steps)),
    )


def _manifest(path: Path) -> tuple[Manifest, list[str]]:
    try:
        return read_manifest(path), []
    except TraceError as error:
        return Manifest("", world_size=len(find_ranks(path))), [error.finding]

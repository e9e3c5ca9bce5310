"""Readers: any known format becomes a `Run`; one file and one line here for each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from detlab.errors import TraceError
from detlab.readers import megatron_bridge, metrics, native, rank_local
from detlab.run import Run
from detlab.store import Selectable, Subset, empty_selection

__all__ = ["as_run", "load_run"]

Place = str | PathLike[str]


class Format(NamedTuple):
    """A format: whether a path looks like it, and how the part of it that is asked for is read."""

    matches: Callable[[Path], bool]
    load: Callable[[Path, str, Subset], Run]


FORMATS: Final[dict[str, Format]] = {
    "detlab trace (rank*.header.json)": Format(native.matches, native.load),
    "Megatron-Bridge streams (*.fp)": Format(megatron_bridge.matches, megatron_bridge.load),
    "rank-local JSONL (rank_*.jsonl)": Format(rank_local.matches, rank_local.load),
}
"""Every known format of traces by the words that describe it, in the order in which they are tried.

A path that is none of these may be a log or another file of step metrics: `detlab.readers.metrics`.
"""


def load_run(
    path: Place | Sequence[Place],
    *,
    label: str | None = None,
    format: str | None = None,
    ranks: Selectable = None,
    steps: Selectable = None,
) -> Run:
    """Load one run from a folder or file of any known format.

    Parameters
    ----------
    path
        Where the run was recorded; several paths for a run that left several logs.
    label
        Name of the run for people; by default what the run calls itself.
    format
        The format of its step metrics, such as ``"megatron"``, in place of what the files look like.
    ranks, steps
        Load these only, as global ranks and as the run counts its steps: ``"0,8-15"``, a number, numbers,
        or None for all. Files of other ranks are not opened beyond their header, and of detlab's own
        traces the segments of other steps are not read. Verdicts are about what was asked for.

    Raises
    ------
    InputError
        ``ranks`` or ``steps`` is no selection, or the run has none of them; or the format is unknown.
    TraceError
        There is nothing there, or nothing that any reader knows.
    """
    subset = Subset.parse(ranks, steps)
    places = [Path(each) for each in ([path] if isinstance(path, str | PathLike) else path)]
    for place in places:
        if not place.exists():
            raise TraceError(
                f"{place} does not exist.", "give the folder that the recorder wrote into, or a log"
            )
    if format is None and len(places) == 1:
        for known in FORMATS.values():
            if known.matches(places[0]):
                return _not_empty(known.load(places[0], label or "", subset))
    try:
        return metrics.load(places, label or "", subset, format or "")
    except metrics.NoRecords as error:
        where = ", ".join(map(str, places))
        traces = "; ".join(FORMATS)
        raise TraceError(
            f"{where} holds no trace that detlab knows ({traces}) and {error}", error.hint
        ) from None


def _not_empty(run: Run) -> Run:
    """Refuse a run of which no step was asked for; a reader refuses one of which no rank was."""
    if run.left_out_steps and not run.steps and run.metrics.is_empty():
        raise empty_selection(run.source, "steps", run.subset.steps, run.left_out_steps)
    return run


def as_run(run: Run | Place | Sequence[Place]) -> Run:
    """Give a run as it is, or load it from where it was recorded."""
    return run if isinstance(run, Run) else load_run(run)

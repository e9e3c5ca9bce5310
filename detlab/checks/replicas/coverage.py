"""What a check of replicas could not look at: ranks, axes, steps and kinds that the trace does not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from detlab.checks.result import NotChecked
from detlab.comparison.replicated import Tensor
from detlab.run import Run, spans
from detlab.text import plural

_LATERAL: Final = ("dp", "tp")
"""Axes along which ranks are compared; context-parallel ranks are compared with the data-parallel ones."""

_MOST_LISTED: Final = 1_000_000
"""Numbers of ranks that are listed; a manifest that says more was damaged, and is not believed."""

_KINDS: Final = {
    "collective": "record the ranks that take part in one",
    "parameter": "record the forward and the optimizer of two data-parallel ranks, with inputs",
    "name": "record the optimizer, or the state, of two tensor-parallel ranks",
}
"""Kinds of replicas by their basis, and what a recording needs to show one."""

_WHAT: Final = {
    "collective": "results of collectives",
    "parameter": "parameters of data-parallel ranks, by their memory",
    "name": "parameters and gradients that tensor-parallel ranks hold whole",
}


def not_checked(run: Run, tensors: Sequence[Tensor]) -> list[NotChecked]:
    """Say what a check of the replicas of a run did not look at, and why."""
    return [*_ranks(run), *_axes(run), *_steps(run), *_kinds(run, tensors), *_others(tensors)]


def _ranks(run: Run) -> Iterator[NotChecked]:
    recorded = {trace.header.rank for trace in run.ranks}
    asked = sorted(set(run.left_out_ranks) - recorded)
    if asked:
        yield NotChecked(f"ranks {spans(asked)}", "left out by request")
    num_missing = run.manifest.world_size - len(recorded) - len(asked)
    if num_missing > _MOST_LISTED:
        yield NotChecked(f"{num_missing:,} ranks", f"not recorded: {len(recorded)} of {_world(run)} are")
        return
    missing = sorted(set(range(run.manifest.world_size)) - recorded - set(asked))
    if missing:
        yield NotChecked(f"ranks {spans(missing)}", f"not recorded: {len(recorded)} of {_world(run)} are")


def _world(run: Run) -> str:
    return f"{run.manifest.world_size} {plural('rank', run.manifest.world_size)}"


def _axes(run: Run) -> Iterator[NotChecked]:
    for axis in _LATERAL:
        size = run.manifest.layout.get(axis, 1)
        seen = {getattr(trace.header.coordinate, axis) for trace in run.ranks}
        if size > 1 and len(seen) < 2:
            yield NotChecked(f"axis {axis}", f"ranks of {len(seen)} of its {size} places are recorded")
    if run.manifest.layout.get("ep", 1) > 1:
        why = "dense parameters are compared only among ranks that hold the same experts"
        yield NotChecked("axis ep", why)


def _steps(run: Run) -> Iterator[NotChecked]:
    common = set.intersection(*(set(trace.steps) for trace in run.ranks)) if run.ranks else set()
    some = sorted(set(run.steps) - common)
    if some:
        yield NotChecked(f"steps {spans(some)}", "not every recorded rank has them")
    if run.left_out_steps:
        yield NotChecked(f"steps {spans(list(run.left_out_steps))}", "left out by request")


def _kinds(run: Run, tensors: Sequence[Tensor]) -> Iterator[NotChecked]:
    """Name the kinds of replicas of which the trace shows none, where its layout has any."""
    shown = {tensor.basis or tensor.agrees_as for tensor in tensors}
    needed = {
        "collective": len(run.ranks) > 1,
        "parameter": run.manifest.layout.get("dp", 1) > 1 and "history" not in shown,
        "name": run.manifest.layout.get("tp", 1) > 1,
    }
    for basis, hint in _KINDS.items():
        if needed[basis] and basis not in shown:
            yield NotChecked(_WHAT[basis], f"the trace shows none: {hint}")


def _others(tensors: Sequence[Tensor]) -> Iterator[NotChecked]:
    num = sum(not tensor.drift and not tensor.agrees_as for tensor in tensors)
    if num:
        why = "shards and partial sums differ by design, and nothing says that these are replicas"
        yield NotChecked(f"{num:,} other {plural('tensor', num)} that ranks show under one name", why)

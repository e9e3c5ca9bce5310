"""Check one run against itself: ranks that should hold the same tensor, and where they do not."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from os import PathLike
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.comparison.replicated import Group, Tensor, name_of, tensors_of_ranks
from detlab.errors import NotComparable
from detlab.readers import as_run
from detlab.run import Run, spans
from detlab.schema import Phase, Site

REPLICA_COLUMNS: Final[dict[str, Any]] = {
    "axis": pl.String,
    "ranks": pl.List(pl.Int64),
    "scope": pl.String,
    "op": pl.String,
    "basis": pl.String,
    "first_step": pl.Int64,
    "site": pl.String,
    "outliers": pl.List(pl.Int64),
    "num_values": pl.Int64,
    "num_drifting": pl.Int64,
    "num_tensors": pl.Int64,
    "evidence": pl.String,
    "why": pl.String,
    "next": pl.String,
}
"""Columns of `find_drift`."""


def find_drift(run: Run | str | PathLike[str]) -> pl.DataFrame:
    """Find tensors that ranks should hold alike and do not.

    Parameters
    ----------
    run
        A run with two recorded ranks or more, and its parallel layout; or a path that `detlab.load_run`
        can read.

    Returns
    -------
    One row per kind of tensor that drifts in one set of ranks, the earliest first: ``axis`` (dp, tp, or
    ``group`` for a communicator), ``ranks`` (the members, global ranks), ``scope`` and ``op`` (where it is
    seen; numbers of layers are written ``*``), ``basis`` (why it is a replica: collective, parameter, name
    or history, see `detlab.comparison.replicated`), ``first_step`` and ``site`` (where it is seen to differ
    first), ``outliers`` (the members that differ from the majority there; empty when there is none),
    ``num_values`` (how many different values there are), ``num_drifting`` of ``num_tensors`` (of this
    kind), ``evidence``, ``why``, ``next``. No row: nothing that is known to be a replica differs.

    Raises
    ------
    NotComparable
        The layout is not known, or no two recorded ranks show a tensor that could be compared.
    TraceError
        The run cannot be read.
    """
    return drift_of(tensors_in_common(as_run(run)))


def tensors_in_common(run: Run) -> list[Tensor]:
    """Give every tensor that two recorded ranks or more show, replica or not, followed over the steps.

    Raises
    ------
    NotComparable
        The layout is not known, or no two recorded ranks show a tensor that could be compared.
    """
    if not run.ranks:
        raise NotComparable(f"{run.label} has step metrics and no trace.", "give the folder of a trace")
    if not run.manifest.layout:
        raise NotComparable(
            f"{run.label} does not say how its ranks are laid out.",
            "record it with detlab.Recorder, which asks torch.distributed and Megatron",
        )
    tensors = list(tensors_of_ranks(run))
    if not tensors:
        raise NotComparable(
            f"{run.label} has no two ranks that show the same tensor.",
            "record two data-parallel or tensor-parallel ranks or more, and their optimizer",
        )
    return tensors


_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
"""A part of a scope that is a number, as of a layer; ``fc1`` and ``fc2`` are two kinds."""


class _Kind(NamedTuple):
    """What tensors of one row have in common."""

    group: Group
    source: Hashable
    scope: str
    op: str
    phase: Phase


def _kind(tensor: Tensor) -> _Kind:
    site = tensor.first.site
    scope = _NUMBER.sub("*", site.callee.scope)
    return _Kind(tensor.group, tensor.key[0], scope, site.callee.op, site.phase)


def drift_of(tensors: Sequence[Tensor]) -> pl.DataFrame:
    """Give the frame of `find_drift` for tensors that were followed already."""
    kinds: dict[_Kind, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        kinds[_kind(tensor)].append(tensor)
    rows = []
    for kind, members in kinds.items():
        drifting = [tensor for tensor in members if tensor.drift]
        if drifting:
            first = min(drifting, key=_when)
            rows.append((_when(first), kind, _row(kind, first, len(drifting), len(members))))
    return pl.DataFrame([row for *_, row in sorted(rows, key=lambda each: each[:2])], REPLICA_COLUMNS)


def _when(tensor: Tensor) -> tuple[int, int]:
    return tensor.drift[0].site.step, tensor.drift[0].order


def _row(kind: _Kind, tensor: Tensor, num_drifting: int, num_tensors: int) -> dict[str, Any]:
    site, ranks = tensor.drift[0].site, tensor.group.ranks
    values = Counter(held.digest for held in tensor.drift)
    outliers = _outliers(ranks, [held.digest for held in tensor.drift])
    return {
        "axis": tensor.group.axis,
        "ranks": list(ranks),
        "scope": kind.scope,
        "op": kind.op,
        "basis": tensor.basis,
        "first_step": site.step,
        "site": str(site),
        "outliers": outliers,
        "num_values": len(values),
        "num_drifting": num_drifting,
        "num_tensors": num_tensors,
        "evidence": min(held.evidence for held in tensor.drift).name.lower(),
        "why": f"{_reason(tensor)}; {_who(ranks, outliers)}; {_share(num_drifting, num_tensors)}",
        "next": _next(tensor, site),
    }


def _outliers(ranks: Sequence[int], digests: Sequence[int]) -> list[int]:
    """Give the members that differ from what more than half of them have; two members have no majority."""
    value, num = Counter(digests).most_common(1)[0]
    if 2 * num <= len(digests):
        return []
    return [rank for rank, digest in zip(ranks, digests, strict=True) if digest != value]


def _who(ranks: Sequence[int], outliers: Sequence[int]) -> str:
    if outliers:
        return f"ranks {spans(list(outliers))} differ from the majority"
    return "two members disagree: there is no majority" if len(ranks) == 2 else "there is no majority"


def _share(num_drifting: int, num_tensors: int) -> str:
    return f"{num_drifting} of {num_tensors} tensors of this kind drift ({num_drifting / num_tensors:.0%})"


_REASONS: Final = {
    "collective": "the collective gives every member the same bits",
    "parameter": "data-parallel ranks read one parameter",
    "name": "every tensor-parallel rank holds all of it, by its name",
    "history": "its members were equal before",
}


def is_gradient(site: Site) -> bool:
    """Say whether a site shows a gradient, by its name or the phase that it is in."""
    return "grad" in name_of(site) or site.phase == Phase.GRAD_REDUCE


def _reason(tensor: Tensor) -> str:
    if tensor.basis == "name" and is_gradient(tensor.first.site):
        return f"a gradient that differs after its reduction: a reduction over {tensor.group.axis} is missing"
    return _REASONS[tensor.basis]


def _next(tensor: Tensor, site: Site) -> str:
    ranks = ",".join(map(str, tensor.group.ranks[:8]))
    steps = f"{max(site.step - 1, 0)}-{site.step}"
    return f'record what makes it: detlab.Recorder(…, steps="{steps}", ranks="{ranks}")'

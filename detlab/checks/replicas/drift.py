"""Ranks that should hold the same tensor: what drifts as findings, what agrees as verified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final, NamedTuple, TypeVar

import polars as pl

from detlab.checks.replicas.common_factor import common_factor
from detlab.checks.replicas.coverage import not_checked
from detlab.checks.replicas.places import places_of, places_text
from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.comparison.replicas import drift_of, is_gradient, tensors_in_common
from detlab.comparison.replicated import Tensor, name_of
from detlab.comparison.text import PROVES
from detlab.errors import InputError, NotComparable
from detlab.readers import as_run
from detlab.run import Run, spans
from detlab.schema import Phase, Site
from detlab.text import plural

RunLike = Run | str | PathLike[str]

REPLICAS_COLUMNS: Final[dict[str, Any]] = {
    "run": pl.String,
    "axis": pl.String,
    "ranks": pl.List(pl.Int64),
    "scope": pl.String,
    "op": pl.String,
    "basis": pl.String,
    "first_step": pl.Int64,
    "outliers": pl.List(pl.Int64),
    "places": pl.List(pl.String),
    "num_values": pl.Int64,
    "num_drifting": pl.Int64,
    "num_tensors": pl.Int64,
    "evidence": pl.String,
}
"""Columns that `check_replicas` adds to those of every finding."""

_Said = TypeVar("_Said", Verified, NotChecked)

_OPTIMIZER_STATE: Final = ("exp_avg", "momentum", "optimizer", "variance")


def check_replicas(runs: RunLike | Sequence[RunLike]) -> CheckResult:
    """Check that ranks which should hold the same tensor hold the same bits, in one run or in each of many.

    Parameters
    ----------
    runs
        A run with two recorded ranks or more, and its parallel layout; or a path that `detlab.load_run`
        can read; or a list of these. Of several runs it is asked as well which host or device they have
        in common that drift.

    Returns
    -------
    A finding for each kind of tensor that drifts in one set of ranks. ``component`` is what drifts:
    ``replica of a parameter``, ``gradient after its reduction``, ``optimizer state``, ``result of the
    optimizer`` or ``result of a collective``; of several runs there is ``common factor`` too. Own columns:
    ``run``, ``axis``, ``ranks``, ``scope``, ``op``, ``basis``, ``first_step``, ``outliers`` (global ranks),
    ``places`` (host and device of each outlier, where the run recorded them), ``num_values``,
    ``num_drifting`` of ``num_tensors`` and ``evidence``, as in `detlab.comparison.replicas.find_drift`.
    ``table``, of several runs: one row per host and device that is an outlier or goes with drifting.

    Raises
    ------
    InputError
        No run was given.
    TraceError
        A run cannot be read.
    """
    loaded = _named_apart([as_run(each) for each in _as_list(runs)])
    if not loaded:
        raise InputError("there is no run to check.", "give a run, or several")
    checked = [_check(run) for run in loaded]
    many = len(checked) > 1
    factor = common_factor([(each.run, each.drift) for each in checked]) if many else None
    rows = [row for each in checked for row in each.rows] + (factor.findings if factor else [])
    return CheckResult(
        "replicas",
        tuple(run.label for run in loaded),
        findings_frame(rows, REPLICAS_COLUMNS),
        tuple(_told(each.run, said, many) for each in checked for said in each.verified),
        tuple(_told(each.run, said, many) for each in checked for said in each.not_checked),
        tuple(problem for each in checked for problem in each.problems),
        tuple(note for each in checked for note in each.notes) + (factor.notes if factor else ()),
        factor.table if factor else pl.DataFrame(),
    )


class _Checked(NamedTuple):
    """What one run gave."""

    run: Run
    drift: pl.DataFrame
    rows: list[dict[str, Any]]
    verified: list[Verified]
    not_checked: list[NotChecked]
    problems: list[Problem]
    notes: list[str]


def _as_list(runs: RunLike | Sequence[RunLike]) -> list[RunLike]:
    return [runs] if isinstance(runs, Run | str | PathLike) else list(runs)


def _named_apart(runs: Sequence[Run]) -> list[Run]:
    """Add its place to the label of each run that shares it with another."""
    labels = [run.label for run in runs]
    return [
        run if labels.count(run.label) == 1 else replace(run, label=f"{run.label} ({number}: {run.source})")
        for number, run in enumerate(runs, 1)
    ]


def _told(run: Run, said: _Said, many: bool) -> _Said:
    return said._replace(what=f"{run.label}: {said.what}") if many else said


def _check(run: Run) -> _Checked:
    problems = [Problem(run.label, each) for each in run.problems]
    try:
        tensors = tensors_in_common(run)
    except NotComparable as error:
        problem = Problem(run.label, error.finding)
        notes = [f"{run.label}: {error.hint}"]
        return _Checked(run, drift_of([]), [], [], not_checked(run, []), [*problems, problem], notes)
    drift = drift_of(tensors)
    rows = [_finding(run, row) for row in drift.iter_rows(named=True)]
    return _Checked(run, drift, rows, list(_verified(tensors)), not_checked(run, tensors), problems, [])


def component_of(basis: str, site: Site) -> str:
    """Name what a replica is, in the words of the findings."""
    if basis == "collective":
        return "result of a collective"
    if is_gradient(site):
        return "gradient after its reduction"
    if any(word in name_of(site) for word in _OPTIMIZER_STATE) and site.callee.scope:
        return "optimizer state"
    has_name = bool(site.callee.scope) or site.phase != Phase.OPTIMIZER
    return "replica of a parameter" if has_name else "result of the optimizer"


def _finding(run: Run, row: dict[str, Any]) -> dict[str, Any]:
    """Write what drifts as a finding; the shares and the outliers stand in its first line."""
    ranks, outliers, places = row["ranks"], row["outliers"], places_of(run, row["outliers"])
    who = f"{plural('rank', len(outliers))} {spans(outliers)}{places_text(places)}" if outliers else ""
    left = [rank for rank in ranks if rank not in outliers]
    others = f"{plural('rank', len(left))} {spans(left)}"
    number, total = row["num_drifting"], row["num_tensors"]
    drifts = f"{who} drift{'s' * (len(outliers) == 1)} from {others}" if who else f"{others} disagree"
    name = row["scope"] or row["op"]
    again = "still " if 0 < number < total else ""
    more = f"; {number} of {total} tensors of this kind {again}drift ({number / total:.0%})"
    return {
        **{column: row[column] for column in REPLICAS_COLUMNS if column in row},
        "component": component_of(row["basis"], Site.parse(row["site"])),
        "severity": "error",
        "found": f"{name}: {drifts}; first in step {row['first_step']}{more if total > 1 else ''}",
        "expected": f"the same bits on ranks {spans(ranks)} ({_AXES[row['axis']]})",
        "where": row["site"],
        "why": row["why"],
        "next": row["next"],
        "run": run.label,
        "places": places,
    }


_AXES: Final = {"dp": "data parallel", "tp": "tensor parallel", "group": "members of one communicator"}


def _verified(tensors: Sequence[Tensor]) -> Iterator[Verified]:
    """Count the replicas that agree, by what they are, their axis and what equality rests on."""
    groups: dict[tuple[str, str, int], list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        if basis := tensor.agrees_as:
            what = component_of(basis, tensor.first.site)
            groups[what, tensor.group.axis, -tensor.first.evidence].append(tensor)
    for (what, axis, _), members in sorted(groups.items()):
        ranks = sorted({rank for tensor in members for rank in tensor.group.ranks})
        steps = sorted({step for tensor in members for step in tensor.steps})
        num_values = sum(tensor.num_seen for tensor in members)
        yield Verified(
            what,
            f"{len(members):,} {plural('tensor', len(members))} on ranks {spans(ranks)} ({_AXES[axis]}) "
            f"agree in all {num_values:,} {plural('comparison', num_values)} (steps {spans(steps)})",
            PROVES[members[0].first.evidence],
        )

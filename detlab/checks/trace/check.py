"""Look at every invariant of one trace and say which hold, which do not, and which were not looked at."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any, Final

import polars as pl

from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.checks.trace.coverage import COVERAGE
from detlab.checks.trace.evidence import EVIDENCE
from detlab.checks.trace.files import FILES
from detlab.checks.trace.groups import GROUPS
from detlab.checks.trace.invariants import INVARIANTS, Invariant
from detlab.checks.trace.itself import ITSELF
from detlab.checks.trace.survey import survey
from detlab.checks.trace.told import Breach, Holds, Skipped, Subject
from detlab.progress import bar
from detlab.readers import as_run
from detlab.run import Run
from detlab.store import Selectable, Selection

TRACE_COLUMNS: Final[dict[str, Any]] = {"ranks": pl.List(pl.Int64), "num": pl.Int64}
"""Columns that `check_trace` adds to those of every finding."""

_LOOKS: Final = {**FILES, **COVERAGE, **GROUPS, **EVIDENCE, **ITSELF}


def check_trace(
    run: Run | str | PathLike[str],
    *,
    expect_ranks: Selectable = None,
    expect_steps: Selectable = None,
    strict: bool = False,
) -> CheckResult:
    """Check the invariants of one trace before it is compared with another.

    Every event is read once. What another tracer cannot know is said beside the verdict, and a weakness
    of its evidence is a warning or a note: it bounds what a comparison can prove and does not forbid it.

    Parameters
    ----------
    run
        A recorded run, or a path that `detlab.load_run` can read.
    expect_ranks, expect_steps
        Ranks and steps that have to be there, ``"0-7"`` or numbers. By default those that the recorder was
        to record, as far as the trace says it, and else all ranks of the run, each with the same steps.
    strict
        Let warnings fail as errors do.

    Returns
    -------
    A finding for each breach, by the code of its invariant (see `detlab.checks.trace.INVARIANTS`). Own
    columns: ``ranks`` (global ranks on which it was found) and ``num`` (how many calls, numbers, steps or
    ranks are meant).

    Raises
    ------
    InputError
        What is expected is no selection.
    TraceError
        The run cannot be read.
    """
    expected = Selection.parse(expect_ranks, "ranks"), Selection.parse(expect_steps, "steps")
    run = as_run(run)
    if not run.ranks:
        problem = Problem(run.label, "has step metrics and no trace")
        return CheckResult("trace", (run.label,), findings_frame([], TRACE_COLUMNS), problems=(problem,))
    with bar(f"surveying {run.label}", len(run.ranks), "rank") as shown:
        surveys = tuple(survey(trace) for trace in shown.over(run.ranks))
    subject = Subject(run, surveys, *expected)
    told = [(INVARIANTS[code], each) for code in sorted(_LOOKS) for each in _LOOKS[code](subject)]
    rows = [_finding(law, each, strict) for law, each in told if isinstance(each, Breach)]
    return CheckResult(
        "trace",
        (run.label,),
        findings_frame(rows, TRACE_COLUMNS),
        tuple(_verified((law, each) for law, each in told if isinstance(each, Holds))),
        tuple(NotChecked(each.what, each.why) for _, each in told if isinstance(each, Skipped)),
    )


def _finding(law: Invariant, breach: Breach, strict: bool) -> dict[str, Any]:
    severity = breach.severity or law.severity
    return {
        "code": law.code,
        "severity": "error" if strict and severity == "warning" else severity,
        "found": breach.found,
        "expected": breach.expected or law.holds,
        "where": breach.where,
        "why": law.why,
        "next": breach.then or law.next,
        "source": law.source,
        "ranks": sorted(breach.ranks),
        "num": breach.num,
    }


def _verified(held: Iterator[tuple[Invariant, Holds]]) -> Iterator[Verified]:
    for law, each in held:
        yield Verified(law.code, f"{law.holds}: {each.says}", each.evidence)

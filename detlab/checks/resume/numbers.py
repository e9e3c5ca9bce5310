"""Step metrics after a resume against those of the reference, and where a difference is first visible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from detlab.checks.result import Verified
from detlab.checks.resume.components import LOSS_SCALE, OTHER, PARAMETERS, POSITION
from detlab.checks.resume.sides import is_one_run
from detlab.checks.resume.state import Judged
from detlab.checks.resume.words import MORE_COLUMNS, counted, listed
from detlab.comparison.metrics import MetricsComparison, compare_metrics
from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT
from detlab.errors import NotComparable
from detlab.readers.metrics.names import is_loss
from detlab.run import Run

GRAD_NORM: Final = "grad norm"
LOSS: Final = "loss"
METRICS: Final = "metrics"

_COMPONENTS: Final = (
    (LOSS_SCALE, re.compile(r"loss[ _-]?scale|scaler", re.I)),
    ("loss mask", re.compile(r"loss[ _-]?mask", re.I)),
    (GRAD_NORM, re.compile(r"grad|gnorm|num[ _-]?zeros|total[ _-]norm", re.I)),
    (PARAMETERS, re.compile(r"(param|weight)s?[ _-]?norm", re.I)),
    ("param groups", re.compile(r"learning[ _-]?rate|(\b|_)lr(\b|_)|weight[ _-]?decay|momentum", re.I)),
    (POSITION, re.compile(r"consumed|samples|tokens|epoch|batch[ _-]?size", re.I)),
)  # fmt: skip
"""Components by what a metric is called; a loss is one by `is_loss`, any other number is ``metrics``."""

_STAGE: Final = "metrics"


@dataclass(frozen=True)
class Numbers:
    """Step metrics of both runs after the resume.

    Attributes
    ----------
    cmp
        The comparison of the steps that the resumed run made after it resumed.
    first
        Its first step.
    offset
        Added to the steps of the resumed run.
    not_run
        What one of them has at steps that the other did not run; empty where there is none.
    """

    cmp: MetricsComparison
    first: int
    offset: int = 0
    not_run: str = ""


def metric_component(name: str) -> str:
    """Give the component that a metric is of."""
    found = next((component for component, pattern in _COMPONENTS if pattern.search(name)), None)
    if found is not None:
        return found
    return LOSS if pl.select(is_loss(pl.lit(name))).item() else METRICS


def compare_numbers(reference: Run, resumed: Run, offset: int | None) -> Numbers:
    """Compare the metrics of the steps that a resumed run made after it resumed.

    Of a log with restarts these are the steps since the first restart; of one log given twice, those that it
    ran again.

    Parameters
    ----------
    reference, resumed
        The runs.
    offset
        Added to the steps of the resumed run; None where nobody says, so that a run which seems to count its
        own steps is refused.

    Raises
    ------
    NotComparable
        The resumed run has no steps after a resume, seems to count its steps from one, or has no step in
        common with the reference.
    """
    if is_one_run(reference, resumed):
        reference, resumed = _replay(resumed)
    resumed = _after_restart(resumed)
    refuse_local_count(resumed.label, _steps(resumed)[0], offset, _interval(resumed))
    moved = offset or 0
    first, last = (each + moved for each in _steps(resumed))
    ends = _steps(reference)
    ours = _between(reference, first, last)
    theirs = _between(resumed, ends[0] - moved, ends[1] - moved)
    if ours.metrics.is_empty() or theirs.metrics.is_empty():
        raise NotComparable(
            f"{reference.label} has steps {ends[0]} to {ends[1]} and {resumed.label} went on at {first}: "
            "they have no "
            "step in common.",
            "give the reference's log of the same steps, or offset=N if the resumed run counts from "
            "another number",
        )
    later = f"steps {ends[1] + 1} to {last} of {resumed.label}: the reference has not run them"
    return Numbers(compare_metrics(ours, theirs, offset=moved), first, moved, later if last > ends[1] else "")


def _interval(run: Run) -> int:
    """Give the steps from one record of a log to the next, the least of them."""
    least = run.metrics["step"].unique().sort().diff().min()
    return least if isinstance(least, int) else 1


def refuse_local_count(label: str, first: int, offset: int | None, interval: int = 1) -> None:
    """Refuse steps that seem to be counted anew since the resume; ``interval`` is from step to step.

    Raises
    ------
    NotComparable
        A run that resumed after a step cannot begin with step 0 or with the first that is written down, and
        nobody said that it does.
    """
    if offset is None and first <= interval:
        raise NotComparable(
            f"{label} begins with step {first}, so that it either did not resume or counts its steps "
            "anew: its "
            f"step {first} is not that of the reference.",
            "give offset=N, the steps that were done before the resume (0 if the numbers are right as "
            "they are)",
        )


def _replay(run: Run) -> tuple[Run, Run]:
    """Take one log with restarts apart: what was before the last one, and what came after it."""
    segment = pl.col("segment")
    last = run.metrics["segment"].max()
    if not last:
        raise NotComparable(
            f"{run.label} was given twice, and it has no restart.",
            "give the reference's log beside the resumed one",
        )
    before = replace(run, label=f"{run.label} (before)", metrics=run.metrics.filter(segment < last))
    return before, replace(
        run, label=f"{run.label} (after the restart)", metrics=run.metrics.filter(segment == last)
    )


def _after_restart(run: Run) -> Run:
    """Keep the steps since the first restart of a log that begins before it."""
    later = run.metrics.filter(pl.col("segment") > 0)
    first = later["step"].min()
    return run if first is None else replace(run, metrics=run.metrics.filter(pl.col("step") >= first))


def _steps(run: Run) -> tuple[int, int]:
    low, high = run.metrics["step"].min(), run.metrics["step"].max()
    if not isinstance(low, int) or not isinstance(high, int):
        raise NotComparable(f"{run.label} holds no step metrics.", "give the log or event files of the run")
    return low, high


def _between(run: Run, first: int, last: int) -> Run:
    return replace(run, metrics=run.metrics.filter(pl.col("step").is_between(first, last)))


def judge_numbers(numbers: Numbers, is_explained: bool = False) -> tuple[Judged, list[tuple[str, str]]]:
    """Say in which component a resumed run is first seen to differ, and since when.

    Parameters
    ----------
    numbers
        The metrics of both runs after the resume.
    is_explained
        Whether other evidence has shown already that the run does not go on as the reference did.

    Returns
    -------
    judged
        One finding for each component with a metric that differs, the earliest first; a component of which
        every number is equal is verified as strongly as the numbers are known.
    problems
        (where, what) for each thing that is missing or damaged.
    """
    cmp = numbers.cmp
    names = {name: metric_component(name) for name in cmp.compared["name"].to_list()}
    rows = cmp.compared.with_columns(component=pl.col("name").replace_strict(names, default=OTHER))
    parts = rows.sort("first_step", "name", nulls_last=True).partition_by("component", maintain_order=True)
    findings = [_finding(part, numbers) for part in parts if part["first_step"].count()]
    if is_explained:
        findings = [row | _EXPLAINED for row in findings]
    if findings:
        findings[0]["found"] = f"first visible here: {findings[0]['found']}{_equal_before(numbers, rows)}"
    verified = [_verified(part, numbers) for part in parts if not part["first_step"].count()]
    notes = [f"metrics: resume is step {numbers.first}, the first of the resumed run", *cmp.notes]
    return Judged(tuple(findings), tuple(verified), notes=tuple(notes)), list(cmp.problems)


def since_resume(step: int, first: int) -> str:
    """Write a step and how long after the first resumed one it is."""
    return f"step {step} (resume+{step - first})"


def _finding(part: pl.DataFrame, numbers: Numbers) -> dict[str, Any]:
    component = str(part["component"][0])
    rows = part.filter(pl.col("first_step").is_not_null())
    step = int(rows["first_step"][0])
    here = rows.filter(pl.col("first_step") == step)["name"].to_list()
    value = numbers.cmp.values.filter(
        (pl.col("name") == here[0]) & (pl.col("step") == step) & pl.col("outcome").is_in(DIFFERENT)
    ).row(0, named=True)
    common, different = int(rows["steps_common"][0]), int(rows["steps_different"][0])
    row = {
        "component": component,
        "severity": "error",
        "found": f"{listed(here, 4)} at {since_resume(step, numbers.first)}: {_value(value, 'a')} against "
        f"{_value(value, 'b')}; differs at {different:,} of {counted(common, 'step')}",
        "expected": "the numbers of the reference at every step after the resume",
        "where": f"step {step}",
        "why": _WHY.get(component, "the run does not go on as the reference did"),
        "next": "compare the state at load: detlab check resume with the checkpoints of both",
        "source": "KempnerInstitute/KempnerForge#114" if component == GRAD_NORM else "",
        "stage": _STAGE,
        "kind": "different",
        "names": rows["name"].to_list()[:20],
        "num_leaves": different,
        "of_leaves": common,
        "max_abs": rows["max_difference"].max(),
        "first_step": step,
        "evidence": "exact" if (rows["evidence"] == "exact").all() else "printed",
    }
    return {**dict.fromkeys(MORE_COLUMNS), **row}


_WHY: Final = {
    GRAD_NORM: "the gradients differ before the loss does where the optimizer's state or the data are "
    "not those of "
    "the reference",
    LOSS: "the loss is a late witness: the state or the data differ at this step or before it",
}


_EXPLAINED: Final = {
    "why": "the findings before this one say what differs; the numbers show it from here on",
    "next": "",
    "source": "",
}


def _value(row: dict[str, Any], side: str) -> str:
    state = row[f"state_{side}"]
    return f"{row[f'value_{side}']!r}" if state in ("value", "zero") else str(state)


def _equal_before(numbers: Numbers, rows: pl.DataFrame) -> str:
    """Say which losses are still equal when the first number differs, and for how long."""
    first = numbers.cmp.first_step
    losses = rows.filter(is_loss(pl.col("name")))["name"].to_list()
    said = []
    for name in losses[:2]:
        values = numbers.cmp.values.filter((pl.col("name") == name) & pl.col("outcome").is_in(COMPARED))
        differing = values.filter(pl.col("outcome").is_in(DIFFERENT))["step"].min()
        equal = (values if differing is None else values.filter(pl.col("step") < differing))["step"]
        if len(equal) and first is not None and bool((equal >= first).any()):
            said.append(f"{name} equal{_as_printed(values)} at {where(equal)}")
    return f"; {'; '.join(said)}" if said else ""


def _as_printed(values: pl.DataFrame) -> str:
    return "" if values["exact"].all() else " as printed"


def _verified(part: pl.DataFrame, numbers: Numbers) -> Verified:
    names = part["name"].to_list()
    steps = numbers.cmp.values.filter(pl.col("name").is_in(names) & pl.col("outcome").is_in(COMPARED))["step"]
    said = (
        f"{listed(names, 4)} equal at {where(steps)} ({counted(steps.n_unique(), 'step')} after the resume)"
    )
    return Verified(str(part["component"][0]), said, evidence_words(part))


def evidence_words(part: pl.DataFrame) -> str:
    """Say what equality of some metrics proves."""
    printed = part.filter(pl.col("evidence") == "printed")
    if len(printed):
        how = sorted(set(printed["resolution"]))
        return f"{listed(how, 2)}: proves nothing about the bits"
    return "exact: every bit of these numbers"


def altered(numbers: Numbers, names: Sequence[str]) -> Numbers | None:
    """Give the same comparison with one number of the resumed run changed by the least that can be seen.

    None where there is no finite number to change.
    """
    cmp = numbers.cmp
    at = cmp.values.filter(
        pl.col("name").is_in(names) & pl.col("outcome").is_in(COMPARED[:2]) & pl.col("value_b").is_finite()
    ).sort("step")
    if at.is_empty():
        return None
    row = at.row(0, named=True)
    size = row["resolution"] or abs(row["value_b"]) * 2.0**-20 or 1.0
    here = (pl.col("name") == row["name"]) & (pl.col("step") == row["step"] - numbers.offset)
    value = pl.when(here).then(pl.col("value") + size).otherwise(pl.col("value"))
    metrics = cmp.b.metrics.with_columns(value=value)
    wide = pl.col("value").reinterpret(dtype=pl.UInt64)
    narrow = pl.col("value").cast(pl.Float32).reinterpret(dtype=pl.UInt32).cast(pl.UInt64)
    by_width = pl.when(pl.col("width") == 64).then(wide).when(pl.col("width") == 32).then(narrow)
    metrics = metrics.with_columns(bits=pl.when(here).then(by_width).otherwise(pl.col("bits")))
    changed = compare_metrics(
        cmp.a, replace(cmp.b, metrics=metrics), names=[row["name"]], offset=numbers.offset
    )
    return replace(numbers, cmp=changed)

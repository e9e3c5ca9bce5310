"""Verify a resume: every kind of evidence that both sides have, judged in turn and put into one result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import polars as pl

from detlab.checks.result import CheckResult, NotChecked, Problem, findings_frame
from detlab.checks.resume import saved
from detlab.checks.resume.components import COMPONENTS
from detlab.checks.resume.negative_controls import Control, as_rows
from detlab.checks.resume.parts import (
    Part,
    of_calls,
    of_checkpoints,
    of_metrics,
    of_samples,
    of_states,
    unseen,
)
from detlab.checks.resume.sides import ResumeSide, as_side, is_one_run
from detlab.checks.resume.state import Judged
from detlab.checks.resume.words import AT_LOAD, LATER, MORE_COLUMNS, UNTOLD, listed
from detlab.errors import InputError, NotComparable

At = Literal["load", "later"] | None
_Judge = Callable[[], Part | list[Part]]
_AT: Final = {"load": AT_LOAD, "later": LATER, None: UNTOLD}

_USUAL: Final = (
    "parameters", "moments", "optimizer step", "param groups", "rng", "scheduler", "data position",
    "data order",
)  # fmt: skip
"""What every resume has to restore; what nothing was said of stands among what was not checked."""


def check_resume(
    reference: Any,
    resumed: Any,
    *,
    controls: bool = True,
    names: saved.Names = None,
    offset: int | None = None,
    at: At = None,
    only: Collection[str] | None = None,
) -> CheckResult:
    """Verify that a run which was resumed from a checkpoint of another goes on as that one did.

    Each side is a checkpoint, a run with recorded states or calls, logs, or a mapping of several of these:
    ``{"checkpoint": …, "later": …, "trace": …, "metrics": …, "samples": …}``. What both sides have is
    compared: the state that the reference saved with the state that the resumed run held right after loading
    it, states and calls of later steps, sample ids, and step metrics. Printed numbers verify nothing but what
    was printed.

    Parameters
    ----------
    reference
        The run that went on without a break, or what it saved.
    resumed
        The run that was resumed from the reference's checkpoint.
    controls
        Run the negative controls: of each component that was verified a sample is compared again, with what a
        failed restore leaves in its place. A control that is not caught makes the check invalid.
    names
        Names of leaves of the resumed checkpoint that the reference has other names for: a mapping or a
        function from the former to the latter.
    offset
        Added to the steps of the resumed run's log or samples, where it counts from another number; for lists
        of samples without steps the number of batches of the reference before the resume. Where a run seems
        to count its steps anew and nobody says so, its steps are not compared.
    at
        When the checkpoints are of: ``"load"`` (the reference's, and the resumed run's saved right after
        loading it), ``"later"`` (both some steps after the resume). None: nobody says.
    only
        Judge these components alone, such as ``["parameters"]`` for a file of weights.

    Returns
    -------
    `CheckResult` whose findings have these columns beside the shared ones: ``stage``, ``kind``, ``names``,
    ``num_leaves``, ``of_leaves``, ``max_abs``, ``first_step``, ``evidence``, see
    `detlab.checks.resume.words.MORE_COLUMNS`. Its ``table`` has one row per negative control: ``component``,
    ``source``, ``how``, ``where``, ``caught``.

    Raises
    ------
    InputError
        A side is nothing that can be read, or an option is unknown.
    NotComparable
        The sides have no kind of evidence in common, or none of it can be compared.
    """
    sides, parts = _parts(reference, resumed, _options(names, offset, at, only))
    ran = [each for part in parts for each in part.controls()] if controls else []
    return _result(sides, parts, ran, controls)


def controls(
    reference: Any,
    resumed: Any,
    *,
    names: saved.Names = None,
    offset: int | None = None,
    at: At = None,
    only: Collection[str] | None = None,
) -> tuple[Control, ...]:
    """Run the negative controls of a resume alone; parameters as of `check_resume`.

    Returns
    -------
    One `Control` for each component that is verified, and for each way in which it can fail to be restored.
    """
    _, parts = _parts(reference, resumed, _options(names, offset, at, only))
    return tuple(each for part in parts for each in part.controls())


@dataclass(frozen=True)
class _Options:
    names: saved.Names
    offset: int | None
    at: At
    only: frozenset[str]


def _options(names: saved.Names, offset: int | None, at: At, only: Collection[str] | None) -> _Options:
    if at not in _AT:
        raise InputError(f"at='{at}' is no moment.", "write at='load' or at='later'")
    chosen = frozenset([only] if isinstance(only, str) else only or ())
    strangers = sorted(chosen - set(COMPONENTS))
    if strangers:
        raise InputError(f"'{strangers[0]}' is no component.", f"choose among: {', '.join(COMPONENTS)}")
    return _Options(names, offset, at, chosen)


def _parts(
    reference: Any, resumed: Any, options: _Options
) -> tuple[tuple[ResumeSide, ResumeSide], list[Part]]:
    """Judge every kind of evidence that both sides have."""
    a, b = as_side(reference, "reference"), as_side(resumed, "resumed")
    _refuse_unlike_and_same(a, b)
    parts = [_aside(a, b)]
    refused: list[NotComparable] = []
    for each in _evidence(a, b, options, parts):
        try:
            found = each()
            parts += found if isinstance(found, list) else [found]
        except NotComparable as error:
            refused.append(error)
            parts.append(Part(problems=[Problem("not compared", f"{error.finding} {error.hint}".strip())]))
    if refused and not any(part.judged.findings or part.judged.verified for part in parts):
        raise refused[0]
    return (a, b), parts


def _refuse_unlike_and_same(a: ResumeSide, b: ResumeSide) -> None:
    if not set(a.kinds) & set(b.kinds):
        raise NotComparable(
            f"the reference has {listed(a.kinds) or 'nothing'} and the resumed run "
            f"{listed(b.kinds) or 'nothing'}: there is nothing to compare.",
            "give the same kind of evidence of both: checkpoints, traces, logs or samples",
        )
    if a.trace and b.trace and is_one_run(a.trace, b.trace):
        raise NotComparable(
            f"{a.trace.label} was given twice: a trace that is compared with itself shows no resume.",
            "give the trace of the resumed run beside it",
        )


def _evidence(a: ResumeSide, b: ResumeSide, options: _Options, parts: list[Part]) -> Iterator[_Judge]:
    """Give what judges each kind of evidence, the state before what it leads to."""
    layout = _other_layout(a, b)
    offset, only = options.offset, options.only
    if a.checkpoint and b.checkpoint:
        renamed = saved.renamed(b.checkpoint, options.names)
        yield partial(of_checkpoints, a.checkpoint, renamed, _AT[options.at], only)
    if layout and (a.later or a.trace or a.metrics):
        why = f"another parallel layout ({layout}) adds up in another order: later steps are not comparable"
        parts.append(unseen("later steps", why))
    if a.trace and b.trace and not layout:
        yield partial(of_states, a.trace, b.trace, offset, only)
    if a.samples and b.samples:
        yield partial(of_samples, a.samples, b.samples, offset)
    if layout:
        return
    if a.later and b.later:
        yield partial(of_checkpoints, a.later, saved.renamed(b.later, options.names), LATER, only)
    if a.trace and b.trace:
        told = [row for part in parts for row in part.judged.findings]
        yield partial(of_calls, a.trace, b.trace, offset, told)
    if a.metrics and b.metrics:
        told = [row for part in parts for row in part.judged.findings]
        yield partial(of_metrics, a.metrics, b.metrics, offset, told)


def _other_layout(a: ResumeSide, b: ResumeSide) -> str:
    """Say how the parallel layouts of both sides differ; empty where they do not, as far as is known."""
    if a.trace and b.trace:
        sizes = [dict(side.trace.manifest.layout) for side in (a, b) if side.trace]
        axes = [
            axis for axis in ("tp", "pp", "cp", "ep", "dp") if sizes[0].get(axis, 1) != sizes[1].get(axis, 1)
        ]
        if axes:
            return ", ".join(f"{axis} {sizes[0].get(axis, 1)} and {sizes[1].get(axis, 1)}" for axis in axes)
    for one, other in ((a.checkpoint, b.checkpoint), (a.later, b.later)):
        if one and other and (found := saved.other_layout(one, other)):
            return found
    return ""


def _aside(a: ResumeSide, b: ResumeSide) -> Part:
    """Say which kinds of evidence one side alone has."""
    lost = [
        NotChecked(kind, f"given of {side.label} alone")
        for side, other in ((a, b), (b, a))
        for kind in side.kinds
        if kind not in other.kinds
    ]
    return Part(not_checked=lost)


def _result(
    sides: tuple[ResumeSide, ResumeSide], parts: list[Part], ran: list[Control], asked: bool
) -> CheckResult:
    """Put the parts into one result: the state first, then what it led to."""
    judged = Judged()
    for part in parts:
        judged += part.judged
    problems = [each for part in parts for each in part.problems]
    lost = [each for each in ran if not each.caught]
    problems += [
        Problem(
            "negative control",
            f"{each.component} ({each.how}, {each.where}) was not noticed in the {each.source}",
        )
        for each in lost
    ]
    problems += [*_without_control(judged, ran, asked), *_nothing_equal(judged)]
    return CheckResult(
        "resume",
        _labels(sides),
        findings_frame(list(judged.findings), MORE_COLUMNS),
        judged.verified,
        (*dict.fromkeys(each for part in parts for each in part.not_checked), *_never_told(judged, parts)),
        tuple(problems),
        (*_said(judged), *judged.notes, *_of_controls(ran, asked)),
        pl.DataFrame(as_rows(ran), _TABLE),
    )


def _without_control(judged: Judged, ran: list[Control], asked: bool) -> list[Problem]:
    """Say what was found equal in a way that no control could make unequal, such as a loss of NaN alone."""
    had = {each.component for each in ran}
    lost = [each for each in dict.fromkeys(each.what for each in judged.verified) if each not in had]
    why = "no control could be run: nothing in it that a failed restore would change"
    return [Problem("negative control", f"{each}: {why}") for each in lost] if asked else []


def _nothing_equal(judged: Judged) -> list[Problem]:
    """Say that a check which looked at books and arguments alone has shown nothing."""
    shown = judged.verified or any(row["severity"] == "error" for row in judged.findings)
    return (
        [] if shown else [Problem("resume", "nothing was found that shows a resume: no state, data or step")]
    )


_TABLE: Final = {
    "component": pl.String, "source": pl.String, "how": pl.String, "where": pl.String, "caught": pl.Boolean,
}  # fmt: skip


def _labels(sides: tuple[ResumeSide, ResumeSide]) -> tuple[str, str]:
    a, b = (side.label for side in sides)
    return (a, b) if a != b else (f"{a} (reference)", f"{b} (resumed)")


def _never_told(judged: Judged, parts: list[Part]) -> list[NotChecked]:
    """List the parts of a training state that no evidence said anything of."""
    told = {str(row["component"]) for row in judged.findings} | {each.what for each in judged.verified}
    told |= {each.what for part in parts for each in part.not_checked}
    lost = [each for each in _USUAL if each not in told]
    why = "nothing that was given says anything of it"
    found = [NotChecked(listed(lost, 8), why)] if lost else []
    later = any(part.is_later and (part.judged.findings or part.judged.verified) for part in parts)
    return [*found, *([] if later or "later steps" in told else [NotChecked("steps after the resume", why)])]


def _said(judged: Judged) -> list[str]:
    """Say in one line what was verified and how strongly."""
    if not judged.verified:
        return []
    wrong = {row["component"] for row in judged.findings if row["severity"] == "error"}
    by_evidence: dict[str, list[str]] = {}
    for each in (each for each in judged.verified if each.what not in wrong):
        by_evidence.setdefault(each.evidence.split(":")[0].split(",")[0] or "told", []).append(each.what)
    said = [
        f"{', '.join(dict.fromkeys(what))} ({evidence})" for evidence, what in sorted(by_evidence.items())
    ]
    if not said:
        return []
    bits = any(evidence.startswith("exact") for evidence in by_evidence)
    return [f"verified: {'; '.join(said)}" + ("" if bits else ". Bitwise equality was not shown")]


def _of_controls(ran: list[Control], asked: bool) -> list[str]:
    if not asked:
        return [
            "controls were not asked for: that a state which was not restored would be noticed is not shown"
        ]
    if not ran:
        return []
    caught = sum(each.caught for each in ran)
    what = listed(sorted({each.component for each in ran}), 12)
    return [f"controls: {caught} of {len(ran)} caught ({what})"]

"""Verify a resume: every kind of evidence that both sides have, judged in turn and put into one result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

from detlab.checks.checkpoints.layout import Checkpoint
from detlab.checks.result import CheckResult, NotChecked, Problem, findings_frame
from detlab.checks.resume import calls as called
from detlab.checks.resume import events, numbers, rebuilt, saved
from detlab.checks.resume import negative_controls as planted
from detlab.checks.resume.components import BOOKKEEPING, COMPONENTS, RECIPE
from detlab.checks.resume.negative_controls import Control
from detlab.checks.resume.samples import judge_order, window_of
from detlab.checks.resume.sides import KINDS, ResumeSide, as_side
from detlab.checks.resume.state import Judged, judge
from detlab.checks.resume.words import AT_LOAD, LATER, MORE_COLUMNS, UNTOLD, Stage, listed
from detlab.errors import InputError, NotComparable

At = Literal["load", "later"] | None
_AT: Final = {"load": AT_LOAD, "later": LATER, None: UNTOLD}

_USUAL: Final = (
    "parameters", "moments", "optimizer step", "param groups", "rng", "scheduler", "data position",
    "data order",
)  # fmt: skip
"""What every resume has to restore; what nothing was said of stands among what was not checked."""


@dataclass
class Part:
    """What one kind of evidence says of a resume.

    Attributes
    ----------
    judged, not_checked, problems
        What was found, verified and not looked at.
    controls
        Runs the negative controls of the components that it verified.
    """

    judged: Judged = field(default_factory=Judged)
    not_checked: list[NotChecked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    controls: Callable[[], Iterable[Control]] = tuple


@dataclass(frozen=True)
class _Options:
    names: saved.Names
    offset: int | None
    at: At
    only: frozenset[str]


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
    common = [kind for kind in KINDS if kind in a.kinds and kind in b.kinds]
    if not common:
        raise NotComparable(
            f"the reference has {listed(a.kinds) or 'nothing'} and the resumed run "
            f"{listed(b.kinds) or 'nothing'}: there is nothing to compare.",
            "give the same kind of evidence of both: checkpoints, traces, logs or samples",
        )
    parts = [_aside(a, b)]
    refused: list[NotComparable] = []
    layout = saved.other_layout(a.checkpoint, b.checkpoint) if a.checkpoint and b.checkpoint else ""
    for each in _makers(a, b, options, layout, parts):
        try:
            parts += each()
        except NotComparable as error:
            refused.append(error)
            parts.append(Part(problems=[Problem("not compared", f"{error.finding} {error.hint}".strip())]))
    if refused and not any(part.judged.findings or part.judged.verified for part in parts):
        raise refused[0]
    return (a, b), parts


def _makers(
    a: ResumeSide, b: ResumeSide, options: _Options, layout: str, parts: list[Part]
) -> Iterator[Callable[[], list[Part]]]:
    if a.checkpoint and b.checkpoint:
        stage = _AT[options.at]
        one, other = a.checkpoint, b.checkpoint
        yield lambda: [_of_checkpoints(one, other, stage, options)]
    if a.trace and b.trace:
        yield lambda: _of_states(a, b, options)
    if a.samples and b.samples:
        yield lambda: [_of_samples(a, b, options)]
    if layout and (a.later or a.trace or a.metrics):
        why = f"another parallel layout ({layout}) adds up in another order: later steps are not comparable"
        yield lambda: [Part(not_checked=[NotChecked("later steps", why)])]
        return
    if a.later and b.later:
        yield lambda: [_of_later(a, b, options)]
    if a.trace and b.trace:
        yield lambda: _of_calls(a, b, options, parts)
    if a.metrics and b.metrics:
        yield lambda: [_of_metrics(a, b, options)]


def _aside(a: ResumeSide, b: ResumeSide) -> Part:
    """Say which kinds of evidence one side alone has."""
    lost = [
        NotChecked(kind, f"given of {side.label} alone")
        for side, other in ((a, b), (b, a))
        for kind in side.kinds
        if kind not in other.kinds
    ]
    return Part(not_checked=lost)


def _of_checkpoints(a: Checkpoint, b: Checkpoint, stage: Stage, options: _Options) -> Part:
    """Compare two checkpoints, leaf by leaf."""
    if a.path.exists() and b.path.exists() and a.path.samefile(b.path):
        raise NotComparable(
            f"{a.path} was given twice: a checkpoint that is compared with itself shows no resume.",
            "give what the resumed run saved right after loading it",
        )
    b = saved.renamed(b, options.names)
    rows = saved.compare_states(a, b)
    rows, aside = saved.set_silent_aside(a, b, rows)
    rows, left_out = _asked_for(rows, options.only)
    part = Part(judge(rows, stage), [*aside, *left_out], saved.problems_of(a, b))
    part.problems += [Problem(where, what) for where, what in part.judged.unreadable]
    steps = saved.step_of(a), saved.step_of(b)
    if None not in steps and steps[0] != steps[1] and steps[1]:
        return _of_other_steps(part, rows, stage)
    if stage is UNTOLD:
        part.not_checked.append(
            NotChecked(
                "moment",
                "nobody said whether these states are of the load or of later steps: at='load', 'later'",
            )
        )
    cast = rebuilt.check_rebuilt(a, b, stage) if not options.only else rebuilt.Rebuilt()
    part.judged += cast.judged
    part.not_checked += cast.not_checked
    verified = [each.what for each in part.judged.verified]
    part.controls = lambda: [
        *saved.saved_controls(a, b, rows, verified, stage),
        *cast.controls(),
    ]
    return part


def _of_other_steps(part: Part, rows: pl.DataFrame, stage: Stage) -> Part:
    """Keep that two checkpoints are of different steps: beside that nothing else is told of them."""
    position = rows.filter(pl.col("component") == "data position")
    others = rows.filter(~pl.col("component").is_in(["data position", BOOKKEEPING, RECIPE]))["component"]
    why = "the checkpoints are of different steps"
    return Part(
        judge(position, stage),
        [NotChecked(str(each), why) for each in sorted(set(others))],
        part.problems,
    )


def _asked_for(rows: pl.DataFrame, only: Collection[str]) -> tuple[pl.DataFrame, list[NotChecked]]:
    if not only:
        return rows, []
    chosen = pl.col("component").is_in(sorted(only))
    others = rows.filter(~chosen)["component"].unique().sort()
    return rows.filter(chosen), [NotChecked(str(each), "not asked for") for each in others]


def _of_later(a: ResumeSide, b: ResumeSide, options: _Options) -> Part:
    one, other = a.later, b.later
    assert one is not None
    assert other is not None
    layout = saved.other_layout(one, other)
    if layout:
        why = f"another parallel layout ({layout}) adds up in another order: later steps are not comparable"
        return Part(not_checked=[NotChecked("state later", why)])
    return _of_checkpoints(one, other, LATER, options)


def _of_states(a: ResumeSide, b: ResumeSide, options: _Options) -> list[Part]:
    """Judge the states that traces recorded: at load, at first use, and later."""
    assert a.trace is not None
    assert b.trace is not None
    ours, theirs = events.recorded_states(a.trace), events.recorded_states(b.trace)
    if not ours or not theirs:
        sides = _unlike([(a.label, ours), (b.label, theirs)])
        return [
            Part(
                not_checked=[
                    NotChecked("state at load", f"{listed(sides)} recorded no state: Recorder.snapshot")
                ]
            )
        ]
    saved_states = events.saved_before(ours, theirs, options.offset)
    loaded = events.of_moment(theirs, events.LOADED)
    parts = []
    initial = events.known_initial(ours, theirs, saved_states)
    if saved_states and loaded:
        parts.append(_of_recorded(saved_states, loaded, initial, AT_LOAD, options))
    else:
        lost = [name for name, states in (("saved", saved_states), ("loaded", loaded)) if not states]
        parts.append(
            Part(
                not_checked=[NotChecked("state at load", f"no state was recorded when it was {listed(lost)}")]
            )
        )
    used = events.of_moment(theirs, events.FIRST_USE)
    if used:
        first = events.judge_first_use(saved_states, loaded, used, initial)
        holds = bool(first.verified)
        parts.append(
            Part(first, controls=lambda: planted.use_controls(saved_states, loaded, used) if holds else ())
        )
    moments = sorted(
        {(each.moment, each.step) for each in ours} & {(each.moment, each.step) for each in theirs}
    )
    for moment, step in moments:
        if moment in (events.LOADED, events.FIRST_USE, events.INITIAL):
            continue
        both = [events.of_moment(states, moment, step) for states in (ours, theirs)]
        stage = LATER._replace(words=f"{moment} at step {step}")
        parts.append(_of_recorded(both[0], both[1], {}, stage, options))
    return parts


def _unlike(sides: Sequence[tuple[str, Sequence[Any]]]) -> list[str]:
    """Name the sides that have nothing."""
    lost = [label for label, found in sides if not found]
    return ["both"] if len(lost) == len(sides) else lost


def _of_recorded(
    ours: dict[events.Key, events.Recorded],
    theirs: dict[events.Key, events.Recorded],
    initial: Any,
    stage: Stage,
    options: _Options,
) -> Part:
    kept, not_checked, problems = events.silent(ours, theirs)
    rows, left_out = _asked_for(events.state_rows(kept, theirs, initial), options.only)
    judged = judge(rows, stage)
    problems += [Problem(where, what) for where, what in judged.unreadable]
    verified = [each.what for each in judged.verified]
    return Part(
        judged,
        [*not_checked, *left_out],
        problems,
        lambda: planted.state_controls(kept, theirs, verified, stage),
    )


def _of_samples(a: ResumeSide, b: ResumeSide, options: _Options) -> Part:
    assert a.samples is not None
    assert b.samples is not None
    window = window_of(a.samples, b.samples, options.offset)
    judged = judge_order(window)
    return Part(judged, controls=lambda: planted.order_controls(window) if judged.verified else ())


def _of_calls(a: ResumeSide, b: ResumeSide, options: _Options, parts: list[Part]) -> list[Part]:
    """Judge the calls of later steps, with what is known by then of the state."""
    assert a.trace is not None
    assert b.trace is not None
    bare = events.without_states(a.trace), events.without_states(b.trace)
    if not all(run.ranks for run in bare):
        lost = _unlike([(run.label, run.ranks) for run in bare])
        return [Part(not_checked=[NotChecked(called.CALLS, f"{listed(lost)} recorded no call of a step")])]
    layout = {
        axis: tuple(dict(run.manifest.layout).get(axis, 1) for run in bare)
        for axis in ("tp", "pp", "cp", "dp", "ep")
    }
    other = ", ".join(
        f"{axis} {sizes[0]} and {sizes[1]}" for axis, sizes in layout.items() if sizes[0] != sizes[1]
    )
    if other:
        why = f"another parallel layout ({other}) adds up in another order: later steps are not comparable"
        return [Part(not_checked=[NotChecked(called.CALLS, why)])]
    found = called.compare_calls(a.trace, b.trace, options.offset)
    told = [row for part in parts for row in part.judged.findings]
    judged, problems = called.judge_calls(found, told)
    what = {each.what for each in judged.verified}

    def run_controls() -> Iterator[Control]:
        data = [each for each in sorted(what) if each in ("data order", "loss mask")]
        yield from planted.data_controls(called.data_sequences(found), found.first, data)
        if called.CALLS in what:
            yield from planted.call_control(found)

    return [Part(judged, problems=problems, controls=run_controls)]


def _of_metrics(a: ResumeSide, b: ResumeSide, options: _Options) -> Part:
    assert a.metrics is not None
    assert b.metrics is not None
    found = numbers.compare_numbers(a.metrics, b.metrics, options.offset)
    judged, problems = numbers.judge_numbers(found)
    not_run = [NotChecked("metrics", found.not_run)] if found.not_run else []
    verified = [each.what for each in judged.verified]
    return Part(
        judged,
        not_run,
        [Problem(where, what) for where, what in problems],
        lambda: planted.number_controls(found, verified),
    )


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
    return CheckResult(
        "resume",
        _labels(sides),
        findings_frame(list(judged.findings), MORE_COLUMNS),
        judged.verified,
        (*dict.fromkeys(each for part in parts for each in part.not_checked), *_never_told(judged, parts)),
        tuple(problems),
        (*_said(judged), *judged.notes, *_of_controls(ran, asked)),
        pl.DataFrame(planted.as_rows(ran), _TABLE),
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
    return [NotChecked(listed(lost, 8), "nothing that was given says anything of it")] if lost else []


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

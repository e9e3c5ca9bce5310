"""What each kind of evidence says of a resume: checkpoints, recorded states, samples, calls, metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from detlab.checks.checkpoints.layout import Checkpoint
from detlab.checks.result import NotChecked, Problem
from detlab.checks.resume import calls as called
from detlab.checks.resume import events, numbers, rebuilt, saved
from detlab.checks.resume import negative_controls as planted
from detlab.checks.resume.components import BOOKKEEPING, POSITION, RECIPE
from detlab.checks.resume.events import Key, Recorded
from detlab.checks.resume.negative_controls import Control
from detlab.checks.resume.samples import Samples, judge_order, lacking, window_of
from detlab.checks.resume.state import Judged, judge
from detlab.checks.resume.words import AT_LOAD, FIRST_USE, LATER, UNTOLD, Stage, listed
from detlab.errors import NotComparable
from detlab.run import Run, spans


@dataclass
class Part:
    """What one kind of evidence says of a resume.

    Attributes
    ----------
    judged, not_checked, problems
        What was found, verified and not looked at.
    controls
        Runs the negative controls of the components that it verified.
    is_later
        Whether it is about steps that were made after the resume.
    """

    judged: Judged = field(default_factory=Judged)
    not_checked: list[NotChecked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    controls: Callable[[], Iterable[Control]] = tuple
    is_later: bool = False


def unseen(what: str, why: str) -> Part:
    """Say that one thing was not looked at."""
    return Part(not_checked=[NotChecked(what, why)])


def of_checkpoints(a: Checkpoint, b: Checkpoint, stage: Stage, only: Collection[str]) -> Part:
    """Compare two checkpoints, leaf by leaf.

    Raises
    ------
    NotComparable
        They are one file, or of other ranks.
    """
    if saved.is_same(a, b):
        raise NotComparable(
            f"{a.path} was given twice: a checkpoint that is compared with itself shows no resume.",
            "give what the resumed run saved right after loading it",
        )
    saved.refuse_other_ranks(a, b)
    rows, aside = saved.set_silent_aside(a, b, saved.compare_states(a, b))
    rows, left_out = _asked_for(rows, only)
    aside += [*saved.other_ranks(a), *saved.other_ranks(b)]
    part = Part(judge(rows, stage), [*aside, *left_out], saved.problems_of(a, b))
    part.problems += [Problem(where, what) for where, what in part.judged.unreadable]
    steps = saved.step_of(a), saved.step_of(b)
    if None not in steps and steps[0] != steps[1] and steps[1]:
        return _of_other_steps(part, rows, stage)
    if stage is UNTOLD:
        why = "nobody said whether these states are of the load or of later steps: at='load', at='later'"
        part.not_checked.append(NotChecked("moment", why))
    verified = [each.what for each in part.judged.verified]
    cast = rebuilt.Rebuilt() if only else rebuilt.check_rebuilt(a, b, stage)
    part.judged += cast.judged
    part.not_checked += cast.not_checked
    part.is_later = stage is LATER
    part.controls = lambda: [*saved.saved_controls(a, b, rows, verified, stage), *cast.controls()]
    return part


def _of_other_steps(part: Part, rows: pl.DataFrame, stage: Stage) -> Part:
    """Keep that two checkpoints are of different steps: beside that nothing else is told of them."""
    position = rows.filter(pl.col("component") == POSITION)
    others = rows.filter(~pl.col("component").is_in([POSITION, BOOKKEEPING, RECIPE]))["component"]
    lost = [NotChecked(each, "the checkpoints are of different steps") for each in sorted(set(others))]
    judged = judge(position, stage)
    # where the position was not asked for, no finding says that it is another
    problem = Problem("checkpoint", "the checkpoints are of different steps: their states are not compared")
    return Part(judged, lost, [*part.problems, *([] if judged.findings else [problem])])


def _asked_for(rows: pl.DataFrame, only: Collection[str]) -> tuple[pl.DataFrame, list[NotChecked]]:
    """Keep the components that were asked for."""
    if not only:
        return rows, []
    chosen = pl.col("component").is_in(sorted(only))
    others = rows.filter(~chosen)["component"].unique().sort()
    return rows.filter(chosen), [NotChecked(str(each), "not asked for") for each in others]


def of_states(a: Run, b: Run, offset: int | None, only: Collection[str]) -> list[Part]:
    """Judge the states that traces recorded: at load, at first use, and later.

    Raises
    ------
    NotComparable
        The reference saved at several steps, and none of these is the step of the load.
    """
    ours, theirs = events.recorded_states(a), events.recorded_states(b)
    if not ours or not theirs:
        lost = _without({a.label: ours, b.label: theirs})
        return [unseen("state at load", f"{lost} recorded no state: Recorder.snapshot")]
    saved_states = events.saved_before(ours, theirs, offset)
    loaded = events.of_moment(theirs, events.LOADED)
    initial = events.known_initial(ours, theirs, saved_states)
    if saved_states and loaded:
        parts = [_of_recorded(saved_states, loaded, initial, AT_LOAD, only)]
    else:
        lost = listed([name for name, each in (("saved", saved_states), ("loaded", loaded)) if not each])
        parts = [unseen("state at load", f"no state was recorded when it was {lost}")]
    used = events.of_moment(theirs, events.FIRST_USE)
    if used and not only:
        parts.append(_of_first_use(saved_states, loaded, used, initial))
    at_use = events.of_moment(ours, events.FIRST_USE)
    fresh = [{key: each for key, each in side.items() if key not in loaded} for side in (at_use, used)]
    if fresh[0] and used:
        parts.append(_of_recorded(fresh[0], fresh[1], {}, FIRST_USE, only))
    return [*parts, *_of_later_states(ours, theirs, only)]


def _without(found: Mapping[str, Sequence[Any]]) -> str:
    """Name the runs that have nothing; of two of one name there is one entry."""
    lost = [label for label, each in found.items() if not each]
    return "both" if len(lost) == len(found) else listed(lost)


def _of_first_use(
    saved_states: Mapping[Key, Recorded],
    loaded: Mapping[Key, Recorded],
    used: Mapping[Key, Recorded],
    initial: Mapping[Key, set[int]],
) -> Part:
    judged = events.judge_first_use(saved_states, loaded, used, initial)
    holds = bool(judged.verified)
    return Part(judged, controls=lambda: planted.use_controls(saved_states, loaded, used) if holds else ())


def _of_later_states(
    ours: Sequence[Recorded], theirs: Sequence[Recorded], only: Collection[str]
) -> Iterator[Part]:
    """Judge states that both runs recorded at the same moment of the same step after the load."""
    loads = [each.step for each in theirs if each.moment == events.LOADED]
    moments = {(each.moment, each.step) for each in ours} & {(each.moment, each.step) for each in theirs}
    for moment, step in sorted(moments, key=lambda each: (each[1], each[0])):
        if moment in (events.LOADED, events.FIRST_USE, events.INITIAL) or step <= min(loads, default=-1):
            continue
        a, b = (events.of_moment(states, moment, step) for states in (ours, theirs))
        yield _of_recorded(a, b, {}, LATER._replace(words=f"{moment} at step {step}"), only)


def _of_recorded(
    ours: Mapping[Key, Recorded],
    theirs: Mapping[Key, Recorded],
    initial: Mapping[Key, set[int]],
    stage: Stage,
    only: Collection[str],
) -> Part:
    ours, theirs, alone = events.of_both_ranks(ours, theirs)
    kept, theirs, not_checked, problems = events.silent(ours, theirs)
    problems += alone
    rows, left_out = _asked_for(events.state_rows(kept, theirs, initial), only)
    judged = judge(rows, stage)
    problems += [Problem(where, what) for where, what in judged.unreadable]
    verified = [each.what for each in judged.verified]
    return Part(
        judged,
        [*not_checked, *left_out],
        problems,
        lambda: planted.state_controls(kept, theirs, verified, stage),
        is_later=stage.label == LATER.label,
    )


def of_samples(a: Samples, b: Samples, offset: int | None) -> Part:
    """Compare the ids of the samples that both took.

    Raises
    ------
    NotComparable
        It is not known which batch of the reference the first one after the resume is.
    """
    if a.steps and b.steps and a.steps != b.steps:
        numbers.refuse_local_count("the list of samples of the resumed run", b.steps[0], offset)
    window = window_of(a, b, offset)
    judged = judge_order(window)
    lost = lacking(a, b, offset or 0)
    problems = [Problem("samples", f"one side alone has steps {spans(lost)}")] if lost else []
    return Part(
        judged, problems=problems, controls=lambda: planted.order_controls(window) if judged.verified else ()
    )


def of_calls(a: Run, b: Run, offset: int | None, told: Sequence[Mapping[str, Any]]) -> Part:
    """Judge the calls of later steps, with what is known by then of the state.

    Parameters
    ----------
    a, b
        The reference and the resumed run.
    offset
        Added to the steps of the resumed run, as far as that can be.
    told
        Findings about the state and the samples.

    Raises
    ------
    NotComparable
        The traces cannot be compared.
    """
    bare = [events.without_states(run) for run in (a, b)]
    if not all(run.ranks for run in bare):
        lost = _without({run.label: run.ranks for run in bare})
        return unseen(called.CALLS, f"{lost} recorded no call of a step")
    found = called.compare_calls(bare[0], bare[1], offset)
    judged, problems = called.judge_calls(found, told)
    what = {each.what for each in judged.verified}

    def controls() -> Iterator[Control]:
        data = [each for each in sorted(what) if each in ("data order", "loss mask")]
        yield from planted.data_controls(called.sequences_of(found), found.first, data)
        if called.CALLS in what:
            yield from planted.call_control(found)

    return Part(judged, problems=problems, controls=controls, is_later=True)


def of_metrics(a: Run, b: Run, offset: int | None, told: Sequence[Mapping[str, Any]] = ()) -> Part:
    """Compare the step metrics after the resume.

    Parameters
    ----------
    a, b, offset
        As of `of_calls`.
    told
        Findings of all other evidence.

    Raises
    ------
    NotComparable
        They have no step in common, or the resumed run seems to count its own.
    """
    found = numbers.compare_numbers(a, b, offset)
    is_explained = any(row["severity"] == "error" for row in told)
    judged, problems = numbers.judge_numbers(found, is_explained)
    not_run = [NotChecked("metrics", found.not_run)] if found.not_run else []
    verified = [each.what for each in judged.verified]
    return Part(
        judged,
        not_run,
        [Problem(where, what) for where, what in problems],
        lambda: planted.number_controls(found, verified),
        is_later=True,
    )

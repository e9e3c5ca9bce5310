"""What determinism costs: step times of deterministic runs against default ones, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final

import numpy as np

from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.checks.tax.cost import Plan, cost_text, plan_of
from detlab.checks.tax.interval import FEW_STEPS, MIN_STEPS, Floats, Ratio, ratio_of
from detlab.checks.tax.places import tell_places, whole_of
from detlab.checks.tax.profiles import Places, join_profiles
from detlab.checks.tax.same_work import refuse_other_work, work_said
from detlab.checks.tax.table import place_rows, step_row, tax_table
from detlab.checks.tax.times import Times, step_times
from detlab.errors import InputError
from detlab.readers import load_run
from detlab.readers.profiles import Profile, is_profile, load_profile
from detlab.run import Run, spans
from detlab.store import Selectable
from detlab.text import plural, shorten

Source = Run | Profile | str | PathLike[str]

COMPONENT: Final = "step time"

_SHOWN: Final = 60
"""Characters of a list of steps."""


@dataclass
class _Said:
    """What the check has to say so far."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    verified: list[Verified] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    runs: list[Run]
    profiles: list[Profile]

    @property
    def labels(self) -> list[str]:
        return [*(run.label for run in self.runs), *(profile.source for profile in self.profiles)]


def check_tax(  # noqa: PLR0913 - each is a question, or a number that nobody but the user knows
    default: Source | Sequence[Source],
    deterministic: Source | Sequence[Source],
    *,
    budget: float | None = None,
    steps: Selectable = None,
    warm_up: int | None = None,
    metric: str | None = None,
    gpus: int | None = None,
    days: float | None = None,
    train_steps: int | None = None,
    profile_steps: tuple[int, int] | None = None,
    by_layer: bool = False,
) -> CheckResult:
    """Measure what determinism costs, and where.

    Each side is a run with step times (a log, event files, a recorded run), several such runs, a profile (a
    trace of PyTorch's profiler, or CSV files of ``nsys stats``), or runs and profiles together. Runs tell how
    much longer a step takes, by the ratio of medians over the steps that all runs have, with its 95 %
    interval; profiles tell where. A difference that repeats of one side show as well is not a tax.

    Parameters
    ----------
    default, deterministic
        The two sides. Several runs a side are best made in turn, A B A B: every pair of arms is compared.
    budget
        The tax that is allowed, such as 0.10 for 10 %. An error if the interval lies above it, a warning if
        it lies on both sides of it; without, the tax is only measured.
    steps
        The steps to compare, as `load_run` takes them.
    warm_up
        How many of the first common steps to leave out; by default those before the first that is not slow.
    metric
        The metric that holds the step time, where its name does not tell.
    gpus, days, train_steps
        A training to reckon GPU-days for: the number of GPUs, and how many days it takes without
        determinism or how many steps it has.
    profile_steps
        Steps that the profiles of each side cover, where they are not marked.
    by_layer
        Keep layers apart in the names of modules.

    Returns
    -------
    Its ``table`` has the columns of `TAX_COLUMNS`: the step, then what costs in each table, largest first.

    Raises
    ------
    NotComparable
        The two sides did other work, as far as recipes and records say, or have nothing in common.
    InputError
        One side lacks what the other has, or a number makes no sense.
    TraceError
        A file cannot be read.
    """
    if budget is not None and not 0 <= budget < 100:
        raise InputError(f"budget={budget} is no tax.", "give a share: 0.10 for 10 %")
    plan = plan_of(gpus, days, train_steps)
    sides = [_side(given, steps) for given in (default, deterministic)]
    _refuse_lopsided(*sides)
    said = _Said()
    logged = _check_runs(sides, said, budget=budget, warm_up=warm_up, metric=metric, plan=plan)
    if sides[0].profiles:
        places = join_profiles(
            sides[0].profiles, sides[1].profiles, num_steps=profile_steps, by_layer=by_layer
        )
        if not sides[0].runs:
            _check_marked(places, said, budget=budget, plan=plan)
        _tell(places, said, logged)
    said.problems += _problems(sides)
    return CheckResult(
        "tax",
        tuple(", ".join(side.labels) for side in sides),
        findings_frame(said.findings),
        tuple(said.verified),
        tuple(said.not_checked),
        tuple(said.problems),
        tuple(dict.fromkeys(said.notes)),
        tax_table(said.rows),
    )


def _side(given: Source | Sequence[Source], steps: Selectable) -> _Side:
    sources = [given] if isinstance(given, Run | Profile | str | PathLike) else list(given)
    if not sources:
        raise InputError("One side of the comparison is empty.", "give at least one run or profile a side")
    runs: list[Run] = []
    profiles: list[Profile] = []
    for each in sources:
        if isinstance(each, Run):
            runs.append(each)
        elif isinstance(each, Profile):
            profiles.append(each)
        elif is_profile(each):
            profiles.append(load_profile(each))
        else:
            runs.append(load_run(each, steps=steps))
    return _Side(runs, profiles)


def _refuse_lopsided(a: _Side, b: _Side) -> None:
    for what in ("runs", "profiles"):
        if bool(getattr(a, what)) != bool(getattr(b, what)):
            lacking = "default" if getattr(b, what) else "deterministic"
            raise InputError(
                f"Only one side has {what}.", f"give {what} for both sides: the {lacking} one lacks them"
            )


def _problems(sides: Sequence[_Side]) -> list[Problem]:
    """Collect what the files of both sides lack."""
    runs = [Problem(run.label, each) for side in sides for run in side.runs for each in run.problems]
    read = [profile for side in sides for profile in side.profiles]
    return [*runs, *(Problem(profile.source, each) for profile in read for each in profile.problems)]


def _check_runs(
    sides: Sequence[_Side],
    said: _Said,
    *,
    budget: float | None,
    warm_up: int | None,
    metric: str | None,
    plan: Plan | None,
) -> float | None:
    """Judge logged step times; give how many milliseconds longer a step takes, where that is known."""
    a, b = (side.runs for side in sides)
    if not a:
        return None
    refuse_other_work(a, b)
    times = step_times(a, b, metric=metric, warm_up=warm_up)
    ratio = ratio_of(times.default, times.deterministic)
    medians = (_middle(times.default), _middle(times.deterministic)) if times.is_time else (np.nan, np.nan)
    said.rows.append(step_row(times.metric, "log", medians, ratio, len(times.steps)))
    said.verified.append(
        Verified(COMPONENT, _measured_text(ratio, medians, times), "measured: times of steps")
    )
    said.notes += [*times.notes, *_notes_of(times, ratio)]
    same = work_said([*a, *b])
    if same:
        said.verified.append(Verified("same work", f"{', '.join(same)}: the same on both sides", "as stated"))
    else:
        why = "nothing says that batch sizes, lengths and layouts are the same on both sides"
        said.not_checked.append(NotChecked("same work", why))
    _judge(ratio, len(times.steps), said, budget)
    said.not_checked += _not_repeated(len(a), len(b))
    if plan:
        said.notes.append(cost_text(plan, ratio, medians[0] if times.is_time else None))
    return medians[1] - medians[0] if times.is_time else None


def _middle(side: Any) -> float:
    """Give the geometric mean of the medians of runs, of which the ratio is one."""
    return float(np.exp(np.mean([np.log(np.median(times)) for times in side.values()])))


def _check_marked(places: Places, said: _Said, *, budget: float | None, plan: Plan | None) -> None:
    """Judge the lengths of steps that are marked in profiles, where there are no logs."""
    sizes = [len(each) for each in places.step_ms]
    if not all(sizes) or sizes != list(places.num_steps):
        why = "no step is marked in the profiles: give logs of both sides beside them"
        said.not_checked.append(NotChecked(COMPONENT, why))
        if budget is not None:
            said.problems.append(Problem(COMPONENT, "not known, so that the budget cannot be judged"))
        return
    num = min(sizes)
    sides: list[dict[str, Floats]] = [
        {label: np.array(each[:num])}
        for label, each in zip(("default", "deterministic"), places.step_ms, strict=True)
    ]
    ratio = ratio_of(*sides)
    medians = (_middle(sides[0]), _middle(sides[1]))
    said.rows.append(step_row("marked steps", "host", medians, ratio, num))
    took = f"{medians[0]:,.6g} ms without, {medians[1]:,.6g} ms with determinism, while profiled"
    text = f"{_percent(ratio)}: {took}"
    said.verified.append(
        Verified(COMPONENT, f"{text}; {num} {plural('step', num)}", "measured: marked steps")
    )
    _judge(ratio, num, said, budget)
    said.not_checked += _not_repeated(1, 1)
    if plan:
        said.notes.append(cost_text(plan, ratio, medians[0]))


def _tell(places: Places, said: _Said, logged_ms: float | None) -> None:
    """Say where the time went."""
    bare = tax_table(place_rows(places.rows, None))
    whole, said_whole = whole_of(places, bare, logged_ms)
    rows = place_rows(places.rows, whole)
    told = tell_places(places, tax_table(rows), whole)
    said.rows += rows
    said.verified += told.verified
    said.not_checked += told.not_checked
    said.findings += told.findings
    said.notes += [said_whole, *told.notes]


def _percent(ratio: Ratio) -> str:
    text = f"{100 * (ratio.value - 1):+.1f} %"
    if ratio.ends:
        low, high = (100 * (end - 1) for end in ratio.ends)
        text += f" (95 % interval {low:+.1f} to {high:+.1f} %)"
    if ratio.ends and not is_tax(ratio):
        text += ", not distinguishable from no difference"
    elif ratio.ends and ratio.noise is None:
        text += ", noise between runs not included"
    return text


def is_tax(ratio: Ratio) -> bool:
    """Say whether two sides differ by more than the interval leaves open and than repeats of one side do."""
    within_noise = ratio.noise is not None and max(ratio.value, 1 / ratio.value) <= ratio.noise
    return ratio.is_told_apart and not within_noise


def _measured_text(ratio: Ratio, medians: tuple[float, float], times: Times) -> str:
    num = len(times.steps)
    of = f"{num:,} {plural('step', num)} ({spans(times.steps)})"
    runs = f"{len(times.default)} and {len(times.deterministic)} runs" if len(ratio.pairs) > 1 else ""
    took = (
        f"median {medians[0]:,.6g} ms without, {medians[1]:,.6g} ms with determinism"
        if times.is_time
        else "from a rate, so that milliseconds are not known"
    )
    return f"{_percent(ratio)}: {took}; {', '.join(filter(None, (of, runs)))} of '{times.metric}'"


def _notes_of(times: Times, ratio: Ratio) -> list[str]:
    """Say how the steps were treated, and what the numbers rest on."""
    notes = []
    if times.warm_up:
        num = len(times.warm_up)
        notes.append(f"{num} {plural('step', num)} of warm-up left out: {spans(times.warm_up)}")
    for side, slow in zip(("default", "deterministic"), times.slow, strict=True):
        if slow:
            notes.append(
                f"{len(slow)} slow {plural('step', len(slow))} on the {side} side "
                f"({shorten(spans(slow), _SHOWN)}), such as those that save or evaluate: kept, for medians "
                "do not move with them"
            )
    if len(ratio.pairs) > 1:
        values = [100 * (value - 1) for *_, value in ratio.pairs]
        notes.append(f"{len(values)} pairs of arms: {min(values):+.1f} to {max(values):+.1f} %")
    if ratio.noise is not None:
        notes.append(f"repeats of one side differ by up to {100 * (ratio.noise - 1):.1f} %")
    if ratio.ends and ratio.num_blocks < FEW_STEPS:
        notes.append(
            f"the interval is rough: {len(times.steps)} steps, which hold {ratio.num_blocks} independent "
            f"{plural('piece', ratio.num_blocks)}"
        )
    return notes


def _judge(ratio: Ratio, num: int, said: _Said, budget: float | None) -> None:
    """Hold the interval against the budget."""
    if ratio.ends is None:
        why = f"{num} common {plural('step', num)} give no interval, {MIN_STEPS} are the least"
        said.not_checked.append(NotChecked("interval", why))
        if budget is not None:
            said.problems.append(Problem(COMPONENT, f"the budget cannot be judged: {why}"))
        return
    if budget is None:
        return
    low, high = (end - 1 for end in ratio.ends)
    allowed = f"at most {100 * budget:.4g} %"
    if high <= budget:
        said.verified.append(Verified("budget", f"{allowed}: the whole interval is", "95 % interval"))
        return
    is_above = low > budget
    said.findings.append(
        {
            "component": COMPONENT,
            "severity": "error" if is_above else "warning",
            "found": _percent(ratio),
            "expected": allowed,
            "why": "the whole interval is above the budget"
            if is_above
            else "the budget lies in the interval",
            "next": "profile both sides and give the profiles, to see which ops and kernels cost it"
            if is_above
            else "give more steps, or repeat both sides in turn, to narrow the interval",
        }
    )


def _not_repeated(num_default: int, num_deterministic: int) -> list[NotChecked]:
    """Say that one run a side cannot tell a tax from a slow day."""
    if min(num_default, num_deterministic) > 1:
        return []
    if max(num_default, num_deterministic) > 1:
        side = "default" if num_default == 1 else "deterministic"
        return [NotChecked("noise between runs", f"the {side} side was not repeated")]
    why = "one run a side: a slower machine looks the same; repeat both in turn, A B A B"
    return [NotChecked("noise between runs", why)]

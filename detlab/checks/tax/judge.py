"""How much longer a step takes: what is said of logged or marked steps, and held against a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.checks.result import NotChecked, Problem, Verified
from detlab.checks.tax.cost import Plan, cost_text
from detlab.checks.tax.interval import FEW_STEPS, MIN_STEPS, Floats, Ratio, ratio_of
from detlab.checks.tax.profiles import Places
from detlab.checks.tax.same_work import modes_said, refuse_other_work, work_said
from detlab.checks.tax.table import step_row
from detlab.checks.tax.times import Times, copies, step_times
from detlab.run import Run, spans
from detlab.text import plural, shorten

COMPONENT: Final = "step time"

_MEGATRON: Final = (
    "for comparison: Megatron-LM documents about 15 % for its deterministic mode, 4 % for large dense models "
    "and 17 % for hybrid ones with experts; its goal is below 10 % (issue 5785)"
)
"""docs/user-guide/deterministic-training.md and issue 5785 of github.com/NVIDIA/Megatron-LM."""

_SHOWN: Final = 60
"""Characters of a list of steps."""


@dataclass
class Said:
    """What the check has to say so far."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    verified: list[Verified] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    places: list[pl.DataFrame] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """What is known of whole steps: their ratio, how much longer one takes, and where that was read."""

    ratio: Ratio | None
    delta_ms: float | None
    source: str

    @property
    def is_logged(self) -> bool:
        """Whether it is from logs, not from a profile."""
        return self.source.startswith("logged")


def check_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    said: Said,
    *,
    budget: float | None,
    warm_up: int | None,
    metric: str | None,
    plan: Plan | None,
) -> Step:
    """Judge logged step times."""
    if not a:
        return Step(None, None, "")
    refuse_other_work(a, b)
    times = step_times(a, b, metric=metric, warm_up=warm_up)
    ratio = ratio_of(times.default, times.deterministic)
    medians = (_middle(times.default), _middle(times.deterministic)) if times.is_time else (np.nan, np.nan)
    said.rows.append(step_row(times.metric, "log", medians, ratio, len(times.steps)))
    said.verified.append(
        Verified(COMPONENT, _measured_text(ratio, medians, times), "measured: times of steps")
    )
    said.notes += [*times.notes, *_notes_of(times, ratio)]
    said.problems += map(_copied, copies(times))
    _tell_modes(a, b, said)
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
    if is_tax(ratio) and any(
        run.log is not None and "Megatron-LM" in run.log.files["format"] for run in [*a, *b]
    ):
        said.notes.append(_MEGATRON)
    return Step(ratio, medians[1] - medians[0] if times.is_time else None, "logged step times")


def _copied(labels: tuple[str, str]) -> Problem:
    what = "took exactly as long at every step: one is a copy of the other, and no second run"
    return Problem(COMPONENT, f"{' and '.join(labels)} {what}")


def _tell_modes(a: Sequence[Run], b: Sequence[Run], said: Said) -> None:
    """Say whether the sides differ in determinism, as far as they recorded it."""
    modes = modes_said(a, b)
    if not modes:
        why = "nothing says that one side was deterministic and the other was not"
        said.not_checked.append(NotChecked("determinism of the sides", why))
        return
    differ = [name for name, (one, other) in modes.items() if one != other]
    told = ", ".join(f"{name} {' and '.join(values)}" for name, values in modes.items())
    if differ:
        said.verified.append(Verified("determinism of the sides", told, "as stated"))
    else:
        said.problems.append(Problem("determinism of the sides", f"both say the same: {told}"))


def _middle(side: Any) -> float:
    """Give the geometric mean of the medians of runs, of which the ratio is one."""
    return float(np.exp(np.mean([np.log(np.median(times)) for times in side.values()])))


def check_marked(places: Places, said: Said, *, budget: float | None, plan: Plan | None) -> Step:
    """Judge the lengths of steps that are marked in profiles, where there are no logs."""
    sizes = [len(each) for each in places.step_ms]
    if not all(sizes) or min(map(min, places.step_ms)) <= 0:
        return _check_sums(places, said, budget=budget, plan=plan)
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
    return Step(ratio, places.whole_ms, "means of the marked steps")


def _check_sums(places: Places, said: Said, *, budget: float | None, plan: Plan | None) -> Step:
    """Say what is known where no single step is marked: means over steps, or nothing."""
    why = "no step is marked in the profiles: give logs of both sides beside them"
    if places.mean_ms is not None and places.mean_ms[0] > 0:
        a, b = places.mean_ms
        ratio = Ratio(b / a, None, None, None, (), 0)
        counts = [num or 0 for num in places.num_steps]
        said.rows.append(step_row("ranges around steps", "host", (a, b), ratio, min(counts)))
        took = f"mean {a:,.6g} ms without, {b:,.6g} ms with determinism, while profiled"
        said.verified.append(Verified(COMPONENT, f"{_percent(ratio)}: {took}", "measured: sums over steps"))
        why = "sums over steps give no interval: give logs of both sides beside them"
        said.notes += [cost_text(plan, ratio, a)] if plan else []
    elif plan:
        said.not_checked.append(NotChecked("GPU-days", f"not reckoned: {why}"))
    said.not_checked.append(NotChecked("interval" if places.mean_ms else COMPONENT, why))
    if budget is not None:
        said.problems.append(Problem(COMPONENT, f"the budget cannot be judged: {why}"))
    return Step(None, places.whole_ms, "ranges around whole steps")


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


def _judge(ratio: Ratio, num: int, said: Said, budget: float | None) -> None:
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
    is_above = low > budget and is_tax(ratio)
    if not is_above:
        why = "the budget lies in the interval" if low <= budget else "repeats of one side differ by as much"
        said.problems.append(Problem(COMPONENT, f"the budget cannot be judged: {why}"))
    said.findings.append(
        {
            "component": COMPONENT,
            "severity": "error" if is_above else "warning",
            "found": _percent(ratio),
            "expected": allowed,
            "why": "the whole interval is above the budget"
            if is_above
            else "more is neither shown nor excluded",
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

"""What determinism costs: step times of deterministic runs against default ones, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import polars as pl

from detlab.checks.result import CheckResult, NotChecked, Problem, findings_frame
from detlab.checks.tax.cost import plan_of
from detlab.checks.tax.judge import Said, Step, check_marked, check_runs, is_tax
from detlab.checks.tax.places import tell_places, whole_of
from detlab.checks.tax.profiles import Places, join_profiles
from detlab.checks.tax.table import place_table, tax_table
from detlab.errors import InputError, NotComparable
from detlab.readers import load_run
from detlab.readers.profiles import Profile, is_profile, load_profile
from detlab.run import Run
from detlab.store import Selectable

Source = Run | Profile | str | PathLike[str]


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
        The tax that is allowed, such as 0.10 for 10 %. An error if the interval lies above it; if it lies on
        both sides of it, or within what repeats of one side differ by, the check is invalid. Without, the tax
        is only measured.
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
    if (warm_up or 0) < 0 or min(profile_steps or (1, 1)) < 1:
        raise InputError(
            f"warm_up={warm_up} and profile_steps={profile_steps} are no numbers of steps.",
            "leave out no step or more, of profiles that cover one step or more",
        )
    plan = plan_of(gpus, days, train_steps)
    sides = [_side(given, steps) for given in (default, deterministic)]
    _refuse_lopsided(*sides)
    _refuse_twice([profile.source for side in sides for profile in side.profiles])
    said = Said()
    logged = check_runs(
        sides[0].runs, sides[1].runs, said, budget=budget, warm_up=warm_up, metric=metric, plan=plan
    )
    if sides[0].profiles:
        _refuse_other_devices(*sides)
        places = join_profiles(
            sides[0].profiles, sides[1].profiles, num_steps=profile_steps, by_layer=by_layer
        )
        step = logged if sides[0].runs else check_marked(places, said, budget=budget, plan=plan)
        _tell(places, said, step)
    said.problems += _problems(sides)
    return CheckResult(
        "tax",
        tuple(", ".join(side.labels) for side in sides),
        findings_frame(said.findings),
        tuple(said.verified),
        tuple(said.not_checked),
        tuple(said.problems),
        tuple(dict.fromkeys(said.notes)),
        pl.concat([tax_table(said.rows), *said.places]),
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


def _refuse_twice(files: Sequence[str]) -> None:
    """Refuse a profile that was given twice: it has no tax against itself."""
    places = [Path(file).resolve() for file in files]
    again = next((place for at, place in enumerate(places) if place in places[:at] and place.exists()), None)
    if again:
        raise InputError(f"{again} was given twice.", "give one profile of each run")


def _problems(sides: Sequence[_Side]) -> list[Problem]:
    """Collect what the files of both sides lack."""
    runs = [Problem(run.label, each) for side in sides for run in side.runs for each in run.problems]
    read = [profile for side in sides for profile in side.profiles]
    return [*runs, *(Problem(profile.source, each) for profile in read for each in profile.problems)]


def _refuse_other_devices(a: _Side, b: _Side) -> None:
    """Refuse profiles of other devices.

    Raises
    ------
    NotComparable
        Both sides name their devices, and not the same.
    """
    named = [{dict(each.facts).get("devices") for each in side.profiles} - {None} for side in (a, b)]
    if all(named) and named[0] != named[1]:
        said = " and on ".join(", ".join(sorted(map(str, each))) for each in named)
        raise NotComparable(f"The profiles were made on {said}.", "profile both sides on the same devices")


def _tell(places: Places, said: Said, step: Step) -> None:
    """Say where the time went."""
    whole, said_whole = whole_of(
        places, step.delta_ms if places.per_step or not step.is_logged else None, step.source
    )
    is_open = step.ratio is not None and step.ratio.ends is not None and not is_tax(step.ratio)
    if is_open:
        whole, said_whole = None, "no shares: the difference of the steps is not distinguishable from none"
    if not step.is_logged:
        why = "profiles do not say that batch sizes, lengths and layouts are the same on both sides"
        said.not_checked.append(NotChecked("same work", why))
    table = place_table(places.rows, whole)
    told = tell_places(places, table, whole)
    said.places.append(table)
    said.verified += told.verified
    said.not_checked += told.not_checked
    said.findings += told.findings
    said.notes += [said_whole, *told.notes]

"""Metrics that must not be compared: each reason in one sentence, with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import polars as pl

from detlab.errors import InputError, NotComparable
from detlab.readers.metrics.names import choose_names, is_measurement
from detlab.run import Run

_SHOWN: Final = 8


def refuse_unusable(run: Run) -> None:
    """Refuse a run without metrics, or with two values of one number.

    Raises
    ------
    NotComparable
        It is one of these.
    """
    if run.metrics.is_empty():
        raise NotComparable(
            f"{run.label} ({run.source}) holds no step metrics.",
            "give the log or event files of the same run: dl.load_run(path)",
        )
    if run.log and run.log.conflicts:
        num = len(run.log.conflicts) - 1
        more = f" ({num} more in Run.problems)" if num else ""
        raise NotComparable(
            f"{run.label} has two values of one number: {run.log.conflicts[0]}{more}.",
            "load the files of one run only, or the log of one rank: dl.load_run([file, …])",
        )


def names_of(a: Run, b: Run, names: Sequence[str] | None, pairs: Mapping[str, str]) -> list[str]:
    """List the metrics to look at, by their names in run a or, of those that only run b has, there.

    Raises
    ------
    InputError
        A name that was asked for, or is to be paired, is not there.
    """
    known_a, known_b = (_names(run) for run in (a, b))
    for ours, theirs in pairs.items():
        for run, known, name in ((a, known_a, ours), (b, known_b, theirs)):
            if name not in known:
                raise InputError(f"{run.label} has no metric '{name}' to pair.", _choices(name, known))
    renamed = {theirs: ours for ours, theirs in pairs.items()}
    every = list(dict.fromkeys([*known_a, *(renamed.get(name, name) for name in known_b)]))
    for name in names or ():
        if name not in every:
            raise InputError(f"neither run has a metric '{name}'.", _choices(name, every))
    return [name for name in every if names is None or name in names]


def _names(run: Run) -> list[str]:
    return run.metrics.select(pl.col("name").cast(pl.String).unique(maintain_order=True))["name"].to_list()


def _choices(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"choose one of: {_listed([*near, *(each for each in known if each not in near)])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none"


def refuse_without_common_names(a: Run, b: Run, names: Sequence[str], pairs: Mapping[str, str]) -> None:
    """Refuse two runs that have no metric in common but measurements of the machine.

    Raises
    ------
    NotComparable
        There is none; the hint names metrics that may be the same under two names.
    """
    known = [choose_names(run.metrics, lambda name: ~is_measurement(name)) for run in (a, b)]
    if {*known[0]} & ({*known[1]} | set(pairs)) & {*names}:
        return
    near = near_names(*known)
    offered = (
        ", ".join(f'"{ours}": "{theirs}"' for ours, theirs in near.items()) or '"name in a": "name in b"'
    )
    raise NotComparable(
        f"{a.label} and {b.label} have no metric in common: {_listed(known[0])}; and {_listed(known[1])} "
        "(timings and other measurements of the machine do not count).",
        f"if two names mean one metric, say so: pairs={{{offered}}}",
    )


def near_names(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    """Guess which metrics of two runs are the same under two names, such as ``loss`` and ``lm loss``."""
    left = {name: _words(name) for name in theirs}
    found: dict[str, str] = {}
    for name in ours:
        words = _words(name)
        alike = [other for other, each in left.items() if each == words]
        inside = [other for other, each in left.items() if set(each) <= set(words) or set(words) <= set(each)]
        best = next(iter([*alike, *inside]), None)
        if best is not None:
            found[name] = best
            del left[best]
    return found


def _words(name: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"[a-z0-9]+", name.lower().replace("_", " ")))))


def refuse_without_common_steps(
    a: pl.DataFrame, b: pl.DataFrame, labels: Sequence[str], moved: int = 0
) -> None:
    """Say why no step of any metric is in both runs.

    Parameters
    ----------
    a, b
        Points of both runs, of the metrics that both have.
    labels
        What the runs are called.
    moved
        The offset that was added to the steps of run b.

    Raises
    ------
    NotComparable
        Always, with both spans and whether the steps meet when those of one run are moved.
    """
    steps = [each["step"].unique().sort() for each in (a, b)]
    if steps[0].is_in(steps[1].implode()).any():
        ranks = [_ranks(each) for each in (a, b)]
        raise NotComparable(
            f"{labels[0]} and {labels[1]} have no number of the same rank in common: the metrics are "
            f"{ranks[0]} and {ranks[1]}.",
            "load one rank of the run that has several: dl.load_run(path, ranks=0)",
        )
    offset = int(steps[0][0]) - int(steps[1][0])
    num = int((steps[1] + offset).is_in(steps[0].implode()).sum())
    counts = ", as where one run counts from 0 and the other from 1" if abs(offset) == 1 else ""
    hint = (
        f"with {moved + offset:+d} on the steps of {labels[1]}, {num:,} steps meet{counts}: if they are "
        f"the same steps of training, compare with offset={moved + offset}"
        if abs(offset) == 1 or num == min(map(len, steps))
        else "check that these are two runs of the same steps; a resumed run needs the log of its own steps"
    )
    raise NotComparable(
        f"{labels[0]} and {labels[1]} have no step in common: {_span(steps[0])}, and {_span(steps[1])}.", hint
    )


def _span(steps: pl.Series) -> str:
    return f"{len(steps):,} steps from {steps[0]} to {steps[-1]}"


def _ranks(points: pl.DataFrame) -> str:
    ranks = points["rank"].drop_nulls().unique().sort()
    return f"of {len(ranks)} ranks" if len(ranks) else "of no rank"

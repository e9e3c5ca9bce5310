"""Pairs of runs within and between the arms of an experiment, and the questions they answer per arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from os import PathLike
from typing import Any, Final

import polars as pl

from detlab.comparison.facts import environment_of
from detlab.comparison.many import ManyComparison, compare_many
from detlab.comparison.strength import ANECDOTE
from detlab.errors import NotComparable
from detlab.run import Run

PAIR_COLUMNS: Final[dict[str, Any]] = {
    "arm_a": pl.String,
    "arm_b": pl.String,
    "a": pl.String,
    "b": pl.String,
    "verdict": pl.String,
    "first_step": pl.Int64,
    "num_agree": pl.Int64,
    "num_pairs": pl.Int64,
    "note": pl.String,
}
GATE_COLUMNS: Final[dict[str, Any]] = {
    "arm": pl.String,
    "gate": pl.String,
    "verdict": pl.String,
    "num_agree": pl.Int64,
    "num_pairs": pl.Int64,
    "why": pl.String,
}

Arms = Mapping[str, Sequence[str]]
"""Labels of runs by the name of the arm that they belong to."""

Runs = Sequence[Run | str | PathLike[str]]


def arm_pairs(runs: ManyComparison | Runs, arms: Arms) -> pl.DataFrame:
    """List every pair of runs within and between the arms of an experiment, such as broken and fixed.

    Parameters
    ----------
    runs
        The runs, or a comparison of them.
    arms
        Labels of runs by arm; a run belongs to one arm, and may belong to none.

    Returns
    -------
    One row per pair: ``arm_a`` and ``arm_b`` (the same for a pair within an arm), ``a`` and ``b`` (the
    runs), ``verdict`` (match, diverged, incomplete or invalid), ``first_step`` at which they differ,
    ``num_agree`` and ``num_pairs`` (how many of the pairs of these arms match, and how many there are),
    ``note``.

    Raises
    ------
    NotComparable
        An arm names a run that was not compared, or two arms name one run.
    """
    many = _compared(runs, arms)
    rows = []
    for one, other in _arm_pairs(arms):
        pairs = _pairs(many, arms, one, other)
        num_agree = sum(verdict == "match" for *_, verdict, _ in pairs)
        note = ANECDOTE if len(pairs) == 1 else ""
        rows += [(one, other, *pair, num_agree, len(pairs), note) for pair in pairs]
    return pl.DataFrame(rows, PAIR_COLUMNS, orient="row")


def _compared(runs: ManyComparison | Runs, arms: Arms) -> ManyComparison:
    many = runs if isinstance(runs, ManyComparison) else compare_many(runs)
    named = Counter(label for labels in arms.values() for label in labels)
    wrong = sorted(label for label, num in named.items() if num > 1 or label not in many.labels)
    if wrong:
        raise NotComparable(
            f"Arms name {', '.join(wrong)} more than once, or without such a run.",
            f"each run belongs to one arm at most; the runs are {', '.join(many.labels)}",
        )
    return many


def _arm_pairs(arms: Arms) -> list[tuple[str, str]]:
    return [(arm, arm) for arm in arms] + list(combinations(arms, 2))


def _pairs(many: ManyComparison, arms: Arms, one: str, other: str) -> list[tuple[str, str, str, int | None]]:
    if one == other:
        chosen = list(combinations(arms[one], 2))
    else:
        chosen = [(a, b) for a in arms[one] for b in arms[other]]
    return [(a, b, *many.pair_verdict(a, b)) for a, b in chosen]


def arm_gates(runs: ManyComparison | Runs, arms: Arms, *, baseline: str) -> pl.DataFrame:
    """Judge each arm by three questions that are easily mistaken for each other.

    A code change can be deterministic and still give other bits than the code before it, so
    ``repeatability`` (do the arm's runs agree with each other, in a fixed environment?),
    ``baseline_equivalence`` (do they agree with the runs of the baseline?) and ``restart_replay`` (does a
    resumed run agree?) are kept apart.

    Parameters
    ----------
    runs, arms
        As in `arm_pairs`.
    baseline
        The arm that the others are held against.

    Returns
    -------
    One row per arm and gate: ``arm``, ``gate``, ``verdict`` (pass, fail, incomplete or untested),
    ``num_agree`` and ``num_pairs``, ``why``.

    Raises
    ------
    NotComparable
        As in `arm_pairs`, or the baseline is no arm.
    """
    many = _compared(runs, arms)
    if baseline not in arms:
        raise NotComparable(f"{baseline} is no arm.", f"the arms are {', '.join(arms)}")
    rows = []
    for arm in arms:
        remark = "" if _is_one_environment(many, arms[arm]) else "; their environments differ"
        rows.append((arm, "repeatability", *_gate(_pairs(many, arms, arm, arm), remark)))
        if arm != baseline:
            rows.append((arm, "baseline_equivalence", *_gate(_pairs(many, arms, baseline, arm))))
        rows.append((arm, "restart_replay", "untested", 0, 0, "check a resumed run against one that is not"))
    return pl.DataFrame(rows, GATE_COLUMNS, orient="row")


def _is_one_environment(many: ManyComparison, labels: Sequence[str]) -> bool:
    stated = [
        environment_of(run) for run, label in zip(many.runs, many.labels, strict=True) if label in labels
    ]
    return all(each == stated[0] for each in stated)


def _gate(pairs: Sequence[tuple[str, str, str, int | None]], remark: str = "") -> tuple[str, int, int, str]:
    num_agree = sum(verdict == "match" for *_, verdict, _ in pairs)
    if not pairs:
        return "untested", 0, 0, "there is no pair of runs; repeat a run"
    steps = [step for *_, step in pairs if step is not None]
    if steps:
        return "fail", num_agree, len(pairs), f"runs differ from step {min(steps)} on{remark}"
    if num_agree < len(pairs):
        return "incomplete", num_agree, len(pairs), "nothing differs, but not all could be compared"
    why = ANECDOTE if len(pairs) == 1 else f"{len(pairs)} pairs agree"
    return "pass", num_agree, len(pairs), why + remark

"""A deliberate change against run-to-run variation: what differs between two sets of runs, and within."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import polars as pl

from detlab.comparison.classes import unlike_labels
from detlab.comparison.metric_classes import MetricClasses, partition_metrics
from detlab.comparison.metric_gaps import gaps_of
from detlab.comparison.metrics.averages import without_other_means
from detlab.comparison.metrics.change.gates import (
    GATE_COLUMNS,
    Gate,
    equivalence,
    repeatability,
    restart_replay,
)
from detlab.comparison.metrics.change.spread import by_metric, spreads
from detlab.comparison.metrics.refusals import refuse_unusable
from detlab.comparison.metrics.result import SCHEMA, finite
from detlab.comparison.text import as_html
from detlab.errors import NotComparable
from detlab.readers import as_run
from detlab.run import Run
from detlab.schema import Evidence

Place = str | PathLike[str]
Restart = Run | Place | tuple[Run | Place, Run | Place]
"""A run that ran steps twice, or a resumed run and the continuous one."""


@dataclass(frozen=True, eq=False, repr=False)
class ChangeComparison:
    """Runs before and after a deliberate change.

    Attributes
    ----------
    baseline, changed
        Labels of the runs of each set.
    spread
        One row per step, rank and metric that both sets have, with the columns of
        `detlab.comparison.metrics.change.spread.SPREAD_COLUMNS`: the range of each set, and the difference
        between their means.
    judged
        The gates: fixed-environment repeatability, baseline equivalence, restart replay.
    evidence
        What equality proves: EXACT (all bits of the numbers) or PRINTED (the digits that were printed).
    problems
        (run, what) for each thing that is missing or damaged.
    """

    baseline: tuple[str, ...]
    changed: tuple[str, ...]
    spread: pl.DataFrame
    judged: tuple[Gate, ...]
    evidence: Evidence
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def gates(self) -> pl.DataFrame:
        """The three questions that are easily mistaken for each other, each with its own verdict.

        Returns
        -------
        One row per gate: ``gate``, ``verdict`` (pass, fail or not tested), ``evidence`` (exact or printed:
        what equality proves), ``why``, ``first_step`` at which runs differ and the ``metrics`` that do so
        there (null and empty where none differ).
        """
        rows = [
            (
                gate.name,
                gate.verdict,
                self.evidence.name.lower(),
                gate.why,
                gate.first_step,
                list(gate.metrics),
            )
            for gate in self.judged
        ]
        return pl.DataFrame(rows, GATE_COLUMNS, orient="row")

    @property
    def metrics(self) -> pl.DataFrame:
        """The spreads summed up by metric; columns as in `change_spread.METRIC_COLUMNS`."""
        return by_metric(self.spread)

    @property
    def exit_code(self) -> int:
        """1 when a gate failed, 2 when none was tested, else 0."""
        verdicts = {gate.verdict for gate in self.judged}
        return 1 if "fail" in verdicts else 0 if "pass" in verdicts else 2

    def to_json(self) -> dict[str, Any]:
        """Give the comparison in its JSON form, see ``detlab/schemas/metrics.json``."""
        return {
            "schema": SCHEMA,
            "baseline": list(self.baseline),
            "changed": list(self.changed),
            "evidence": self.evidence.name.lower(),
            "gates": self.gates.drop("evidence").to_dicts(),
            "metrics": finite(self.metrics.to_dicts()),
            "problems": [{"where": where, "what": what} for where, what in self.problems],
        }

    def __repr__(self) -> str:
        from detlab.comparison.metrics.change.text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def compare_change(
    baseline: Sequence[Run | Place],
    changed: Sequence[Run | Place],
    *,
    restarts: Sequence[Restart] = (),
) -> ChangeComparison:
    """Hold a deliberate change against run-to-run variation, by step metrics.

    A change of the code can be deterministic and still give other numbers than before it. So three
    questions are kept apart, each with its own verdict: do runs of one set repeat each other
    (**fixed-environment repeatability**), do the changed runs equal the baseline (**baseline equivalence**),
    and does a run that was restarted give the same as before (**restart replay**)? Beside them, for each step
    and metric, stands the spread within each set, zero where the recipe is deterministic, and the
    difference between the sets.

    Parameters
    ----------
    baseline, changed
        Runs before and after the change, or paths that `detlab.load_run` can read. Two of each or more, or
        repeatability is not tested.
    restarts
        For restart replay: pairs of a resumed run and the continuous one, or runs that ran some steps
        twice. Steps that a run of the two sets ran twice are looked at without being told.

    Raises
    ------
    NotComparable
        A set is empty, a run has no metrics or two values of one number, the sets have no metric and step in
        common, or a restart has no step to be held against.
    TraceError
        A run cannot be read.
    """
    sets = [[as_run(run) for run in runs] for runs in (baseline, changed)]
    resumed = [_restart(entry) for entry in restarts]
    _refuse(sets, resumed)
    labels = unlike_labels([run.label for runs in sets for run in runs])
    before, after = labels[: len(sets[0])], labels[len(sets[0]) :]
    alike, averages = without_other_means([*sets[0], *sets[1]], labels)
    compared = [alike[: len(before)], alike[len(before) :]]
    within = [partition_metrics(runs) if len(runs) > 1 else None for runs in compared]
    together = partition_metrics(alike)
    steady = repeatability(within, [len(runs) for runs in sets])
    gates = (
        steady,
        equivalence(together, len(before), within[0]),
        restart_replay([*sets[0], *sets[1]], resumed),
    )
    spread = spreads(*compared)
    if spread.is_empty():
        raise NotComparable(
            "The baseline and the changed runs have no metric and step in common.",
            "give runs of which the logs show the same steps",
        )
    problems = [(run.label, what) for runs in sets for run in runs for what in run.problems]
    problems += [(run.label, what) for pair in resumed for run in pair if run for what in run.problems]
    problems += [*gaps_of(together, labels), *averages]
    return ChangeComparison(
        tuple(before), tuple(after), spread, gates, _evidence([together, *within]),
        tuple(dict.fromkeys(problems)),
    )  # fmt: skip


def _restart(entry: Restart) -> tuple[Run, Run | None]:
    """Give a resumed run and the continuous one; None for the latter where a run is held against itself."""
    if isinstance(entry, tuple):
        return as_run(entry[0]), as_run(entry[1])
    return as_run(entry), None


def _refuse(sets: Sequence[Sequence[Run]], restarts: Sequence[tuple[Run, Run | None]]) -> None:
    for what, runs in zip(("baseline", "changed"), sets, strict=True):
        if not runs:
            raise NotComparable(f"There is no {what} run.", "give one or more runs of each set")
    for run in [*sets[0], *sets[1], *(each for pair in restarts for each in pair if each)]:
        refuse_unusable(run)


def _evidence(found: Sequence[MetricClasses | None]) -> Evidence:
    levels = {each.evidence for each in found if each} - {Evidence.NONE}
    return min(levels, default=Evidence.NONE)

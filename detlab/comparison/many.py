"""More than two runs: which of them are equal, step by step, and what goes with the difference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, Final

import polars as pl

from detlab.comparison.classes import (
    Classes,
    Partition,
    by_key,
    common_ranks,
    least_evidence,
    partition_metrics,
    refuse_unlike,
)
from detlab.comparison.facts import ENVIRONMENT_KINDS, Fact, associate, counts_frame, facts_frame, run_facts
from detlab.comparison.findings import Finding
from detlab.comparison.strength import Pair, seen_in_pairs
from detlab.errors import NotComparable
from detlab.readers import as_run
from detlab.run import Run
from detlab.schema import Evidence

STEP_COLUMNS: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "run": pl.String,
    "class": pl.Int64,
    "num_classes": pl.Int64,
}
METRIC_COLUMNS: Final[dict[str, Any]] = {"step": pl.Int64, "name": pl.String, **STEP_COLUMNS}

_HOST: Final = re.compile(r"(^|[._])(host|node)_?(s|name|names)?$", re.IGNORECASE)
"""Paths of facts that say on which machine a rank ran."""


@dataclass(frozen=True, eq=False, repr=False)
class ManyComparison:
    """Runs partitioned into classes of equal bits.

    Attributes
    ----------
    runs, labels
        The runs, and a name for each; a label that several runs have gets a number.
    step_classes
        For each step the class of every run by its trace; None where a run lacks the step, is cut before
        its end, or has other evidence of it than most.
    metric_classes
        The same for each step and metric, by the bits of the recorded values.
    evidence
        The least evidence of any output that was compared; NONE when there are metrics alone.
    problems
        (where, what) for each thing that is missing, damaged or left out.
    pair_findings
        The findings of every pair of runs whose traces could be compared, by the positions of the runs.
    """

    runs: tuple[Run, ...]
    labels: tuple[str, ...]
    step_classes: Mapping[int, Classes]
    metric_classes: Mapping[tuple[int, str], Classes]
    evidence: Evidence
    problems: tuple[tuple[str, str], ...]
    pair_findings: Mapping[Pair, tuple[Finding, ...]]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Class of each run over everything that all runs recorded, from 1 in the order of the runs."""
        whole = [classes for _, classes in self._places() if None not in classes]
        return tuple(number or 0 for number in by_key(list(zip(*whole, strict=True))))

    @property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Labels of the runs that are equal in everything that all runs recorded."""
        numbers = sorted(set(self.numbers))
        return tuple(tuple(self._labels_of(number)) for number in numbers)

    def _labels_of(self, number: int) -> list[str]:
        return [label for label, each in zip(self.labels, self.numbers, strict=True) if each == number]

    def _places(self) -> Iterator[tuple[int, Classes]]:
        """Give the classes at each step and at each metric of it."""
        yield from self.step_classes.items()
        yield from ((step, classes) for (step, _), classes in self.metric_classes.items())

    @property
    def first_step(self) -> int | None:
        """The first step, by trace or by metric, at which not all runs are equal."""
        return min((step for step, classes in self._places() if num_classes(classes) > 1), default=None)

    @property
    def verdict(self) -> str:
        """``match``, ``diverged``, or ``incomplete``: nothing differs, but not all could be compared."""
        if self.first_step is not None:
            return "diverged"
        lacking = self.problems or any(None in classes for _, classes in self._places())
        return "incomplete" if lacking else "match"

    @property
    def exit_code(self) -> int:
        """0 match, 1 diverged, 2 incomplete."""
        return {"match": 0, "diverged": 1, "incomplete": 2}[self.verdict]

    @cached_property
    def by_step(self) -> pl.DataFrame:
        """Classes by trace.

        Returns
        -------
        One row per step and run: ``step``, ``run``, ``class`` (from 1 in the order of the runs, counted
        anew at every step; null where the run could not be compared), ``num_classes`` of the step.
        """
        rows = [
            {"step": step, "run": label, "class": number, "num_classes": num_classes(classes)}
            for step, classes in self.step_classes.items()
            for label, number in zip(self.labels, classes, strict=True)
        ]
        return pl.DataFrame(rows, STEP_COLUMNS)

    @cached_property
    def by_metric(self) -> pl.DataFrame:
        """Classes by metric.

        Returns
        -------
        One row per step, metric and run: ``step``, ``name``, ``run``, ``class`` (null where the run does
        not have the metric), ``num_classes``. Values are equal when their bits are, as far as they were
        recorded: a rounded number hides a difference.
        """
        rows = [
            {"step": step, "name": name, "run": label, "class": number, "num_classes": num_classes(classes)}
            for (step, name), classes in self.metric_classes.items()
            for label, number in zip(self.labels, classes, strict=True)
        ]
        return pl.DataFrame(rows, METRIC_COLUMNS)

    @cached_property
    def findings(self) -> pl.DataFrame:
        """Where differences between the traces begin, and in how many pairs of runs each was seen.

        Returns
        -------
        One row per class, op, phase and kind of place, what most pairs show first: ``class``, ``op``,
        ``scopes``, ``phase``, ``ranks`` (with it as origin in some pair), ``first_step`` (the first in any
        pair), ``num_pairs`` (in which it was seen), ``of_pairs`` (whose traces could be compared, those
        that match among them), ``runs_in_all`` (runs that are in every pair with it), ``note`` (what the
        number is worth). Pairs that share a run are not independent: one odd run among four is in three
        of six pairs.
        """
        return seen_in_pairs(self.pair_findings, self.labels)

    @cached_property
    def found_facts(self) -> tuple[Fact, ...]:
        """What the runs state differently, what goes best with the classes first."""
        groups = {
            str(number): [run for run, each in zip(self.runs, self.numbers, strict=True) if each == number]
            for number in sorted(set(self.numbers))
        }
        return tuple(associate(groups))

    @cached_property
    def facts(self) -> pl.DataFrame:
        """What the runs state differently in manifest and recipe, joined with their classes.

        Returns
        -------
        One row per fact, the least probable first: ``fact`` (path in the recipe), ``kind`` (environment,
        version, argument or recorder), ``num_values``, ``separates`` (no value occurs in two classes,
        and some value in two runs), ``p`` (how often a shuffle of the runs over the classes stands out
        as much: an exact test; null when there are too many tables), ``chance`` (that any of the facts
        tested does), ``note`` (what the association is worth).
        """
        return facts_frame(self.found_facts)

    @cached_property
    def fact_counts(self) -> pl.DataFrame:
        """The tables of counts behind `facts`.

        Returns
        -------
        One row per fact, class and value that occurs: ``fact``, ``class`` (its number), ``value`` (as
        JSON text, ``absent`` where a run does not state it), ``num_runs``.
        """
        return counts_frame(self.found_facts)

    @property
    def conclusion(self) -> str:
        """What the difference between the classes goes with.

        ``equal``: there is one class. ``run_to_run``: runs of different classes state the same, the host
        among it. ``environment``: every class has two runs or more, and only environment or versions separate
        them. ``recipe``: arguments do. ``unknown``: none of these.
        """
        if len(self.classes) == 1:
            return "equal"
        if self._is_run_to_run():
            return "run_to_run" if self.states_hosts else "unknown"
        kinds = {fact.kind for fact in self.found_facts if fact.separates}
        if not kinds or min(map(len, self.classes)) < 2:
            return "unknown"
        return "environment" if kinds <= set(ENVIRONMENT_KINDS) else "recipe"

    @property
    def states_hosts(self) -> bool:
        """Whether every run says on which hosts it ran; what is not stated may differ all the same."""
        return all(any(_HOST.search(path) for path in run_facts(run)) for run in self.runs)

    def _is_run_to_run(self) -> bool:
        """Say whether two runs of different classes state the same in everything."""
        order = sorted(range(len(self.runs)), key=lambda at: self.numbers[at])  # the order of the facts
        stated = [tuple(fact.values[at] for fact in self.found_facts) for at in range(len(order))]
        pairs = {(facts, self.numbers[at]) for facts, at in zip(stated, order, strict=True)}
        return len({facts for facts, _ in pairs}) < len(pairs)

    def pair_verdict(self, a: str, b: str) -> tuple[str, int | None]:
        """Compare two of the runs by their classes.

        Returns
        -------
        ``match``, ``diverged``, ``incomplete`` or ``invalid`` (they share nothing that could be compared),
        and the first step at which they differ.
        """
        at_a, at_b = self.labels.index(a), self.labels.index(b)
        pairs = [(step, classes[at_a], classes[at_b]) for step, classes in self._places()]
        shared = [(step, mine, theirs) for step, mine, theirs in pairs if None not in (mine, theirs)]
        differing = [step for step, mine, theirs in shared if mine != theirs]
        if differing:
            return "diverged", min(differing)
        if not shared:
            return "invalid", None
        one_sided = any((mine is None) != (theirs is None) for _, mine, theirs in pairs)
        return ("incomplete" if one_sided else "match"), None

    def __repr__(self) -> str:
        from detlab.comparison.many_text import summary

        return summary(self)


def num_classes(classes: Classes) -> int:
    """Count the different classes of a step or metric."""
    return len(set(classes) - {None})


def compare_many(
    runs: Sequence[Run | str | PathLike[str]], *, executor: Executor | None = None
) -> ManyComparison:
    """Partition runs into classes of equal bits, and join the classes with what the runs state.

    Parameters
    ----------
    runs
        Two runs or more, or paths that `detlab.load_run` can read.
    executor
        Where ranks are compared: any `concurrent.futures.Executor`. By default a thread per core.

    Raises
    ------
    NotComparable
        There are fewer than two runs; or they have different layouts or digests, or no rank, step or
        metric that all of them have.
    TraceError
        A run cannot be read.
    """
    loaded = [as_run(run) for run in runs]
    labels = _unlike_labels([run.label for run in loaded])
    if len(loaded) < 2:
        raise NotComparable(f"{len(loaded)} run is nothing to compare.", "give two runs or more")
    refuse_unlike(loaded, labels)
    kept, problems = common_ranks(loaded, labels)
    partition = Partition(kept, labels, executor)
    steps, metrics = partition.steps(), partition_metrics(loaded)
    _refuse_unrelated(labels, [*steps.values(), *metrics.values()])
    findings = partition.findings()
    problems += [
        (label, what) for run, label in zip(loaded, labels, strict=True) for what in run.problems
    ] + partition.problems
    return ManyComparison(
        tuple(loaded), tuple(labels), steps, metrics, least_evidence(kept), tuple(dict.fromkeys(problems)),
        findings,
    )  # fmt: skip


def _refuse_unrelated(labels: Sequence[str], places: Sequence[Classes]) -> None:
    """Refuse runs of which not all have a class at one step or metric: they have no classes together."""
    if any(None not in classes for classes in places):
        return
    alone = [label for at, label in enumerate(labels) if all(classes[at] is None for classes in places)]
    found = f"; nothing of {', '.join(alone)} can be compared" if alone else ""
    raise NotComparable(
        f"The runs have no step and no metric that all of them have with the same evidence{found}.",
        "leave out the runs that lack them, or record the same steps of every run",
    )


def _unlike_labels(labels: Sequence[str]) -> list[str]:
    """Give the labels that several runs have a number each."""
    counts, seen = Counter(labels), Counter[str]()
    unlike = []
    for label in labels:
        seen[label] += 1
        unlike.append(f"{label} #{seen[label]}" if counts[label] > 1 else label)
    return unlike

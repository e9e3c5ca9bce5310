"""More than two runs: which of them are equal, step by step, and what goes with the difference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    refuse_unlike,
    unlike_labels,
)
from detlab.comparison.facts import (
    ENVIRONMENT_KINDS,
    Fact,
    Stated,
    counts_frame,
    facts_frame,
    facts_that_differ,
    recorded_hosts,
    stated_of,
)
from detlab.comparison.findings import Finding
from detlab.comparison.metric_classes import MetricClasses, partition_metrics
from detlab.comparison.metric_gaps import gaps_of
from detlab.comparison.metrics.averages import without_other_means
from detlab.comparison.metrics.refusals import refuse_unusable
from detlab.comparison.stated import Facts, Hosts, as_facts, as_hosts, refuse_strangers
from detlab.comparison.strength import Pair, seen_in_pairs
from detlab.comparison.verdicts import EXIT_CODES
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
    metrics
        The same for each step and metric: by the bits of the numbers where they are known, by the digits
        that were printed where they are not.
    trace_evidence
        The least evidence of any output in the traces; NONE when there are metrics alone.
    stated
        What is stated of each run: by itself, and by whoever compares it.
    problems
        (where, what) for each thing that is missing, damaged or left out.
    pair_findings
        The findings of every pair of runs whose traces could be compared, by the positions of the runs.
    """

    runs: tuple[Run, ...]
    labels: tuple[str, ...]
    step_classes: Mapping[int, Classes]
    metrics: MetricClasses
    trace_evidence: Evidence
    stated: tuple[Stated, ...]
    problems: tuple[tuple[str, str], ...]
    pair_findings: Mapping[Pair, tuple[Finding, ...]]

    @property
    def evidence(self) -> Evidence:
        """The least evidence of what was compared: PRINTED as soon as one number is rounded text."""
        known = {self.trace_evidence, self.metrics.evidence} - {Evidence.NONE}
        return min(known, default=Evidence.NONE)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Class of each run over everything that all runs recorded, from 1 in the order of the runs."""
        whole = [classes for classes in self.step_classes.values() if None not in classes]
        shared = self.metrics.numbers[(self.metrics.numbers > 0).all(axis=1)]
        whole += pl.DataFrame(shared, list(self.labels)).unique().rows()
        return tuple(number or 0 for number in by_key(list(zip(*whole, strict=True))))

    @property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Labels of the runs that are equal in everything that all runs recorded."""
        numbers = sorted(set(self.numbers))
        return tuple(tuple(self._labels_of(number)) for number in numbers)

    def _labels_of(self, number: int) -> list[str]:
        return [label for label, each in zip(self.labels, self.numbers, strict=True) if each == number]

    @cached_property
    def first_step(self) -> int | None:
        """The first step, by trace or by metric, at which not all runs are equal."""
        traced = [step for step, classes in self.step_classes.items() if num_classes(classes) > 1]
        found = [*traced, self.metrics.first()[0]]
        return min((step for step in found if step is not None), default=None)

    @cached_property
    def complete(self) -> bool:
        """Whether every run has a class at every step and metric, and nothing is missing or damaged."""
        traced = all(None not in classes for classes in self.step_classes.values())
        return traced and not self.problems and bool((self.metrics.numbers > 0).all())

    @property
    def verdict(self) -> str:
        """``match``, ``diverged``, or ``incomplete``: nothing differs, but not all could be compared."""
        if self.first_step is not None:
            return "diverged"
        return "match" if self.complete else "incomplete"

    @property
    def exit_code(self) -> int:
        """0 match, 1 diverged, 2 incomplete."""
        return EXIT_CODES[self.verdict]

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
        not have the metric, or printed it with so few digits that it fits two classes), ``num_classes``,
        ``resolution`` (the coarsest that any run printed the number with; null: exact). Rounded numbers
        that are equal hide a difference.
        """
        return self.metrics.frame(self.labels)

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
        """What is stated of the runs differently, what goes best with the classes first."""
        return tuple(facts_that_differ(list(map(str, self.numbers)), self.stated))

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
        return all(any(_HOST.search(path) for path in stated) for stated in self.stated)

    def _is_run_to_run(self) -> bool:
        """Say whether two runs of different classes state the same in everything."""
        stated = [tuple(fact.values[at] for fact in self.found_facts) for at in range(len(self.runs))]
        pairs = set(zip(stated, self.numbers, strict=True))
        return len(set(stated)) < len(pairs)

    def pair_verdict(self, a: str, b: str) -> tuple[str, int | None]:
        """Compare two of the runs by their classes.

        Returns
        -------
        ``match``, ``diverged``, ``incomplete`` or ``invalid`` (they share nothing that could be compared),
        and the first step at which they differ.
        """
        pair = self.labels.index(a), self.labels.index(b)
        traced = [(step, classes[pair[0]], classes[pair[1]]) for step, classes in self.step_classes.items()]
        shared = [(step, mine, theirs) for step, mine, theirs in traced if None not in (mine, theirs)]
        differing = [step for step, mine, theirs in shared if mine != theirs]
        first = self.metrics.first(pair)[0]
        if differing or first is not None:
            return "diverged", min(step for step in (*differing, first) if step is not None)
        has_class = self.metrics.numbers[:, list(pair)] > 0
        if not shared and not has_class.all(axis=1).any():
            return "invalid", None
        one_sided = any((mine is None) != (theirs is None) for _, mine, theirs in traced)
        one_sided |= bool((has_class[:, 0] != has_class[:, 1]).any())
        return ("incomplete" if one_sided else "match"), None

    def to_json(self) -> dict[str, Any]:
        """Give the classes of the step metrics in their JSON form, see ``detlab/schemas/metrics.json``."""
        from detlab.comparison.many.document import metrics_json

        return metrics_json(self)

    def __repr__(self) -> str:
        from detlab.comparison.many.text import summary

        return summary(self)


def num_classes(classes: Classes) -> int:
    """Count the different classes of a step or metric."""
    return len(set(classes) - {None})


def compare_many(
    runs: Sequence[Run | str | PathLike[str]],
    *,
    hosts: Hosts | str | PathLike[str] | None = None,
    facts: Facts | str | PathLike[str] | None = None,
    executor: Executor | None = None,
) -> ManyComparison:
    """Partition runs into classes of equal bits, and join the classes with what the runs state.

    Runs may be traces or mere logs of step metrics. Of a log only the printed digits are known: then the
    evidence of the classes is ``printed``, and never that they are bitwise the same.

    Parameters
    ----------
    runs
        Two runs or more, or paths that `detlab.load_run` can read.
    hosts
        The hosts of each run by its label, for logs that do not state them: ``{"A1": ["n1", "n2"]}``, or
        the path of a TOML, JSON or CSV file of them. Each host becomes a fact of the runs that it is in.
    facts
        What else is known of each run, by its label: ``{"A1": {"racks": 1}}``; or a TOML or JSON file.
    executor
        Where ranks are compared: any `concurrent.futures.Executor`. By default a thread per core.

    Raises
    ------
    NotComparable
        There are fewer than two runs; or they have different layouts or digests, or no rank, step or
        metric that all of them have; or a log has no metrics, or two values of one number.
    InputError
        A list of hosts or facts is malformed, or names a run that is not there.
    TraceError
        A run cannot be read.
    """
    loaded = [as_run(run) for run in runs]
    labels = unlike_labels([run.label for run in loaded])
    if len(loaded) < 2:
        raise NotComparable(f"{len(loaded)} run is nothing to compare.", "give two runs or more")
    refuse_unlike(loaded, labels)
    for run in loaded:
        if not run.ranks:
            refuse_unusable(run)
    stated = _stated(loaded, labels, as_hosts(hosts), as_facts(facts))
    kept, problems = common_ranks(loaded, labels)
    partition = Partition(kept, labels, executor)
    alike, averages = without_other_means(loaded, labels)
    steps, metrics = partition.steps(), partition_metrics(alike)
    _refuse_unrelated(labels, list(steps.values()), metrics)
    findings = partition.findings()
    problems += [
        (label, what) for run, label in zip(loaded, labels, strict=True) for what in run.problems
    ] + partition.problems
    problems += [*gaps_of(metrics, labels), *averages]
    return ManyComparison(
        tuple(loaded), tuple(labels), steps, metrics, least_evidence(kept), stated,
        tuple(dict.fromkeys(problems)), findings,
    )  # fmt: skip


def _stated(
    runs: Sequence[Run], labels: Sequence[str], hosts: Mapping[str, Sequence[str]], facts: Facts
) -> tuple[Stated, ...]:
    refuse_strangers([*hosts, *facts], labels, "The hosts and facts")
    return tuple(
        stated_of(run, hosts.get(label, recorded_hosts(run) if hosts else ()), facts.get(label))
        for run, label in zip(runs, labels, strict=True)
    )


def _refuse_unrelated(labels: Sequence[str], steps: Sequence[Classes], metrics: MetricClasses) -> None:
    """Refuse runs of which not all have a class at one step or metric: they have no classes together."""
    has_class = metrics.numbers > 0
    if any(None not in classes for classes in steps) or has_class.all(axis=1).any():
        return
    alone = [
        label
        for at, label in enumerate(labels)
        if not has_class[:, at].any() and all(classes[at] is None for classes in steps)
    ]
    found = f"; nothing of {', '.join(alone)} can be compared" if alone else ""
    raise NotComparable(
        f"The runs have no step and no metric that all of them have with the same evidence{found}.",
        "leave out the runs that lack them, or record the same steps of every run",
    )

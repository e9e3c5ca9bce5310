"""Partition runs into classes of equal bits, step by step: by their traces, and by each metric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import Final

import numpy as np

from detlab.comparison.findings import Finding
from detlab.comparison.pairwise import compare
from detlab.comparison.result import Comparison
from detlab.comparison.strength import Pair
from detlab.errors import NotComparable, TraceError
from detlab.run import Run
from detlab.schema import Coordinate, Evidence

Classes = tuple[int | None, ...]
"""For each run the number of its class, from 1 in the order of the runs; None where it cannot be said."""

Problems = list[tuple[str, str]]

_SIGNED: Final = ("microbatch", "phase", "num_rows", "identity", "values")
"""What is equal in the index of two traces just when all their events of a step are."""


def unlike_labels(labels: Sequence[str]) -> list[str]:
    """Give the labels that several runs have a number each."""
    counts, seen = Counter(labels), Counter[str]()
    unlike = []
    for label in labels:
        seen[label] += 1
        unlike.append(f"{label} #{seen[label]}" if counts[label] > 1 else label)
    return unlike


def refuse_unlike(runs: Sequence[Run], labels: Sequence[str]) -> None:
    """Refuse runs of which not all have one parallel layout and one digest.

    Raises
    ------
    NotComparable
        Bits of another layout are other shards, and digests of another algorithm other numbers.
    """
    laid_out = [(label, _layout(run)) for run, label in zip(runs, labels, strict=True) if _states_layout(run)]
    _refuse("parallel layouts", [layout for _, layout in laid_out], [label for label, _ in laid_out])
    traced = [(label, _algorithm(run)) for run, label in zip(runs, labels, strict=True) if run.ranks]
    _refuse("digests", [algorithm for _, algorithm in traced], [label for label, _ in traced])


def _refuse(what: str, facts: Sequence[str], labels: Sequence[str]) -> None:
    by_fact = _members(facts)
    if len(by_fact) > 1:
        found = "; ".join(
            f"{fact or 'unknown'}: {', '.join(labels[at] for at in members[:4])}"
            for fact, members in by_fact.items()
        )
        raise NotComparable(
            f"The runs have different {what} ({found}).", "compare the runs of each kind by themselves"
        )


def _states_layout(run: Run) -> bool:
    """Say whether the layout is known: a log of step metrics does not tell on how many ranks it trained."""
    return bool(run.manifest.world_size or run.manifest.layout)


def _layout(run: Run) -> str:
    sizes = {"world size": run.manifest.world_size, **run.manifest.layout}
    return ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items()) if size > 1) or "one rank"


def _algorithm(run: Run) -> str:
    return " and ".join(sorted({rank.header.algorithm for rank in run.ranks}))


def _members(keys: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    members: dict[Hashable, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        members[key].append(at)
    return dict(members)


def common_ranks(runs: Sequence[Run], labels: Sequence[str]) -> tuple[list[Run], Problems]:
    """Keep the ranks that every run has a trace of, so that equality means one thing for all of them."""
    traced = [run for run in runs if run.ranks]
    if not traced:
        return list(runs), []
    common = reduce(set.intersection, (set(run.by_coordinate) for run in traced))
    if not common:
        raise NotComparable("No rank is recorded in all of the runs.", "record the same ranks in each run")
    problems = []
    for run, label in zip(runs, labels, strict=True):
        extra = len(run.by_coordinate.keys() - common)
        if extra:
            problems.append((label, f"{extra} of its ranks are not in every run, and were left out"))
    return [_only(run, common) for run in runs], problems


def _only(run: Run, places: set[Coordinate]) -> Run:
    return replace(run, ranks=tuple(rank for rank in run.ranks if rank.header.coordinate in places))


class Partition:
    """Partitions runs by their traces, step by step.

    Segment digests come first; where they differ the runs are compared in full, because a view more or
    less, a stride or a reorder changes the digest of a segment and no number.

    Parameters
    ----------
    runs, labels
        Runs of one layout, digest and set of ranks, and their names.
    executor
        Where ranks are compared.
    """

    def __init__(self, runs: Sequence[Run], labels: Sequence[str], executor: Executor | None) -> None:
        self._runs, self._labels, self._executor = runs, labels, executor
        self._compared: dict[Pair, tuple[frozenset[int], tuple[Finding, ...]]] = {}
        self.problems: Problems = []

    def steps(self) -> dict[int, Classes]:
        """Give the classes at every step that any run has."""
        ends = [_cut_at(run) for run in self._runs]
        for label, end in zip(self._labels, ends, strict=True):
            if end is not None:
                self.problems.append((label, f"its files are cut; step {end} and later were left out"))
        steps = sorted({step for run in self._runs for step in run.steps})
        return {step: self._partition(step, ends) for step in steps}

    def _partition(self, step: int, ends: Sequence[int | None]) -> Classes:
        usable = [
            at
            for at, (run, end) in enumerate(zip(self._runs, ends, strict=True))
            if step in run.steps and (end is None or step < end)
        ]
        usable = self._alike(usable, step)
        buckets = _members([_signature(self._runs[at], step) for at in usable])
        merged: list[list[int]] = []
        for members in ([usable[at] for at in bucket] for bucket in buckets.values()):
            home = next((each for each in merged if step not in self._differ(each[0], members[0])), None)
            if home is None:
                merged.append(members)
            else:
                home += members
        return _numbered(merged, len(self._runs))

    def _alike(self, usable: list[int], step: int) -> list[int]:
        """Keep the runs with the evidence that most have: equality by less would not be transitive."""
        levels = [_evidence(self._runs[at], step) for at in usable]
        counts = Counter(level for level in levels if level[1])
        usual = max(counts, key=lambda level: (counts[level], level), default=None)
        kept = [at for at, level in zip(usable, levels, strict=True) if level == usual]
        for at in sorted(set(usable) - set(kept)):
            self.problems.append((self._labels[at], f"step {step} has other evidence, or none"))
        return kept

    def _differ(self, a: int, b: int) -> frozenset[int]:
        """Give the steps at which two runs differ when every call of theirs is judged."""
        return self._compare((min(a, b), max(a, b)))[0]

    def _compare(self, pair: Pair) -> tuple[frozenset[int], tuple[Finding, ...]]:
        """Compare two runs in full, once; keep the steps at which they differ, and the findings."""
        if pair not in self._compared:
            cmp = compare(self._runs[pair[0]], self._runs[pair[1]], executor=self._executor)
            self._compared[pair] = _divergent_steps(cmp), cmp.roots
            damaged = [(where, what) for where, what in cmp.problems if where.startswith("rank ")]
            self.problems += damaged
        return self._compared[pair]

    def findings(self) -> dict[Pair, tuple[Finding, ...]]:
        """Give the findings of every pair of runs whose traces can be compared.

        Runs of which all segment digests are equal have none, and are not compared again.
        """
        digests = [tuple(_signature(run, step) for step in run.steps) for run in self._runs]
        proven = [any(_evidence(run, step)[1] for step in run.steps) for run in self._runs]
        found = {}
        for a, b in combinations(range(len(self._runs)), 2):
            if not (proven[a] and proven[b]):
                continue
            try:
                found[a, b] = () if digests[a] == digests[b] else self._compare((a, b))[1]
            except NotComparable:  # such as two runs without a common step: the others may have one
                continue
            except TraceError as error:
                self.problems.append((f"{self._labels[a]} and {self._labels[b]}", error.finding))
        return found


def _cut_at(run: Run) -> int | None:
    """Give the step in which the first of the run's cut files ends; None when all are whole."""
    return min((max(rank.steps, default=-1) for rank in run.ranks if not rank.complete), default=None)


def _signature(run: Run, step: int) -> Hashable:
    """Give the digests of all segments of one step: equal just when everything in them is."""
    found = []
    for place, trace in sorted(run.by_coordinate.items()):
        records = trace.index[trace.index["step"] == step]
        found.append((place, tuple(records[name].tobytes() for name in _SIGNED)))
    return tuple(found)


def _evidence(run: Run, step: int) -> tuple[int, int]:
    """Give the least evidence of inputs and outputs at one step; 0 where there is none."""
    levels = np.concatenate([trace.index["evidence"][trace.index["step"] == step] for trace in run.ranks])
    least = [int(side[side > 0].min(initial=99)) % 99 for side in (levels >> 4, levels & 15)]
    return least[0], least[1]


def least_evidence(runs: Sequence[Run]) -> Evidence:
    """Give the least evidence of any output at any step."""
    levels = [_evidence(run, step)[1] for run in runs for step in run.steps]
    return Evidence(min(filter(None, levels), default=0))


def _divergent_steps(cmp: Comparison) -> frozenset[int]:
    steps: set[int] = set()
    for rank in cmp.ranks:
        steps.update(rank.events(rank.divergent(), ("step",))["step"].tolist())
    return frozenset(steps)


def _numbered(groups: Sequence[Sequence[int]], num_runs: int) -> Classes:
    """Give groups of runs numbers from 1 in the order of their first runs."""
    found: list[int | None] = [None] * num_runs
    for number, members in enumerate(sorted(groups, key=min), 1):
        for at in members:
            found[at] = number
    return tuple(found)


def by_key(keys: Sequence[Hashable | None]) -> Classes:
    """Give the classes of runs with equal keys; a run whose key is None has no class."""
    groups = [members for key, members in _members(keys).items() if key is not None]
    return _numbered(groups, len(keys))

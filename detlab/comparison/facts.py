"""What differs between groups of runs beside their bits: hosts, environment, versions, arguments."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import polars as pl

from detlab.comparison.exact import CHANCE, LIKELY_BY_CHANCE, exact_test
from detlab.run import Run

ABSENT: Final = "absent"
"""Value of a fact that a run does not state; values themselves are JSON texts, so none reads like this."""

ASSOCIATION: Final = "association, not proof"

ENVIRONMENT_KINDS: Final = ("environment", "version")
"""Kinds of facts that say where and with what a run ran, not what it was asked for."""

_ENVIRONMENT: Final = ("env", "state")

FACT_COLUMNS: Final[dict[str, Any]] = {
    "fact": pl.String,
    "kind": pl.String,
    "num_values": pl.Int64,
    "separates": pl.Boolean,
    "p": pl.Float64,
    "chance": pl.Float64,
    "note": pl.String,
}
"""Columns of a frame of facts."""

COUNT_COLUMNS: Final[dict[str, Any]] = {
    "fact": pl.String,
    "class": pl.String,
    "value": pl.String,
    "num_runs": pl.Int64,
}
"""Columns of the tables of counts behind the facts."""


@dataclass(frozen=True)
class Fact:
    """One thing that the runs state and that is not the same in all of them.

    Attributes
    ----------
    name
        Its path in the recipe, such as ``env.NCCL_ALGO``; ``… on some rank`` for one value of a fact
        that differs between the ranks of a run.
    kind
        ``environment``, ``version``, ``argument`` or ``recorder``.
    values
        What each run states, as JSON text.
    classes
        The class of each run.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    classes: tuple[str, ...]

    @cached_property
    def counts(self) -> Counter[tuple[str, str]]:
        """Number of runs by class and value."""
        return Counter(zip(self.classes, self.values, strict=True))

    @property
    def separates(self) -> bool:
        """Whether no value occurs in two classes, while some value occurs in two runs."""
        values = set(self.values)
        return len({value for _, value in self.counts}) == len(self.counts) and len(values) < len(self.values)

    @cached_property
    def p(self) -> float | None:
        """How often a shuffle of the runs over the classes gives a table that stands out as much."""
        classes, values = sorted(set(self.classes)), sorted(set(self.values))
        return exact_test([[self.counts[name, value] for value in values] for name in classes])

    @property
    def pattern(self) -> tuple[int, ...]:
        """Which runs state the same; facts of one pattern are one test, not several."""
        seen: dict[str, int] = {}
        return tuple(seen.setdefault(value, len(seen)) for value in self.values)


def associate(groups: Mapping[str, Sequence[Run]]) -> list[Fact]:
    """List what the runs state differently, what goes best with the groups first.

    Parameters
    ----------
    groups
        The runs of each class, such as ``{"bad": […], "good": […]}``.

    Returns
    -------
    Facts by ascending probability. An association is no proof: replay the suspect step on the suspect
    host and on another one.
    """
    classes = tuple(name for name, runs in groups.items() for _ in runs)
    stated = [run_facts(run) for runs in groups.values() for run in runs]
    names = sorted({name for facts in stated for name in facts})
    facts = [
        Fact(name, _kind(path), values, classes)
        for path in names
        for name, values in _tables(path, [facts.get(path, ()) for facts in stated])
        if len(set(values)) > 1
    ]
    return sorted(facts, key=lambda fact: (1.0 if fact.p is None else fact.p, fact.name))


def run_facts(run: Run) -> dict[str, tuple[str, ...]]:
    """Give what a run states: for each path in its recipe the different values on its ranks, sorted."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, value in _flatten(run.manifest.recorder, "recorder"):
        found[path].add(value)
    for rank in run.ranks:
        for path, value in _flatten(rank.header.recipe):
            found[path].add(value)
    return {path: tuple(sorted(values)) for path, values in found.items()}


def environment_of(run: Run) -> dict[str, tuple[str, ...]]:
    """Give what a run states of where and with which versions it ran."""
    return {path: values for path, values in run_facts(run).items() if _kind(path) in ENVIRONMENT_KINDS}


def _flatten(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        path = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            yield from _flatten(value, path)
        else:
            yield path, json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _kind(path: str) -> str:
    head, _, rest = path.partition(".")
    if head == "state" and rest.startswith("versions."):
        return "version"
    if head == "recorder":
        return "recorder"
    return "environment" if head in _ENVIRONMENT or not rest else "argument"


def _tables(path: str, stated: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give a fact with its value in each run, and each value of it that only some ranks of a run have."""
    yield path, tuple(" + ".join(values) or ABSENT for values in stated)
    if any(len(values) > 1 for values in stated):
        for value in sorted({value for values in stated for value in values}):
            yield f"{path} = {value} on some rank", tuple(json.dumps(value in values) for values in stated)


def chance_of(fact: Fact, facts: Sequence[Fact]) -> float | None:
    """Give the probability that any of the facts tested goes with the classes as well as this one."""
    num_tests = len({each.pattern for each in facts})
    return None if fact.p is None else min(1.0, fact.p * num_tests)


def facts_frame(facts: Sequence[Fact]) -> pl.DataFrame:
    """Put facts into a frame of the `FACT_COLUMNS`, in their order."""
    rows = [
        {
            "fact": fact.name,
            "kind": fact.kind,
            "num_values": len(set(fact.values)),
            "separates": fact.separates,
            "p": fact.p,
            "chance": chance_of(fact, facts),
            "note": note_of(fact, facts),
        }
        for fact in facts
    ]
    return pl.DataFrame(rows, FACT_COLUMNS)


def note_of(fact: Fact, facts: Sequence[Fact]) -> str:
    """Say what an association is worth."""
    chance = chance_of(fact, facts)
    if chance is None:
        return f"{ASSOCIATION}; too many tables for an exact test"
    return f"{ASSOCIATION}; {CHANCE}" if chance > LIKELY_BY_CHANCE else ASSOCIATION


def counts_frame(facts: Sequence[Fact]) -> pl.DataFrame:
    """Put the tables of counts behind some facts into one frame of the `COUNT_COLUMNS`."""
    rows = [
        {"fact": fact.name, "class": name, "value": value, "num_runs": num}
        for fact in facts
        for (name, value), num in sorted(fact.counts.items())
    ]
    return pl.DataFrame(rows, COUNT_COLUMNS)

"""What differs between groups of runs beside their bits: hosts, environment, versions, arguments."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import polars as pl

from detlab.comparison.exact import CHANCE, LIKELY_BY_CHANCE, exact_test
from detlab.run import Run

ABSENT: Final = "absent"
"""Value of a fact that a run does not state; values themselves are JSON texts, so none reads like this."""

ASSOCIATION: Final = "association, not proof"

HOSTS: Final = "hosts"
"""Path of the hosts that somebody stated for a run; each host is a fact of its own."""

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


Stated = Mapping[str, tuple[str, ...]]
"""What is stated of a run: for each path the different values, as JSON texts."""


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

    @property
    def p(self) -> float | None:
        """How often a shuffle of the runs over the classes gives a table that stands out as much."""
        return None if self.exact is None else float(self.exact)

    @cached_property
    def exact(self) -> Fraction | None:
        """The same as a fraction."""
        classes, values = sorted(set(self.classes)), sorted(set(self.values))
        return exact_test([[self.counts[name, value] for value in values] for name in classes])

    @property
    def pattern(self) -> tuple[int, ...]:
        """Which runs state the same; facts of one pattern are one test, not several."""
        seen: dict[str, int] = {}
        return tuple(seen.setdefault(value, len(seen)) for value in self.values)


def facts_that_differ(classes: Sequence[str], stated: Sequence[Stated]) -> list[Fact]:
    """List what the runs state differently, what goes best with their classes first.

    Parameters
    ----------
    classes, stated
        For each run the name of its class, such as ``"bad"`` or ``"good"``, and what is stated of it.

    Returns
    -------
    Facts by ascending probability. An association is no proof: replay the suspect step on the suspect
    host and on another one.
    """
    names = sorted({name for facts in stated for name in facts})
    facts = [
        Fact(name, _kind(path), values, tuple(classes))
        for path in names
        for name, values in _tables(path, [facts.get(path, ()) for facts in stated])
        if len(set(values)) > 1
    ]
    return sorted(facts, key=lambda fact: (1.0 if fact.p is None else fact.p, fact.name))


def stated_of(run: Run, hosts: Collection[str] = (), facts: Mapping[str, object] | None = None) -> Stated:
    """Give what a run states and what else is known of it.

    Parameters
    ----------
    run
        The run.
    hosts
        The hosts that it ran on, if somebody says so; then they stand for those that it recorded itself.
    facts
        Other facts of it.
    """
    known = run_facts(run) | {path: (value,) for path, value in _flatten(facts or {})}
    if hosts:
        known.pop("host", None)
        known[HOSTS] = tuple(sorted(map(_as_text, hosts)))
    return known


def recorded_hosts(run: Run) -> tuple[str, ...]:
    """Give the hosts on which the ranks of a trace say that they ran."""
    stated = {rank.header.recipe.get("host") for rank in run.ranks}
    return tuple(sorted(host for host in stated if isinstance(host, str)))


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
            yield path, _as_text(value)


def _as_text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _kind(path: str) -> str:
    head, _, rest = path.partition(".")
    if head == "state" and rest.startswith("versions."):
        return "version"
    if head == "recorder":
        return "recorder"
    return "environment" if head in _ENVIRONMENT or not rest else "argument"


def _host_fact(host: str) -> str:
    """Name the fact that a run had a host among its own."""
    return f"host {host} is in the run"


def host_of(fact: Fact) -> str:
    """Give the host whose presence in the runs a fact tells; "" for any other fact."""
    head, tail = _host_fact("\0").split("\0")
    is_host = fact.name.startswith(head) and fact.name.endswith(tail)
    return fact.name[len(head) : -len(tail)] if is_host else ""


def _tables(path: str, stated: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give a fact with its value in each run, and each value of it that only some ranks of a run have."""
    if path == HOSTS:
        for host in sorted({host for hosts in stated for host in hosts}):
            values = tuple(json.dumps(host in hosts) if hosts else ABSENT for hosts in stated)
            yield _host_fact(json.loads(host)), values
        return
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

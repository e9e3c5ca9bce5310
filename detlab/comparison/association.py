"""What the bad runs have in common and the good ones lack: hosts and other facts, with an exact test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import comb
from os import PathLike
from pathlib import Path
from typing import Any, Final

import polars as pl

from detlab.comparison.exact import CHANCE, LIKELY_BY_CHANCE
from detlab.comparison.facts import (
    ABSENT,
    ASSOCIATION,
    Fact,
    Stated,
    chance_of,
    facts_that_differ,
    host_of,
    note_of,
    recorded_hosts,
    stated_of,
)
from detlab.comparison.stated import Facts, Hosts, as_facts, as_hosts, refuse_strangers
from detlab.comparison.text import as_html, wrapped
from detlab.errors import InputError, NotComparable
from detlab.readers import as_run
from detlab.run import Run
from detlab.store import Manifest

ASSOCIATION_COLUMNS: Final[dict[str, Any]] = {
    "fact": pl.String,
    "value": pl.String,
    "kind": pl.String,
    "num_bad": pl.Int64,
    "of_bad": pl.Int64,
    "num_good": pl.Int64,
    "of_good": pl.Int64,
    "p": pl.Float64,
    "chance": pl.Float64,
    "note": pl.String,
}
"""Columns of `Association.facts`."""

_BAD, _GOOD = "bad", "good"
_SHOWN: Final = 5
_LARGEST_SHOWN: Final = 10_000
"""Denominators of probabilities up to this are shown as a fraction."""

Entry = Run | str | PathLike[str]


@dataclass(frozen=True, eq=False, repr=False)
class Association:
    """What goes with runs being bad.

    Attributes
    ----------
    bad, good
        Labels of the runs.
    found_facts
        What is stated of them differently, what goes best with being bad first.
    """

    bad: tuple[str, ...]
    good: tuple[str, ...]
    found_facts: tuple[Fact, ...]

    @property
    def least_p(self) -> Fraction:
        """The least probability that so many runs can show: one of all ways to choose the bad ones."""
        return Fraction(1, comb(len(self.bad) + len(self.good), len(self.bad)))

    @cached_property
    def facts(self) -> pl.DataFrame:
        """What the runs state differently, what goes best with being bad first.

        Returns
        -------
        One row per fact and value, and one for each host: ``fact``, ``value`` (as JSON text; ``true`` for
        a host), ``kind`` (environment, version, argument or recorder), ``num_bad`` of ``of_bad`` runs and
        ``num_good`` of ``of_good`` runs that have it, ``p`` (how often a shuffle of bad and good over the
        runs stands out as much: an exact test of the whole fact; null when there are too many tables),
        ``chance`` (that any of the facts tested does), ``note`` (what the association is worth).
        """
        rows = [
            row | {"p": fact.p, "chance": chance_of(fact, self.found_facts), "note": self._note(fact)}
            for fact in self.found_facts
            for row in self._rows(fact)
        ]
        return pl.DataFrame(rows, ASSOCIATION_COLUMNS)

    def _note(self, fact: Fact) -> str:
        return note_of(fact, self.found_facts)

    def _rows(self, fact: Fact) -> list[dict[str, Any]]:
        values = sorted(set(fact.values) - {ABSENT})
        chosen = ["true"] if set(values) <= {"true", "false"} and "true" in values else values
        return [
            {
                "fact": fact.name, "value": value, "kind": fact.kind,
                "num_bad": fact.counts[_BAD, value], "of_bad": len(self.bad),
                "num_good": fact.counts[_GOOD, value], "of_good": len(self.good),
            }
            for value in chosen
        ]  # fmt: skip

    @property
    def suspects(self) -> tuple[str, ...]:
        """The hosts that go best with being bad: several where they are in the same runs."""
        first = next(iter(self.found_facts), None)
        if first is None or _excess(first) <= 0:
            return ()
        alike = [fact for fact in self.found_facts if fact.values == first.values]
        return tuple(name for fact in alike if (name := host_of(fact)))

    @property
    def next(self) -> str:
        """What to do next."""
        if not self.suspects:
            return "nothing that is stated of the runs is more frequent in the bad ones; state more of them"
        return f"replay the suspect step on {self.suspects[0]} and on another host"

    def __repr__(self) -> str:
        lines = [f"{len(self.bad)} bad and {len(self.good)} good runs: {ASSOCIATION}."]
        lines += [self._line(fact) for fact in self.found_facts[:_SHOWN]]
        if len(self.found_facts) > _SHOWN:
            lines.append(f"… and {len(self.found_facts) - _SHOWN} more facts: see .facts")
        if len(self.suspects) > 1:
            lines.append(
                f"{' and '.join(self.suspects)} are in the same runs: nothing here tells them apart."
            )
        lines += [f"{self._bound()}", f"next: {self.next}"]
        return "\n".join(map(wrapped, lines))

    def _line(self, fact: Fact) -> str:
        told = [
            f"{row['value'].replace('true', '')} in {row['num_bad']} of {row['of_bad']} bad runs and in "
            f"{row['num_good']} of {row['of_good']} good ones"
            for row in self._rows(fact)
        ]
        host = host_of(fact)
        name = f"host {host}" if host else f"{fact.name} ({fact.kind})"
        return f"{name}{','.join(told)}: p = {_p_text(fact.exact)}"

    def _bound(self) -> str:
        """Say how little so few runs can show, and how often chance does as well over all that was tested."""
        total = len(self.bad) + len(self.good)
        least = f"{len(self.bad)} bad of {total} runs can show no p below {_p_text(self.least_p)}"
        chance = chance_of(self.found_facts[0], self.found_facts) if self.found_facts else None
        if chance is None:
            return f"{least}."
        num_tests = len({fact.pattern for fact in self.found_facts})
        as_well = f": {CHANCE}" if chance > LIKELY_BY_CHANCE else ""
        return (
            f"{least}. {num_tests} patterns were tested: one as striking has p up to {chance:.2g}{as_well}."
        )

    def _repr_html_(self) -> str:
        return as_html(self)


def _rank(fact: Fact) -> tuple[bool, float, float, str]:
    """Order facts by what goes best with being bad; hosts that are more frequent in good runs come last."""
    return _excess(fact) < 0, 1.0 if fact.p is None else fact.p, -_excess(fact), fact.name


def _excess(fact: Fact) -> float:
    """Give how much larger the share of bad runs with a host is than that of good ones."""
    bad, good = (
        fact.counts[name, "true"] / max(1, fact.classes.count(name)) for name in (_BAD, _GOOD)
    )  # fmt: skip
    return bad - good


def _p_text(p: Fraction | None) -> str:
    if p is None:
        return "not computed (too many tables)"
    fraction = f"{p} = " if 1 < p.denominator <= _LARGEST_SHOWN else ""
    return f"{fraction}{float(p):.2g}"


def associate(
    bad: Sequence[Entry],
    good: Sequence[Entry],
    *,
    hosts: Hosts | str | PathLike[str] | None = None,
    facts: Facts | str | PathLike[str] | None = None,
) -> Association:
    """Ask which host, or other fact, the bad runs have in common and the good ones lack.

    It is an association, not proof: with few runs and many hosts chance finds a common host as well, and the
    answer says how often.

    Parameters
    ----------
    bad, good
        Runs, paths that `detlab.load_run` can read, or mere labels that ``hosts`` or ``facts`` know.
    hosts
        The hosts of each run by its label, or a TOML, JSON or CSV file of them. A trace whose label is not
        among them has the hosts that it recorded.
    facts
        What else is known of each run, by its label: ``{"monday": {"racks": 1}}``; or a TOML or JSON file.

    Raises
    ------
    NotComparable
        One of the two sets is empty, or nothing is stated of any run.
    InputError
        A list is malformed or names a run that is not there, or a run is both bad and good.
    """
    listed, known = as_hosts(hosts), as_facts(facts)
    names = {*listed, *known}
    sets = [[_named(entry, names) for entry in entries] for entries in (bad, good)]
    labels = [[run.label for run in runs] for runs in sets]
    _refuse(labels)
    refuse_strangers(sorted(names), [*labels[0], *labels[1]], "The hosts and facts")
    stated = [_stated(run, listed, known) for runs in sets for run in runs]
    if not any(stated):
        raise NotComparable("Nothing is stated of any of the runs.", 'give hosts={"label": ["n1", …]}')
    found = facts_that_differ([_BAD] * len(bad) + [_GOOD] * len(good), stated)
    found.sort(key=_rank)
    return Association(tuple(labels[0]), tuple(labels[1]), tuple(found))


def _named(entry: Entry, names: set[str]) -> Run:
    """Load a run; a label that stands for no file is a run of which nothing but facts is known."""
    if isinstance(entry, str) and entry in names and not Path(entry).exists():
        return Run(entry, "", Manifest(entry, 0), (), pl.DataFrame())
    return as_run(entry)


def _stated(run: Run, hosts: Mapping[str, Sequence[str]], facts: Facts) -> Stated:
    return stated_of(run, hosts.get(run.label, recorded_hosts(run)), facts.get(run.label))


def _refuse(labels: Sequence[Sequence[str]]) -> None:
    for what, each in zip((_BAD, _GOOD), labels, strict=True):
        if not each:
            raise NotComparable(f"There is no {what} run.", "give bad runs and good ones")
    several = sorted({each for each in [*labels[0], *labels[1]] if [*labels[0], *labels[1]].count(each) > 1})
    if several:
        raise InputError(f"{several[0]} stands for more than one run.", "give each run a label of its own")

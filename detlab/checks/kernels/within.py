"""Ranks of one run that chose differently for one kernel and problem."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import polars as pl

from detlab.checks.kernels.pairing import Entry


class Disagreement(NamedTuple):
    """One kernel and problem for which ranks, or processes, of one run chose differently.

    Attributes
    ----------
    entry
        What it is.
    choices
        For each choice who made it: ranks, or processes where their ranks are not known.
    """

    entry: Entry
    choices: dict[str, tuple[str, ...]]


class Agreement(NamedTuple):
    """What the ranks of one run say together, by source.

    Attributes
    ----------
    num_entries
        Kernels with a problem that several ranks, or processes, tell of.
    disagreeing
        Those of them for which they chose differently.
    """

    num_entries: int
    disagreeing: list[Disagreement]


def agreement(frame: pl.DataFrame) -> dict[str, Agreement]:
    """Ask whether the ranks of one run agree in their choices.

    Only what several of them tell of is asked: shards of one tensor have problems of their own. Two choices
    of one process whose rank is not known count too where an autotuner told them: it tells of each kernel
    and problem once, so that several processes wrote there.
    """
    choices: dict[Entry, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in frame.sort("source", "rank", "process", "kernel", "problem", "order").iter_rows(named=True):
        entry = Entry(row["source"], row["kernel"], row["problem"])
        who = row["process"] if row["rank"] is None else f"rank {row['rank']}"
        choices[entry][who].append(row["choice"])
    found: dict[str, list[Disagreement | None]] = defaultdict(list)
    for entry, told in sorted(choices.items()):
        if len(told) > 1 or _is_mixed(entry, told):
            found[entry.source].append(_disagreement(entry, told))
    return {
        source: Agreement(len(asked), [each for each in asked if each]) for source, asked in found.items()
    }


def _is_mixed(entry: Entry, told: dict[str, list[str]]) -> bool:
    """Say whether one log without ranks holds several choices that an autotuner makes once a process."""
    (who, chosen), *_ = told.items()
    return (
        not who.startswith("rank ")
        and entry.source.endswith("print")
        and bool(entry.problem)
        and len(chosen) > 1
    )


def _disagreement(entry: Entry, told: dict[str, list[str]]) -> Disagreement | None:
    if len({tuple(sorted(set(each))) for each in told.values()}) < 2 and len(told) > 1:
        return None
    by_choice: dict[str, list[str]] = defaultdict(list)
    for who, chosen in told.items():
        for choice in dict.fromkeys(chosen):
            by_choice[choice].append(who)
    if len(by_choice) < 2:
        return None
    return Disagreement(entry, {choice: tuple(who) for choice, who in sorted(by_choice.items())})

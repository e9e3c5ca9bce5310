"""Of several runs: which host or device is an outlier in how many, and does it go with drifting at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.checks.replicas.places import device_name, host_name
from detlab.comparison.association import Association, associate
from detlab.comparison.facts import ASSOCIATION, chance_of, host_of, note_of
from detlab.run import Run
from detlab.store import RankHeader
from detlab.text import plural

FACTOR_COLUMNS: Final[dict[str, Any]] = {
    "place": pl.String,
    "kind": pl.String,
    "num_outlier": pl.Int64,
    "num_drifting": pl.Int64,
    "of_drifting": pl.Int64,
    "num_agreeing": pl.Int64,
    "of_agreeing": pl.Int64,
    "p": pl.Float64,
    "chance": pl.Float64,
    "note": pl.String,
}
"""Columns of the table of places: in how many runs each is an outlier, and takes part in."""


class CommonFactor(NamedTuple):
    """What the runs that drift have in common.

    Attributes
    ----------
    findings
        One finding for the places that are an outlier in the most runs, if in two or more.
    table
        The `FACTOR_COLUMNS`, the suspect first.
    notes
        What a reader must know beside it.
    """

    findings: list[dict[str, Any]]
    table: pl.DataFrame
    notes: tuple[str, ...]


Drifts = Sequence[tuple[Run, pl.DataFrame]]


def common_factor(runs: Drifts) -> CommonFactor:
    """Ask which host or device the runs that drift have in common.

    Parameters
    ----------
    runs
        Runs and the frames of `detlab.comparison.replicas.find_drift`.
    """
    if not any(len(drift) for _, drift in runs):
        return CommonFactor([], pl.DataFrame(schema=FACTOR_COLUMNS), ())
    unknown = [run.label for run, _ in runs if not all(host_name(each.header) for each in run.ranks)]
    rows = [row for kind, name_of in _KINDS.items() for row in _rows(kind, name_of, runs)]
    rows.sort(key=_order)
    notes = (f"not every rank of {', '.join(unknown)} names its host",) if unknown else ()
    return CommonFactor(_findings(rows), pl.DataFrame(rows, FACTOR_COLUMNS), notes)


_KINDS: Final[dict[str, Callable[[RankHeader], str]]] = {"host": host_name, "device": device_name}


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    p = 1.0 if row["p"] is None else row["p"]
    return -row["num_outlier"], p, row["num_agreeing"], -row["num_drifting"], row["kind"], row["place"]


def _rows(kind: str, name_of: Callable[[RankHeader], str], runs: Drifts) -> list[dict[str, Any]]:
    """Count, for each place, the runs in which it is an outlier and those that it takes part in."""
    taking = {run.label: {name_of(each.header) for each in run.ranks} - {""} for run, _ in runs}
    outliers = Counter(place for run, drift in runs for place in _outliers(run, drift, name_of))
    drifting = [run for run, drift in runs if len(drift)]
    agreeing = [run for run, drift in runs if not len(drift)]
    found = _associate(drifting, agreeing, taking)
    p_of = {host_of(fact): fact for fact in found.found_facts} if found else {}
    rows = []
    for place in sorted(set().union(*taking.values())):
        num_drifting = sum(place in taking[run.label] for run in drifting)
        fact = p_of.get(place)
        if outliers[place] or (fact is not None and num_drifting):
            rows.append(
                {
                    "place": place,
                    "kind": kind,
                    "num_outlier": outliers[place],
                    "num_drifting": num_drifting,
                    "of_drifting": len(drifting),
                    "num_agreeing": sum(place in taking[run.label] for run in agreeing),
                    "of_agreeing": len(agreeing),
                    "p": fact.p if fact else None,
                    "chance": chance_of(fact, found.found_facts) if fact and found else None,
                    "note": note_of(fact, found.found_facts) if fact and found else ASSOCIATION,
                }
            )
    return rows


def _outliers(run: Run, drift: pl.DataFrame, name_of: Callable[[RankHeader], str]) -> set[str]:
    ranks = {rank for outliers in drift["outliers"] for rank in outliers}
    return {name_of(each.header) for each in run.ranks if each.header.rank in ranks} - {""}


def _associate(
    drifting: Sequence[Run], agreeing: Sequence[Run], taking: dict[str, set[str]]
) -> Association | None:
    """Hold the places of runs that drift against those of runs that do not, where there are both."""
    places = {label: sorted(names) for label, names in taking.items() if names}
    return associate(drifting, agreeing, hosts=places) if drifting and agreeing and places else None


def _findings(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Name the places that are an outlier in the most runs; the hosts before their devices."""
    most = max((row["num_outlier"] for row in rows), default=0)
    if most < 2:
        return []
    first = next(row for row in rows if row["num_outlier"] == most)
    alike = [row for row in rows if row["kind"] == first["kind"] and _same_counts(row, first)]
    names = [row["place"] for row in alike]
    return [
        {
            "component": "common factor",
            "severity": "note",
            "found": f"{' and '.join(names)} {'is an outlier' if len(names) == 1 else 'are outliers'} in "
            f"{_of(first, 'num_outlier', 'of_drifting')} that drift{_good(first)}",
            "why": f"{first['note']}{_p(first)}",
            "next": f"replay the suspect step on {names[0]} and on another host",
            "places": names,
        }
    ]


def _same_counts(row: dict[str, Any], first: dict[str, Any]) -> bool:
    names = ("num_outlier", "num_drifting", "num_agreeing")
    return all(row[name] == first[name] for name in names)


def _of(row: dict[str, Any], number: str, total: str) -> str:
    return f"{row[number]} of {row[total]} {plural('run', row[total])}"


def _good(row: dict[str, Any]) -> str:
    if not row["of_agreeing"]:
        return ", and no run agrees that these could be held against"
    does = "that do not" if row["of_agreeing"] > 1 else "that does not"
    return f", and takes part in {_of(row, 'num_agreeing', 'of_agreeing')} {does}"


def _p(row: dict[str, Any]) -> str:
    return (
        ""
        if row["p"] is None
        else f"; taking part and drifting go together by chance with p = {row['p']:.2g}"
    )

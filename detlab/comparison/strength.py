"""In how many pairs of runs each finding was seen: what one pair shows may be that pair's alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from detlab.comparison.findings import Finding

Pair = tuple[int, int]
"""Positions of two runs among those that are compared, the lesser first."""

SEEN_COLUMNS: Final[dict[str, Any]] = {
    "class": pl.String,
    "op": pl.String,
    "scopes": pl.List(pl.String),
    "phase": pl.String,
    "ranks": pl.List(pl.Int64),
    "first_step": pl.Int64,
    "num_pairs": pl.Int64,
    "of_pairs": pl.Int64,
    "runs_in_all": pl.List(pl.String),
    "note": pl.String,
}
"""Columns of `detlab.comparison.many.ManyComparison.findings`."""

ANECDOTE: Final = "one pair is an anecdote"

_Key = tuple[str, str, str, str]


def seen_in_pairs(found: Mapping[Pair, Sequence[Finding]], labels: Sequence[str]) -> pl.DataFrame:
    """Put the findings of all pairs together: one row of the `SEEN_COLUMNS` for each kind of finding."""
    kinds: dict[_Key, list[tuple[Pair, Finding]]] = defaultdict(list)
    for pair, findings in found.items():
        for finding in findings:
            kinds[_key(finding)].append((pair, finding))
    rows = [_row(members, len(found), labels) for members in kinds.values()]
    order = ("first_step", "class", "op", "scopes", "phase")
    rows.sort(key=lambda row: (-row["num_pairs"], *(row[name] for name in order)))
    return pl.DataFrame(rows, SEEN_COLUMNS)


def _key(finding: Finding) -> _Key:
    """Say what two findings have in common that are one: layers and other numbers in scopes do not count."""
    place = re.sub(r"\d+", "*", finding.scopes[0]) if finding.scopes else ""
    return finding.finding_class, finding.op, place, finding.phase


def _row(members: Sequence[tuple[Pair, Finding]], of_pairs: int, labels: Sequence[str]) -> dict[str, Any]:
    pairs = sorted({pair for pair, _ in members})
    first = members[0][1]
    in_all = sorted(set.intersection(*map(set, pairs)))
    return {
        "class": first.finding_class,
        "op": first.op,
        "scopes": sorted({scope for _, finding in members for scope in finding.scopes}),
        "phase": first.phase,
        "ranks": sorted({rank for _, finding in members for rank in finding.ranks}),
        "first_step": min(step for _, finding in members for step in finding.steps),
        "num_pairs": len(pairs),
        "of_pairs": of_pairs,
        "runs_in_all": [labels[at] for at in in_all],
        "note": _note(len(pairs), of_pairs, [labels[at] for at in in_all]),
    }


def _note(num_pairs: int, of_pairs: int, in_all: Sequence[str]) -> str:
    """Say what the number of pairs is worth: pairs that share a run are not independent of each other."""
    if of_pairs == 1:
        return ANECDOTE
    return f"always with {in_all[0]}" if len(in_all) == 1 < num_pairs else ""

"""What the places of a tax say in words: where it is, what stands in only one run, what is not explained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from detlab.checks.result import NotChecked, Verified
from detlab.checks.tax.names import KERNEL, OP, TABLES
from detlab.checks.tax.profiles import Places
from detlab.text import plural, shorten

_SHOWN: Final = 5
_NAME: Final = 60

_TABLE_WORDS: Final = {
    "forward": "modules",
    "backward": "nodes of the backward pass",
    "op": "ops",
    "kernel": "kernels",
    "range": "other ranges",
}


@dataclass
class Told:
    """What is to be said of places, by where a check says it."""

    verified: list[Verified] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)


def tell_places(places: Places, table: pl.DataFrame, whole_ms: float | None) -> Told:
    """Put the tables of two joined profiles into words.

    Parameters
    ----------
    places
        The joined profiles.
    table
        Their rows, as `table.place_rows` gives them.
    whole_ms
        The difference that shares are of; None where it is not known.
    """
    told, unit = Told(), "a step" if places.per_step else "in the whole profile"
    for name in TABLES:
        rows = table.filter(pl.col("table") == name)
        if len(rows):
            clock = rows["clock"][0]
            told.verified.append(Verified(_TABLE_WORDS[name], _largest(rows, unit), f"profile: {clock} time"))
    told.notes += [*places.notes, *_only_in_one(table)]
    if not places.per_step:
        told.notes.append("how many steps the profiles cover is not known: times are of whole profiles")
    told.not_checked += _unexplained(places, table, whole_ms, unit)
    if places.fill_ms is not None and places.fill_ms > 0:
        told.findings.append(_fill(places.fill_ms, whole_ms, unit))
    return told


def whole_of(places: Places, step_ms: float | None, source: str) -> tuple[float | None, str]:
    """Choose the difference that shares are of, and say what it is: that of steps, or a sum of rows."""
    if step_ms is not None:
        return step_ms, f"shares are of the difference of the {source}"
    if places.whole_ms is not None:
        return places.whole_ms, "shares are of the difference of the ranges around whole steps"
    for name in (KERNEL, OP, *TABLES):
        rows = places.rows.filter(pl.col("table") == name)
        if len(rows) and (name == KERNEL or not places.overlaps):
            said = f"no step is marked: shares are of the sum over {_TABLE_WORDS[name]}"
            return float((rows["deterministic_ms"] - rows["default_ms"]).sum()), said
    return None, "no step is marked, and rows overlap: shares are not known"


def _largest(rows: pl.DataFrame, unit: str) -> str:
    moved = rows.filter(pl.col("delta_ms") != 0).head(_SHOWN)
    said = "; ".join(map(_row_text, moved.iter_rows(named=True))) or "no difference"
    return f"{rows['delta_ms'].sum():+,.4g} ms {unit} in {len(rows):,} {plural('row', len(rows))}: {said}"


def _row_text(row: dict[str, Any]) -> str:
    share = f", {100 * row['share']:+.0f} %" if row["share"] is not None else ""
    only = f", only in the {row['only_in']} run" if row["only_in"] else ""
    name = shorten(row["name"], _NAME)
    calls = f"{row['count_default']:,} → {row['count_deterministic']:,} calls"
    return f"{name} {row['delta_ms']:+,.4g} ms ({calls}{share}{only})"


def _only_in_one(table: pl.DataFrame) -> list[str]:
    """Name what only one run did: deterministic ops put others in the place of those they replace."""
    notes = []
    for side in ("deterministic", "default"):
        rows = table.filter(pl.col("only_in") == side)
        if len(rows):
            names = ", ".join(shorten(name, _NAME) for name in rows["name"].head(_SHOWN))
            more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
            notes.append(f"only in the {side} run: {names}{more}")
    return notes


def _unexplained(places: Places, table: pl.DataFrame, whole_ms: float | None, unit: str) -> list[NotChecked]:
    """Say what of the whole no row of the most complete table explains."""
    if whole_ms is None:
        return []
    for name in (KERNEL, OP):
        rows = table.filter(pl.col("table") == name)
        if len(rows) and (name == KERNEL or not places.overlaps):
            rest = whole_ms - float(rows["delta_ms"].sum())
            share = f" ({100 * rest / whole_ms:.0f} %)" if whole_ms else ""
            says = f"{rest:+,.4g} of {whole_ms:+,.4g} ms {unit}{share} lie outside the {_TABLE_WORDS[name]}"
            return [NotChecked("the rest of the difference", says)]
    return []


def _fill(fill_ms: float, whole_ms: float | None, unit: str) -> dict[str, Any]:
    share = f", {100 * fill_ms / whole_ms:.0f} % of the difference" if whole_ms and whole_ms > 0 else ""
    return {
        "component": "filling of new memory",
        "severity": "note",
        "found": f"{fill_ms:+,.4g} ms {unit}{share} go into filling memory that was just allocated",
        "why": "with deterministic algorithms torch.empty and its like fill what they give, so that reading "
        "it is repeatable",
        "next": "if no kernel reads memory that nobody wrote: torch.utils.deterministic."
        "fill_uninitialized_memory = False",
        "source": "https://docs.pytorch.org/docs/stable/deterministic.html",
    }

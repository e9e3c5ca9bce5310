"""Where the difference of a call came from, in one line above its details."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from detlab.comparison.call.part_words import step_words
from detlab.views.text import html, shorten
from detlab.widgets.styles import verdict_mark

_MAX_ENDS: Final = 4


def came_from_html(path: pl.DataFrame, *, live: bool = True) -> str:
    """Say where a path ends: at its origins, or at the last calls that it could be followed to.

    Parameters
    ----------
    path
        What `detlab.comparison.Comparison.path` gives.
    live
        Whether its calls are buttons with ``data-rank`` and ``data-site``.
    """
    first, *way = path.to_dicts()
    if not way:
        return _line(_alone(first["verdict"]))
    origins = [row for row in way if row["verdict"] == "origin"]
    left = {row["from_hop"] for row in way}
    ends = origins or [row for row in way if row["hop"] not in left]
    listed = " ".join(_call(row, live) for row in ends[:_MAX_ENDS])
    more = f" and {len(ends) - _MAX_ENDS:,} more" if len(ends) > _MAX_ENDS else ""
    said = "It came from" if origins else "It could be followed back to, and no further than,"
    return _line(f"{said} {listed}{more}.")


def waiting_html() -> str:
    """Say that a path is being followed, in the place of what will be said of it."""
    return _line('<span role="status">Following the difference back to where it began …</span>')


def _line(said: str) -> str:
    return f'<div class="detlab-call dl-came"><p>{said}</p></div>'


def _alone(verdict: str) -> str:
    """Say what it means that nothing stands before a call on its path."""
    known = {"origin": "The difference begins here.", "match": "Nothing differs here."}
    return known.get(verdict, "No recorded call before it explains the difference.")


def _call(row: dict[str, Any], live: bool) -> str:
    where = f"{shorten(row['scope'], 50) or 'no module'}, rank {row['rank']}, {step_words(row['step'])}"
    name = f"<code>{html(shorten(row['op'], 50))}</code> in {html(where)}"
    run = ' data-run="b"' if row["verdict"] == "only_b" else ""
    data = f'data-rank="{row["rank"]}" data-site="{html(row["site"])}"{run}'
    shown = f'<button type="button" class="called" {data}>{name}</button>' if live else name
    return f"{verdict_mark(row['verdict'])} {shown}"

"""The checks that a panel offers: a line each, and how their findings are listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

import detlab
from detlab.run import Run, spans
from detlab.text import plural
from detlab.views.tables import Markup
from detlab.views.text import html, shorten
from detlab.widgets.replay_panel_html import block
from detlab.widgets.static_twin_tables import plain_table
from detlab.widgets.work import error_sentences

MAX_ROWS: Final = 50
_WIDEST_CELL: Final = 160


class Check(NamedTuple):
    """One check of a run against itself.

    Attributes
    ----------
    name
        What the panel calls it.
    function
        The public name of what makes it: a run in, a frame of findings out.
    asks
        The question it answers.
    none
        What no finding means, and no more.
    columns
        Columns of its frame that are shown, by heading.
    more
        Columns of longer text, which stand below the table.
    """

    name: str
    function: str
    asks: str
    none: str
    columns: Mapping[str, str]
    more: Mapping[str, str]


CHECKS: Final = (
    Check("replicas", "check_replicas", "Do ranks that should hold the same tensor hold the same bits?",
          "nothing that is known to be a replica differs",
          {"tensor": "scope", "op": "op", "axis": "axis", "ranks": "ranks", "outliers": "outliers",
           "first step": "first_step", "evidence": "evidence"},
          {"why": "why", "next": "next"}),
    Check("recompute", "check_recompute", "Does the forward give the same bits when it is recomputed?",
          "every call that was made again gave the same bits",
          {"op": "op", "module": "scope", "rank": "rank", "step": "step", "verdict": "verdict",
           "class": "class", "evidence": "evidence"},
          {"call": "forward", "made again": "again", "why": "why"}),
)  # fmt: skip
"""Every check that there is; one more is one more entry."""


class Outcome(NamedTuple):
    """What one check of one run gave: a frame of findings, or the error that says why it could not."""

    run: str
    check: Check
    looked_at: str
    found: pl.DataFrame | Exception


def outcome_of(check: Check, run: Run) -> Outcome:
    """Make a check; what cannot be checked is an outcome too."""
    function: Callable[[Run], pl.DataFrame] = getattr(detlab, check.function)
    found: pl.DataFrame | Exception
    try:
        found = function(run)
    except Exception as error:  # our own mistakes too: a thread has nobody else to tell
        found = error
    return Outcome(run.label, check, looked_at(run), found)


def looked_at(run: Run) -> str:
    """Say what a check of a run has to look at."""
    if not run.ranks:
        return "no recorded rank"
    ranks = spans([trace.header.rank for trace in run.ranks])
    return f"ranks {shorten(ranks, 60)}, steps {shorten(spans(run.steps), 60)}, {run.num_events:,} calls"


def outcomes_html(outcomes: Sequence[Outcome]) -> str:
    """Write what checks gave, one after another."""
    return block("".join(map(_outcome, outcomes))) if outcomes else ""


def _outcome(outcome: Outcome) -> str:
    check, found = outcome.check, outcome.found
    title = f"<p><b>{html(check.name)} of {html(outcome.run)}</b>: {html(check.asks)}<br>"
    if isinstance(found, Exception):
        said = "<br>".join(map(html, error_sentences(found)))
        return f"{title}<strong>Not possible</strong>: {said}</p>"
    seen = f"Looked at {html(outcome.looked_at)}.</p>"
    if not len(found):
        return f"{title}<strong>Nothing found</strong>: {html(check.none)}. {seen}"
    num = f"{len(found):,} {plural('finding', len(found))}"
    return f"{title}<strong>{num}</strong>. {seen}{_table(check, found)}"


def _table(check: Check, found: pl.DataFrame) -> str:
    """List findings by number: what can be compared in a table, longer text below it."""
    shown = found.head(MAX_ROWS)
    rows = [
        [str(number), *map(_cell, row)]
        for number, row in enumerate(shown.select(list(check.columns.values())).iter_rows(), 1)
    ]
    told = "".join(
        f"<li>{'<br>'.join(_told(*each) for each in zip(check.more, row, strict=True) if each[1])}</li>"
        for row in shown.select(list(check.more.values())).iter_rows()
    )
    table = plain_table(["finding", *check.columns], rows, more=len(found) - len(rows))
    return f'{table}<ol style="overflow-wrap:anywhere">{told}</ol>'


def _told(name: str, text: object) -> str:
    return f"{html(name)}: {html(text)}"


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return shorten(spans(value), 60) if value else None
    if isinstance(value, str):
        text = html(shorten(value, _WIDEST_CELL))
        return Markup(f'<span style="overflow-wrap:anywhere" title="{html(value)}">{text}</span>')
    return value

"""The checks that a panel offers: a line each, and how their results are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import detlab
from detlab.run import Run, spans
from detlab.text import plural
from detlab.views.tables import Markup
from detlab.views.text import html, shorten
from detlab.widgets.replay_panel_html import block
from detlab.widgets.static_twin_tables import plain_table
from detlab.widgets.work import error_sentences

if TYPE_CHECKING:
    from detlab.checks import CheckResult

MAX_ROWS: Final = 50
_MAX_LINES: Final = 20
_WIDEST_CELL: Final = 160


class Check(NamedTuple):
    """One check of a run against itself.

    Attributes
    ----------
    name
        What the panel calls it.
    function
        The public name of what makes it: a run in, a `detlab.checks.CheckResult` out.
    asks
        The question it answers.
    """

    name: str
    function: str
    asks: str


CHECKS: Final = (
    Check("trace", "check_trace", "Is the trace whole enough to be compared?"),
    Check("recipe", "check_recipe", "Was the run set up to be deterministic?"),
    Check("replicas", "check_replicas", "Do ranks that should hold the same tensor hold the same bits?"),
    Check("recompute", "check_recompute", "Does the forward give the same bits when it is recomputed?"),
)
"""Every check that one run alone can be asked for; one more is one more entry."""


class Outcome(NamedTuple):
    """What one check of one run gave: its result, or the error that says why it could not."""

    run: str
    check: Check
    looked_at: str
    found: CheckResult | Exception


def outcome_of(check: Check, run: Run) -> Outcome:
    """Make a check; what cannot be checked is an outcome too."""
    function: Callable[[Run], CheckResult] = getattr(detlab, check.function)
    found: CheckResult | Exception
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
    steps = f"{plural('step', len(run.steps))} {shorten(spans(run.steps), 60)}"
    return f"{plural('rank', len(run.ranks))} {shorten(ranks, 60)}, {steps}, {run.num_events:,} calls"


def verdicts(outcomes: Sequence[Outcome]) -> str:
    """Say how checks ended, what stands against a run first: ``1 fail, 2 pass``; empty without a check."""
    ends = ["not possible" if isinstance(each.found, Exception) else each.found.verdict for each in outcomes]
    order = ("fail", "invalid", "not possible", "pass")
    return ", ".join(f"{ends.count(end)} {end}" for end in order if end in ends)


def outcomes_html(outcomes: Sequence[Outcome]) -> str:
    """Write what checks gave, one after another."""
    return block("".join(map(_outcome, outcomes))) if outcomes else ""


_COLUMNS: Final = ("severity", "found", "where")
_MORE: Final = ("expected", "why", "next", "source")


def _outcome(outcome: Outcome) -> str:
    check, found = outcome.check, outcome.found
    title = f"<p><b>{html(check.name)} of {html(outcome.run)}</b>: {html(check.asks)}<br>"
    if isinstance(found, Exception):
        said = "<br>".join(map(html, error_sentences(found)))
        return f"{title}<strong>Not possible</strong>: {said}</p>"
    num = len(found.findings)
    nothing = "it could not be decided" if found.verdict == "invalid" else "nothing found"
    said = f"{num:,} {plural('finding', num)}" if num else nothing
    verdict = f"<strong>{found.verdict.upper()}</strong>: {said}. Looked at {html(outcome.looked_at)}.</p>"
    return f"{title}{verdict}{_table(found) if num else ''}{''.join(_lists(found))}"


def _table(result: CheckResult) -> str:
    """List findings by number: what is short in a table, longer text below it."""
    shown = result.findings.head(MAX_ROWS).rows(named=True)
    rows = [
        [str(number), _cell(row["code"] or row["component"]), *(_cell(row[name]) for name in _COLUMNS)]
        for number, row in enumerate(shown, 1)
    ]
    told = "".join(
        f"<li>{'<br>'.join(f'{name}: {html(row[name])}' for name in _MORE if row[name])}</li>"
        for row in shown
    )
    table = plain_table(["finding", "what", *_COLUMNS], rows, more=len(result.findings) - len(rows))
    return f'{table}<ol style="overflow-wrap:anywhere">{told}</ol>'


def _lists(result: CheckResult) -> Iterator[str]:
    """List what is missing, what holds, what was not looked at and what else there is to know."""
    yield _list("Problems", [f"{each.where}: {each.what}" for each in result.problems])
    yield _list(
        "Verified", [f"{each.what}: {each.says}{_in_brackets(each.evidence)}" for each in result.verified]
    )
    yield _list("Not checked", [f"{each.what}: {each.why}" for each in result.not_checked])
    yield _list("Notes", result.notes)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = len(lines) - _MAX_LINES
    items = [*map(html, lines[:_MAX_LINES]), *([f"… and {more:,} more"] if more > 0 else [])]
    return (
        f'<p>{title}:</p><ul style="overflow-wrap:anywhere">'
        f"{''.join(f'<li>{item}</li>' for item in items)}</ul>"
    )


def _cell(value: Any) -> Any:
    text = html(shorten(value, _WIDEST_CELL))
    return Markup(f'<span style="overflow-wrap:anywhere" title="{html(value)}">{text}</span>')

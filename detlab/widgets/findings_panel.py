"""The findings: every place where a difference begins, and the first divergence of each rank, to click on."""

from __future__ import annotations

from typing import Any, Final

from detlab.comparison import Comparison, Finding
from detlab.comparison.places import call_row, differing_at
from detlab.errors import InputError
from detlab.schema import Site, Verdict
from detlab.views.text import html, shorten
from detlab.widgets.findings_panel_html import MAX_FINDINGS, findings_html
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.panel_css import PANEL_CSS
from detlab.widgets.selection import Selection, clicked_call, place_of
from detlab.widgets.static_twin import StaticTwin, Twin
from detlab.widgets.static_twin_tables import plain_table
from detlab.widgets.styles import verdict_mark, verdict_sign

MAX_FIRSTS: Final = 50
_MAX_TRIED: Final = 64
"""The first call of a finding is looked for on at most this many ranks."""


class FindingsPanel(StaticTwin, HtmlPanel):
    """Lists the findings; a click selects the first call of one, on the rank that was clicked."""

    _css = PANEL_CSS

    def __init__(self, cmp: Comparison, selection: Selection | None = None) -> None:
        self._cmp, self.selection = cmp, selection or Selection()
        self._places = {id(finding): first_call(cmp, finding) for finding in cmp.roots[:MAX_FINDINGS]}
        self._firsts, self._num_firsts = first_calls(cmp)
        super().__init__()
        self.on_act(self._act)
        self.selection.observe(lambda _: self._draw(), "called")
        self._draw()

    def _draw(self) -> None:
        self.html = findings_html(self._cmp, self._chosen()) + self._firsts_html()

    def _chosen(self) -> set[int]:
        """Give the findings that the selected call belongs to."""
        called = self.selection.called
        place = place_of(self._cmp, called)
        if place is None or self._cmp.ranks[called[0]].verdicts[called[1]] == Verdict.MATCH:
            return set()  # one that matches can have the site of another that only run b makes
        rank, site = place
        return {
            number
            for number, finding in enumerate(self._cmp.roots[:MAX_FINDINGS])
            if rank in finding.ranks and site in finding.sites
        }

    def _firsts_html(self) -> str:
        if not self._firsts:
            return ""
        rows = "".join(map(_first_html, self._firsts))
        more = self._num_firsts - len(self._firsts)
        rest = f"<p>… and {more:,} more: see cmp.first.</p>" if more else ""
        title = f"First divergence of each rank ({self._num_firsts:,})"
        return f'<details><summary>{title}</summary><ul class="dl-firsts">{rows}</ul>{rest}</details>'

    def _act(self, data: dict[str, Any]) -> None:
        """Select what was clicked; data comes from a browser, and may name what is not there."""
        try:
            called = self._called(data)
        except (InputError, ValueError, KeyError, IndexError):
            return
        if called is not None:
            self.selection.called = called

    def _called(self, data: dict[str, Any]) -> tuple[int, int] | None:
        if "finding" not in data:
            return clicked_call(self._cmp, data)
        finding = self._cmp.roots[int(data["finding"])]
        if "rank" in data:
            return first_call(self._cmp, finding, int(data["rank"]))
        return self._places[id(finding)]

    def twin(self) -> Twin:
        """Give the findings and the first divergences without buttons."""
        said = findings_html(self._cmp, set(), live=False)
        return Twin(said + firsts_table(self._firsts, self._num_firsts), repr(self._cmp))


def first_call(cmp: Comparison, finding: Finding, rank: int | None = None) -> tuple[int, int] | None:
    """Give the first call of a finding that is there: on the first rank that makes it, or on a given one."""
    numbers = {each.rank: number for number, each in enumerate(cmp.ranks)}
    ranks = finding.ranks if rank is None else (rank,)
    for site in map(Site.parse, finding.sites):
        for number in (numbers[each] for each in ranks[:_MAX_TRIED] if each in numbers):
            position = differing_at(cmp.ranks[number], site)
            if position is not None:
                return number, position
    return None


def first_calls(cmp: Comparison) -> tuple[list[dict[str, Any]], int]:
    """Give the first divergence of some ranks, as rows of `Comparison.first` with ``position``; count all."""
    rows: list[dict[str, Any]] = []
    total = 0
    for rank in cmp.ranks:
        found = rank.divergent()[:1]
        total += len(found)
        if len(found) and len(rows) < MAX_FIRSTS:
            rows.append({**call_row(rank, int(found[0])), "position": int(found[0])})
    return rows, total


def _first_html(row: dict[str, Any]) -> str:
    """Write the first divergence of a rank, with a button that selects it."""
    verdict = f"{verdict_mark(row['verdict'])} {row['verdict']}"
    return (
        f'<li><button type="button" data-rank="{row["rank"]}" data-site="{html(row["site"])}" '
        f'data-position="{row["position"]}">'
        f"{row['rank']} · {html(row['coordinate'])}</button> {verdict}<br>step {row['step']}: "
        f'<code title="{html(row["site"])}">{html(shorten(row["op"], 60))}</code></li>'
    )


def firsts_table(rows: list[dict[str, Any]], total: int) -> str:
    """List first divergences for a reader without a kernel."""
    if not rows:
        return ""
    cells = [
        (
            f"{row['rank']} {row['coordinate']}",
            f"{verdict_sign(row['verdict'])} {row['verdict']}",
            row["step"],
            row["phase"],
            row["op"],
            row["scope"] or "no module",
            row["seq_a"],
            row["seq_b"],
        )
        for row in rows
    ]
    headings = ("rank", "verdict", "step", "phase", "op", "scope", "order in a", "order in b")
    return plain_table(
        headings, cells, "First divergence of each rank, in its own order", more=total - len(rows)
    )

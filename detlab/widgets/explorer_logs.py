"""Two runs that left only step metrics: what their numbers prove, what went wrong in them, and the curves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import ipywidgets

from detlab.comparison import Triage, compare_metrics, triage
from detlab.comparison.metrics.text import (
    coverage_line,
    headline,
    onset_lines,
    replay_lines,
    segment_lines,
)
from detlab.errors import DetlabError
from detlab.run import Run
from detlab.views.text import html
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.metrics_panel import MetricsPanel
from detlab.widgets.panel_css import PANEL_CSS
from detlab.widgets.selection import Selection
from detlab.widgets.static_twin import StaticTwin, Twin
from detlab.widgets.static_twin_tables import plain_table

_MAX_ROWS: Final = 50
_MAX_LINES: Final = 12


class LogExplorer(StaticTwin, ipywidgets.VBox):  # type: ignore[misc]
    """The metrics of two runs without traces, and the triage of both."""

    def __init__(self, a: Run, b: Run, *, metric: str = "") -> None:
        self.selection = Selection()
        self.compared = compare_metrics(a, b)
        self.said = _Said(html=self._html)
        self.metrics = MetricsPanel(a, b, selection=self.selection, metric=metric)
        super().__init__([self.said, self.metrics])
        self.add_class("detlab-explorer")

    @cached_property
    def _html(self) -> str:
        word, _, sentence = headline(self.compared).partition(": ")
        if not sentence:  # a match names the runs before its colon
            word, _, sentence = word.partition(" ")
        onset = "".join(f"<p>{html(line)}</p>" for line in onset_lines(self.compared))
        triages = "".join(self._triages())
        rest = "".join(f"<li>{html(line)}</li>" for line in self._lines())
        return (
            '<div class="dl-verdict"><p class="dl-sentence">'
            f'<strong class="dl-word dl-{self.compared.verdict}">{html(word)}</strong> {html(sentence)}</p>'
            f"{onset}{triages}"
            f"<details><summary>every metric, and what its numbers prove</summary>{self._table()}</details>"
            f'<ul class="dl-list">{rest}</ul><p>Only step metrics were logged. Which call began it takes a '
            "trace: record both runs with <code>dl.Recorder</code>.</p></div>"
        )

    def _lines(self) -> list[str]:
        cmp = self.compared
        lines = [coverage_line(cmp), *replay_lines(cmp.replays), *segment_lines(cmp.segments)]
        lines += [f"problem: {who} {what}" for who, what in cmp.problems[:_MAX_LINES]]
        more = len(cmp.problems) - _MAX_LINES
        return [*lines, *([f"… and {more} more problems"] if more > 0 else []), *cmp.notes]

    def _triages(self) -> Iterator[str]:
        """Say what triage says of each run, held against the other."""
        for run, other in ((self.compared.a, self.compared.b), (self.compared.b, self.compared.a)):
            try:
                yield _triage_html(triage(run, reruns=[other]))
            except DetlabError as error:
                yield f"<p>{html(run.label)} cannot be triaged: {html(error.finding)} {html(error.hint)}</p>"

    def _table(self) -> str:
        rows = self.compared.metrics.sort("first_step", nulls_last=True, maintain_order=True)
        cells = [(row["name"], _outcome(row), row["first_step"], row["resolution"])
                 for row in rows.head(_MAX_ROWS).to_dicts()]  # fmt: skip
        return plain_table(("metric", "it", "first at step", "is known"), cells, more=len(rows) - len(cells))

    def twin(self) -> Twin:
        """Give the same with pictures in place of the curves."""
        return Twin(f"<div>{self._html}{self.metrics.twin().html}</div>", repr(self.compared))

    def __repr__(self) -> str:
        return repr(self.compared)


class _Said(HtmlPanel):
    """What the comparison of the metrics says."""

    _css = PANEL_CSS


def _triage_html(found: Triage) -> str:
    name = f"<b>Triage of {html(found.run.label)}:</b>"
    if found.main is None:
        return f"<p>{name} no spike in what could be read of it.</p>"
    more = f" It is one of {len(found.spikes)} events." if len(found.spikes) > 1 else ""
    following = f'<p><b>Next:</b></p><pre class="dl-copy" tabindex="0">{html(found.next)}</pre>'
    return (
        f"<p>{name} <strong>{html(found.conclusion)}</strong>. {html(found.main.says)} (confidence: "
        f"{found.main.confidence}).{more}</p><p>{html(found.why)}</p>{following if found.next else ''}"
    )


def _outcome(row: dict[str, Any]) -> str:
    """Say how often a metric differs; equality of measurements and of what is printed proves nothing."""
    if row["kind"] != "compared":
        return str(row["kind"])
    if not row["steps_common"]:
        return "has no step in common"
    if row["steps_different"]:
        return f"differs at {row['steps_different']:,} of {row['steps_common']:,} steps"
    equal = "equal" if row["evidence"] == "exact" else "equal as printed"
    return f"{equal} at {row['steps_common']:,} steps"

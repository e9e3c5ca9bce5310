"""Two runs that left only step metrics: what their numbers prove, what went wrong in them, and the curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import ipywidgets

from detlab.comparison import compare_metrics, triage
from detlab.errors import DetlabError
from detlab.run import Run
from detlab.views.text import html
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.metrics_panel import MetricsPanel
from detlab.widgets.panel_css import PANEL_CSS
from detlab.widgets.selection import Selection
from detlab.widgets.static_twin import StaticTwin, Twin


class LogExplorer(StaticTwin, ipywidgets.VBox):  # type: ignore[misc]
    """The metrics of two runs without traces, and the triage of both."""

    def __init__(self, a: Run, b: Run, *, metric: str = "") -> None:
        self.selection = Selection()
        self.compared = compare_metrics(a, b)
        self.said = _Said(html=self._html())
        self.metrics = MetricsPanel(a, b, selection=self.selection, metric=metric)
        super().__init__([self.said, self.metrics])
        self.add_class("detlab-explorer")

    def _html(self) -> str:
        first, *rest = repr(self.compared).split("\n")
        word, _, sentence = first.partition(": ")
        head = (
            f'<strong class="dl-word dl-{html(self.compared.verdict)}">{html(word)}</strong> {html(sentence)}'
        )
        found = "".join(
            f"<details><summary>{html(title)}</summary>{_lines(lines)}</details>"
            for title, lines in self._triages
        )
        return (
            f'<div class="dl-verdict"><p class="dl-sentence">{head}</p>{_lines(rest)}{found}'
            "<p>Only step metrics were logged. Which call began it takes a trace: record both runs with "
            "dl.Recorder.</p></div>"
        )

    @cached_property
    def _triages(self) -> list[tuple[str, list[str]]]:
        """Give what triage says of each run, held against the other."""
        said = []
        for run, other in ((self.compared.a, self.compared.b), (self.compared.b, self.compared.a)):
            try:
                lines = repr(triage(run, reruns=[other])).split("\n")
            except DetlabError as error:
                lines = [f"{error.finding} {error.hint}"]
            said.append((f"Triage of {run.label}: {lines[0]}", lines))
        return said

    def twin(self) -> Twin:
        """Give the same with pictures in place of the curves."""
        return Twin(self._html() + self.metrics.twin().html, repr(self.compared))

    def __repr__(self) -> str:
        return repr(self.compared)


class _Said(HtmlPanel):
    """What the comparison of the metrics says."""

    _css = PANEL_CSS


def _lines(lines: Sequence[str]) -> str:
    """Write lines of text as they are, in columns."""
    text = "\n".join(html(line) for line in lines).strip("\n")
    return f'<pre class="dl-lines" tabindex="0">{text}</pre>'

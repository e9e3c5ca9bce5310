"""A whole comparison without a kernel: the sections of the explorer, in its order, as plain HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detlab.comparison import Comparison
from detlab.comparison.journal import Journal
from detlab.views import sections
from detlab.views.cells import MapSource
from detlab.views.text import html
from detlab.widgets.findings_panel import first_calls, firsts_table
from detlab.widgets.findings_panel_html import findings_html
from detlab.widgets.metrics_panel_data import Metrics
from detlab.widgets.metrics_panel_html import metrics_still
from detlab.widgets.static_twin import Twin
from detlab.widgets.static_twin_map import still
from detlab.widgets.static_twin_tables import inlined
from detlab.widgets.toolbar_html import journal_html
from detlab.widgets.verdict_bar import verdict_html

_LIVE: Final = "This is a still. Run the cell again, with the runs at hand, for the live view."


def comparison_twin(
    cmp: Comparison,
    source: MapSource,
    state: Mapping[str, Any],
    metrics: Metrics,
    *,
    selected: str = "",
    replayed: str = "",
    journal: Journal | None = None,
) -> Twin:
    """Write a comparison for readers without a kernel.

    Parameters
    ----------
    source, state
        The map, and what it shows.
    metrics
        The step metrics of both runs.
    selected
        HTML of the selected call; empty when none is.
    replayed
        HTML of what a replay gave; empty before one.
    journal
        Notes and hypotheses, if any are kept.
    """
    picture, png = still(source, state)
    parts = (
        ("", verdict_html(cmp, shows_aside=None)),
        ("Findings", findings_html(cmp, live=False)),
        ("Map", picture),
        ("First divergences", firsts_table(*first_calls(cmp))),
        ("Selected call", inlined(selected)),
        ("Step metrics", metrics_still(metrics)),
        ("", replayed),
        ("Notes and hypotheses", journal_html(journal, cmp.notes, live=False)),
        ("Coverage", inlined(sections.coverage(cmp))),
        ("Structure", inlined(sections.structure(cmp)) if cmp.structure.details else ""),
        ("How the runs were made", inlined(sections.recipes(cmp))),
    )
    written = "".join((f"<h4>{html(title)}</h4>" if title else "") + body for title, body in parts if body)
    return Twin(f"<div>{written}<p><i>{_LIVE}</i></p></div>", repr(cmp), png)

"""The map of the report: still pictures for everybody, and in their place a living one where scripts run."""

from __future__ import annotations

from detlab.comparison import Comparison
from detlab.views.encoded_calls import EncodedCalls
from detlab.views.encoded_map import EncodedMap
from detlab.views.text import html


def map_section(cmp: Comparison, still: str, drawn: EncodedMap | None, calls: EncodedCalls | None) -> str:
    """Write the section: still pictures, and the place of the map that the page's script draws.

    Parameters
    ----------
    still
        The pictures as HTML.
    drawn, calls
        What the page carries of the map; None: it has no living one.
    """
    if drawn is None or calls is None:
        return still
    notes = "".join(f"<p>{html(note)}</p>" for note in _notes(cmp, drawn, calls))
    return (
        f'<div class="still">{still}</div><p id="detlab-note" hidden></p>'
        '<div class="lively" hidden><div id="detlab-map"></div>'
        '<section id="detlab-chosen" aria-labelledby="detlab-chosen-title">'
        '<h3 id="detlab-chosen-title">The selected call</h3>'
        '<p class="hint">Click a cell, or go there with the arrow keys and press Enter.</p>'
        f'<div id="detlab-call" hidden></div></section><div class="more">{notes}</div></div>'
    )


def _notes(cmp: Comparison, drawn: EncodedMap, calls: EncodedCalls) -> list[str]:
    """Say what the page does not hold, so that nobody takes it for all there is."""
    said = []
    if calls.num_divergent:
        left = calls.num_divergent - calls.num_calls
        rest = f", not those of {left:,} more" if left > 0 else ""
        said.append(
            f"This file holds digests, shapes and neighbours of {calls.num_calls:,} calls that differ{rest}; "
            "of every other call it holds the verdict and what was called."
        )
    if drawn.pooled:
        worst = "; ".join(f"{name}: {factor:,} calls are one cell" for name, factor in drawn.pooled)
        said.append(f"To keep the file small, neighbouring calls are pooled to their worst: {worst}.")
    if drawn.unnamed:
        said.append(
            f"The names of the calls of {drawn.unnamed:,} of {len(cmp.ranks):,} ranks are not in this file: "
            "their cells have a verdict and a phase only."
        )
    return said

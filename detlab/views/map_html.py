"""The map as HTML and inline SVG: cells as one small picture, text at its own size whatever the width."""

from __future__ import annotations

from typing import Final

from detlab.comparison import Comparison
from detlab.run import spans
from detlab.schema import Verdict
from detlab.views.grid import Band, Grid
from detlab.views.palette import UNTRACED_COLOUR, VERDICT_COLOURS, Rgba, css, ink_on
from detlab.views.png import data_uri
from detlab.views.pooling import ORIGIN
from detlab.views.text import html, shorten

MAX_NAMED: Final = 100
"""So many origins carry their site as a tooltip."""

SYMBOLS: Final = dict(zip(Verdict, ("·", "○", "▾", "a", "b", "△", "?", "◆"), strict=True))
"""A sign per verdict, so that no meaning stands in a colour alone."""

_LABEL_EVERY = 15  # pixels between two row labels
_MAP_HEIGHT = 480


def map_html(cmp: Comparison, grid: Grid) -> str:
    """Draw a map with its labels, phases, marked origins and legend."""
    if not grid.codes.size:
        return "<p>No call was compared, so there is nothing to draw.</p>"
    row_height = min(24, max(1, _MAP_HEIGHT // len(grid.row_labels)))
    labels, margin = _row_labels(grid, row_height), _row_margin(grid, row_height)
    return (
        '<figure class="map">'
        f'<div class="map-grid"><span class="corner">rank</span>{_bands(grid)}'
        f'<span class="corner" title="origins and differing calls of the rank">◆ / differ</span>'
        f"{labels}{_cells(cmp, grid, row_height)}{margin}<span></span>{_axis(grid)}<span></span></div>"
        f"<figcaption>{_caption(grid)}{legend(grid.counts, grid.has_untraced)}</figcaption>"
        "</figure>"
    )


def _percent(column: float, grid: Grid) -> str:
    return f"{100 * column / grid.num_columns:.4g}%"


def _cells(cmp: Comparison, grid: Grid, row_height: int) -> str:
    height = row_height * len(grid.row_labels)
    hatched = "".join(
        f'<rect x="{_percent(start, grid)}" y="{row * row_height}" width="{_percent(stop - start, grid)}" '
        f'height="{row_height}" fill="url(#hatch)"/>'
        for row, start, stop in grid.untraced_runs()
    )
    width = _percent(grid.codes.shape[1] * grid.column_factor, grid)
    picture = (
        f'<image href="{data_uri(grid.codes)}" width="{width}" height="{height}" preserveAspectRatio="none" '
        f'class="pixels"/>'
    )
    starts = [_percent(band.start, grid) for band in _shown_bands(grid)[1:]]
    edges = "".join(f'<line x1="{x}" x2="{x}" y1="0" y2="{height}" class="edge"/>' for x in starts)
    inner = f'<svg width="100%" height="{height}" overflow="hidden">{hatched}{picture}{edges}</svg>'
    return (
        f'<svg width="100%" height="{height}" class="cells" role="img" aria-label="{_alternative(grid)}">'
        f"{inner}{_markers(cmp, grid, row_height)}</svg>"
    )


def _alternative(grid: Grid) -> str:
    """Say in words what the picture shows; the tables below it say where."""
    counted = ", ".join(f"{n:,} {verdict.name.lower()}" for verdict, n in grid.counts.items() if n)
    size = f"{grid.num_rows:,} ranks by {grid.num_columns:,} calls"
    return f"Map of {size}: {counted}. The tables below list where."


def _markers(cmp: Comparison, grid: Grid, row_height: int) -> str:
    markers = []
    rows, columns = grid.origins()
    at = grid.columns_of(rows, columns)
    for number, (row, column, place) in enumerate(zip(rows, columns, at, strict=True)):
        x = _percent(int(place) + 0.5, grid)
        y = (int(row) + 0.5) * row_height
        title = (
            f"<title>origin: {html(grid.site_of(cmp, int(row), int(column)))}</title>"
            if number < MAX_NAMED
            else ""
        )
        markers.append(f'<g>{title}<use href="#diamond" x="{x}" y="{y:g}"/></g>')
    return "".join(markers)


def _labelled_rows(grid: Grid, row_height: int) -> range:
    return range(0, len(grid.row_labels), -(-_LABEL_EVERY // row_height))


def _row_labels(grid: Grid, row_height: int) -> str:
    names = [shorten(name, 34) for name in grid.row_labels]
    width = 12 + 7 * max(map(len, names))
    shown = "".join(
        f'<text x="{width - 8}" y="{(row + 0.5) * row_height:g}" class="end">{html(names[row])}</text>'
        for row in _labelled_rows(grid, row_height)
    )
    return f'<svg width="{width}" height="{row_height * len(names)}" aria-hidden="true">{shown}</svg>'


def _row_margin(grid: Grid, row_height: int) -> str:
    """Count the origins and the differing calls of each labelled row."""
    shown = []
    for row in _labelled_rows(grid, row_height):
        total = int(grid.differing[row].sum())
        if total:
            text = f"{int(grid.differing[row, ORIGIN]):,} / {total:,}"
            shown.append(f'<text x="6" y="{(row + 0.5) * row_height:g}">{text}</text>')
    height = row_height * len(grid.row_labels)
    return f'<svg width="92" height="{height}" aria-hidden="true">{"".join(shown)}</svg>'


def _shown_bands(grid: Grid) -> list[Band]:
    return list(grid.bands) if len(grid.bands) <= 40 else []


def _bands(grid: Grid) -> str:
    names = "".join(
        f'<text x="{_percent((band.start + band.stop) / 2, grid)}" y="10" class="middle">{band.name}</text>'
        for band in _shown_bands(grid)
        if band.stop - band.start > 0.09 * grid.num_columns
    )
    return f'<svg width="100%" height="20" aria-hidden="true">{names}</svg>'


def _axis(grid: Grid) -> str:
    last = grid.num_columns - 1
    ticks = ((0, "start", "0"), (50, "middle", f"{last // 2:,}"), (100, "end", f"{last:,}"))
    marks = "".join(f'<text x="{at}%" y="10" class="{anchor}">{text}</text>' for at, anchor, text in ticks)
    return f'<svg width="100%" height="20" aria-hidden="true">{marks}</svg>'


def _caption(grid: Grid) -> str:
    steps = spans(list(grid.steps))
    shown = f"Steps {steps}, the worst of each call" if len(grid.steps) > 1 else f"Step {steps}"
    cell = ""
    if grid.row_factor * grid.column_factor > 1:
        cell = f" Each cell is the worst of {grid.row_factor:,} ranks x {grid.column_factor:,} calls."
    phases = f" Phases as rank {grid.bands_of} runs them." if grid.bands else ""
    aside = f" Set aside and drawn as matches: {grid.num_aside:,}." if grid.num_aside else ""
    return f"<p><b>{shown}.</b> Calls from left to right in each rank's own order.{cell}{phases}{aside}</p>"


def legend(counts: dict[Verdict, int], has_untraced: bool) -> str:
    """Name every verdict that occurs, with its sign, colour and number of calls."""
    items = [
        f"<li>{swatch(verdict)} {verdict.name.lower()} <b>{count:,}</b></li>"
        for verdict, count in counts.items()
        if count
    ]
    if has_untraced:
        items.append(f"<li>{_box(UNTRACED_COLOUR, '', 'url(#hatch)')} untraced: no call was recorded</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def swatch(verdict: Verdict) -> str:
    """Draw the colour and the sign of a verdict."""
    if verdict == Verdict.ORIGIN:
        return '<svg width="18" height="18" aria-hidden="true"><use href="#diamond" x="9" y="9"/></svg>'
    return _box(VERDICT_COLOURS[verdict], SYMBOLS[verdict])


def _box(colour: Rgba, sign: str, fill: str = "") -> str:
    box = f'<rect width="17" height="17" x=".5" y=".5" fill="{fill or css(colour)}" class="box"/>'
    text = f'<text x="9" y="9" class="middle sign" style="fill:{ink_on(colour)}">{sign}</text>'
    return f'<svg width="18" height="18" aria-hidden="true">{box}{text}</svg>'

"""The map as a still: one strip of pixels per row beside its numbers, and all of it as one PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from detlab.run import spans
from detlab.schema import Verdict
from detlab.views.cells import MapSource
from detlab.views.palette import UNTRACED_COLOUR, css
from detlab.views.png import data_uri, png
from detlab.views.pooling import ORIGIN, UNTRACED, Codes
from detlab.views.tables import Markup
from detlab.views.text import html, shorten
from detlab.widgets.static_twin_tables import plain_table
from detlab.widgets.styles import verdict_mark

MAX_ROWS: Final = 32
"""A still has at most so many strips; each is the worst of its ranks."""
_WIDTH: Final = 900
_ROW_HEIGHT: Final = 18
_RADIUS: Final = 6

Meta = Mapping[str, Any]


def still(source: MapSource, state: Meta) -> tuple[str, bytes]:
    """Draw a map as HTML of plain tags with inline pictures, and as one PNG.

    Parameters
    ----------
    state
        What the map shows; see `detlab.views.cells.MapSource`.
    """
    meta, tile = source.window(state, MAX_ROWS, _WIDTH)
    if not tile.size:
        return "<p>No call was compared, so there is nothing to draw.</p>", b""
    picture = _paint(meta, tile)
    rows = [_row(number, label, meta, picture) for number, label in enumerate(meta["row_labels"])]
    what = "op" if meta["state"]["rows"] == "op" else "rank"
    headings = (what, _along(meta), *(f"{noun}{_of_many(meta)}" for noun in ("origins", "differ")))
    return _caption(meta) + plain_table(headings, rows) + _legend(meta), png(picture)


def _row(number: int, label: str, meta: Meta, picture: Codes) -> tuple[Any, ...]:
    origins, differing = meta["row_counts"][number]
    strip = picture[number * _ROW_HEIGHT : (number + 1) * _ROW_HEIGHT]
    first, second = ("cells with an origin", "cells") if _of_many(meta) else ("origins", "calls")
    says = f"{label}: {origins:,} {first}, {differing:,} {second} differ"
    width, height = strip.shape[1], _ROW_HEIGHT
    fits = f"display:block;width:100%;min-width:240px;max-width:{width}px;height:{height}px"
    image = (
        f'<img alt="{html(says)}" width="{width}" height="{height}" style="{fits}" src="{data_uri(strip)}">'
    )
    return shorten(label, 40), Markup(image), origins, differing


def _of_many(meta: Meta) -> str:
    """Say what is counted where a cell is not one call of one rank; nothing where it is."""
    state = meta["state"]
    is_one = (state["rows"], state["columns"]) == ("rank", "call")
    return "" if is_one and (state["step"] is not None or len(meta["steps"]) == 1) else " (cells)"


def _paint(meta: Meta, tile: Codes) -> Codes:
    """Enlarge the tile to whole pixels, and mark what is rare with a shape of fixed size."""
    wide = max(1, _WIDTH // tile.shape[1])
    picture = np.repeat(np.repeat(tile, _ROW_HEIGHT, axis=0), wide, axis=1)
    picture[_ROW_HEIGHT - 1 :: _ROW_HEIGHT] = UNTRACED  # a gap between rows
    first_row, _, first_column, _ = meta["window"]
    for row, column, code in meta["markers"]:
        y = (row - first_row) // meta["row_factor"] * _ROW_HEIGHT + _ROW_HEIGHT // 2 - 1
        x = int(((column - first_column) / meta["column_factor"] + 0.5) * wide)
        _mark(picture, y, x, code)
    return picture


def _mark(picture: Codes, y: int, x: int, code: int) -> None:
    """Draw a diamond for an origin, a bar of three pixels for anything else."""
    height, width = picture.shape
    if code != ORIGIN:
        picture[max(0, y - _RADIUS) : y + _RADIUS, max(0, x - 1) : x + 2] = code
        return
    ys, xs = np.ogrid[max(0, y - 8) : min(height, y + 9), max(0, x - 8) : min(width, x + 9)]
    distance = np.abs(ys - y) + np.abs(xs - x)
    part = picture[max(0, y - 8) : y + 9, max(0, x - 8) : x + 9]
    part[distance <= _RADIUS + 2] = UNTRACED  # an edge that tells it from what differs around it
    part[distance <= _RADIUS] = ORIGIN


def _caption(meta: Meta) -> str:
    state, parts = meta["state"], []
    if state["columns"] == "step":
        parts.append(f"Steps {spans(meta['steps'])} from left to right.")
    else:
        step = state["step"]
        shown = "Worst over all steps" if step is None else f"Step {step}"
        parts.append(f"{shown}; calls from left to right in each rank's own order.")
    if meta["row_factor"] * meta["column_factor"] > 1:
        rows = "ops" if state["rows"] == "op" else "ranks"
        columns = "steps" if state["columns"] == "step" else "calls"
        parts.append(
            f"Each pixel is the worst of {meta['row_factor']:,} {rows} x {meta['column_factor']:,} {columns}."
        )
    r0, r1, c0, c1 = meta["window"]
    if (r1 - r0, c1 - c0) != (meta["num_rows"], meta["num_columns"]):
        parts.append(
            f"Rows {r0:,} to {r1 - 1:,} of {meta['num_rows']:,}, "
            f"columns {c0:,} to {c1 - 1:,} of {meta['num_columns']:,}."
        )
    if state["hidden"]:
        parts.append(f"Drawn as matches on request: {', '.join(state['hidden'])}.")
    if meta["aside"]:
        parts.append(f"Set aside and drawn as matches: {meta['aside']:,}.")
    return f"<p>{html(' '.join(parts))}</p>"


def _along(meta: Meta) -> str:
    """Name the phases with the columns they take."""
    bands: Sequence[Sequence[Any]] = meta["bands"]
    if not bands:
        return "step" if meta["state"]["columns"] == "step" else "call"
    shown = [f"{name} {start:,}-{stop - 1:,}" for name, start, stop in bands[:8]]
    return f"call: {', '.join(shown)}{', …' if len(bands) > 8 else ''}"


def _legend(meta: Meta) -> str:
    names = [verdict.name.lower() for verdict in Verdict]
    items = [
        f"{verdict_mark(name)}&nbsp;{name}&nbsp;<b>{meta['counts'][name]:,}</b>"
        for name in names
        if meta["counts"][name]
    ]
    if meta["has_untraced"]:
        empty = f"display:inline-block;width:1.3em;border:1px solid #808080;background:{css(UNTRACED_COLOUR)}"
        items.append(f'<span style="{empty}">&nbsp;</span>&nbsp;empty: no call was recorded')
    return f"<p>{' &emsp; '.join(items)}</p>"

"""The map of a comparison as a plotly figure: place by time, the worst verdict in every cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.run import spans
from detlab.schema import Verdict
from detlab.views.figures import new_figure, style
from detlab.views.fill import make_grid
from detlab.views.grid import MAX_MARKERS, Grid
from detlab.views.palette import CODE_COLOURS, HATCH, NEUTRAL, VERDICT_COLOURS, css
from detlab.views.pooling import MATCH
from detlab.views.text import label

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_SITES: Final = 200
"""Hovering names the first site of at most this many cells, the worst first: each has to be looked up."""

_MAX_BANDS: Final = 40
_EMPTY: Final = {"rank": "untraced: no call was recorded", "op": "the op is not called here"}


def heatmap(cmp: Comparison, rows: str = "rank", columns: str = "call", step: int | None = None) -> go.Figure:
    """Draw where and when two runs differ.

    Parameters
    ----------
    rows
        ``rank``, or ``op`` for the worst over ranks by what was called.
    columns
        ``call`` for the position of a call in its step, in the rank's own order; or ``step``.
    step
        A compared step; None: the worst over all of them.

    Returns
    -------
    A figure of at most 500 x 1500 cells, each the worst of its calls. Origins have a marker of fixed
    size; what was not recorded is hatched; what was set aside shows as a match and is counted.

    Raises
    ------
    InputError
        There is no such picture, or the step was not compared.
    """
    grid = make_grid(cmp, rows, columns, step)
    labels = [label(text) for text in grid.row_labels]
    fig = new_figure(
        [_cells(cmp, grid, labels), *_hatching(grid, labels), *_legend(grid), _origins(cmp, grid, labels)]
    )
    names = f"{label(cmp.a.label)} against {label(cmp.b.label)}"
    height = min(880, max(280, 190 + 18 * len(labels)))
    style(fig, f"{cmp.verdict.upper()}: {names}, {rows} by {columns}", label(_subtitle(grid)), height)
    fig.update_layout(barmode="overlay", bargap=0)
    fig.update_yaxes(
        type="category", autorange="reversed", showgrid=False, categoryarray=labels, ticksuffix=" "
    )
    fig.update_xaxes(showgrid=False, zeroline=False, range=[-0.5, max(grid.num_columns, 1) - 0.5])
    if grid.columns == "step":
        every = max(1, -(-len(grid.steps) // 25))
        shown = range(0, len(grid.steps), every)
        fig.update_xaxes(
            title="step", tickvals=list(shown), ticktext=[str(grid.steps[each]) for each in shown]
        )
    else:
        fig.update_xaxes(title="call of the step, in the rank's own order")
        _draw_bands(fig, grid)
    return fig


def _subtitle(grid: Grid) -> str:
    counted = (
        ", ".join(f"{n:,} {verdict.name.lower()}" for verdict, n in grid.counts.items() if n) or "no calls"
    )
    shown = f"step{'s' if len(grid.steps) > 1 else ''} {spans(list(grid.steps))}"
    worst = "worst over " if len(grid.steps) > 1 and grid.columns == "call" else ""
    aside = f"; {grid.num_aside:,} set aside" if grid.num_aside else ""
    return f"{worst}{shown}: {counted}{aside}"


def _cells(cmp: Comparison, grid: Grid, labels: list[str]) -> go.Heatmap:
    import plotly.graph_objects as go

    size = len(CODE_COLOURS)
    scale = [
        [edge / size, css(colour)] for code, colour in enumerate(CODE_COLOURS) for edge in (code, code + 1)
    ]
    pooled = grid.row_factor * grid.column_factor > 1
    worst_of = f"worst of {grid.row_factor:,} x {grid.column_factor:,} calls: " if pooled else ""
    when = "call %{x:,.0f}<br>" if grid.columns == "call" else ""
    return go.Heatmap(
        z=grid.codes,
        x0=(grid.column_factor - 1) / 2,
        dx=grid.column_factor,
        y=labels,
        zmin=-0.5,
        zmax=size - 0.5,
        colorscale=scale,
        showscale=False,
        text=_texts(cmp, grid),
        hovertemplate=f"%{{y}}<br>{when}{worst_of}%{{text}}<extra></extra>",
        name="",
    )


def _texts(cmp: Comparison, grid: Grid) -> NDArray[Any]:
    """Write what hovering says of each cell: the verdict, and for the worst cells their first site."""
    names = [_EMPTY[grid.rows], *(verdict.name.lower() for verdict in Verdict)]
    texts = np.array(names, object)[grid.codes]
    if grid.columns == "step":
        texts = np.array([f"step {step}: " for step in grid.steps], object)[:: grid.column_factor] + texts
    odd = np.argwhere(grid.codes > MATCH)
    order = np.argsort(-grid.codes[odd[:, 0], odd[:, 1]].astype(int), kind="stable")[:MAX_SITES]
    for row, column in odd[order].tolist():
        texts[row, column] += f"<br>first at {label(grid.site_of(cmp, row, column))}"
    return texts


def _hatching(grid: Grid, labels: list[str]) -> list[go.Bar]:
    """Hatch what was not recorded; the cells there are empty."""
    import plotly.graph_objects as go

    if not grid.has_untraced:
        return []
    runs = list(grid.untraced_runs())
    pattern = {"shape": "/", "fgcolor": HATCH, "bgcolor": "rgba(0,0,0,0)", "size": 7, "solidity": 0.2}
    return [
        go.Bar(
            orientation="h",
            y=[labels[row] for row, _, _ in runs],
            base=[start - 0.5 for _, start, _ in runs],
            x=[stop - start for _, start, stop in runs],
            width=1,
            marker={"color": "rgba(0,0,0,0)", "line": {"width": 0}, "pattern": pattern},
            name="untraced",
            hoverinfo="skip",
        )
    ]


def _legend(grid: Grid) -> list[go.Scatter]:
    """Name every verdict that the map holds, with its number of calls."""
    import plotly.graph_objects as go

    return [
        go.Scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 12, "color": css(VERDICT_COLOURS[verdict])},
            name=f"{verdict.name.lower()} {count:,}",
        )
        for verdict, count in grid.counts.items()
        if count and verdict != Verdict.ORIGIN
    ]


def _origins(cmp: Comparison, grid: Grid, labels: list[str]) -> go.Scatter:
    """Mark the cells that hold an origin: a marker has a fixed size, however small the cell."""
    import plotly.graph_objects as go

    rows, columns = grid.origins()
    count = grid.counts[Verdict.ORIGIN]
    limit = f" (first {MAX_MARKERS:,} cells marked)" if len(rows) == MAX_MARKERS else ""
    texts = [
        _marker_text(cmp, grid, *cell) for cell in zip(rows[:MAX_SITES], columns[:MAX_SITES], strict=True)
    ]
    texts += ["origin"] * (len(rows) - len(texts))
    return go.Scatter(
        x=grid.columns_of(rows, columns) // (1 if grid.columns == "call" else grid.column_factor),
        y=[labels[row] for row in rows],
        mode="markers",
        marker={
            "symbol": "diamond",
            "size": 11,
            "color": css(VERDICT_COLOURS[Verdict.ORIGIN]),
            "line": {"width": 1.5, "color": "white"},
        },
        text=texts,
        hovertemplate="%{y}<br>%{text}<extra></extra>",
        name=f"origin {count:,}{limit}",
        showlegend=bool(count),
    )


def _marker_text(cmp: Comparison, grid: Grid, row: int, column: int) -> str:
    return f"origin<br>first at {label(grid.site_of(cmp, row, column))}"


def _draw_bands(fig: go.Figure, grid: Grid) -> None:
    """Name the phases above the map; a phase too narrow for its name has only its boundary."""
    if len(grid.bands) > _MAX_BANDS:
        return
    for band in grid.bands:
        if band.start:
            fig.add_vline(band.start - 0.5, line={"width": 1, "dash": "dot", "color": NEUTRAL})
        if band.stop - band.start > 0.09 * grid.num_columns:
            centre = {"x": (band.start + band.stop - 1) / 2, "yref": "paper", "y": 1, "yanchor": "bottom"}
            fig.add_annotation(text=band.name, showarrow=False, font={"size": 12}, **centre)

"""What every plotly figure has in common: it fits its cell, suits dark pages, and sends nothing anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detlab.views.palette import NEUTRAL

if TYPE_CHECKING:
    import plotly.graph_objects as go

GRID_LINE = "rgba(128,128,128,0.25)"


def new_figure(traces: Sequence[Any] = ()) -> go.Figure:
    """Make a figure that shows itself also where plotly does not run, see `StaticFigure`."""
    from detlab.views.static_figure import StaticFigure

    return StaticFigure(list(traces))


def style(fig: go.Figure, title: str, subtitle: str, height: int) -> go.Figure:
    """Give a figure the common look.

    Parameters
    ----------
    fig
        Changed in place, and given back.
    title, subtitle
        Text that is safe in a figure; see `detlab.views.text.label`.
    height
        In pixels; the width follows the page.
    """
    fig.update_layout(
        title={"text": title, "subtitle": {"text": subtitle}, "x": 0, "xref": "container", "pad": {"l": 12}},
        font={"size": 13, "color": NEUTRAL},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=height,
        autosize=True,
        margin={"l": 12, "r": 12, "t": 96, "b": 12},
        legend={
            "orientation": "h",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "x": 0,
            "itemclick": False,
        },
        hoverlabel={"namelength": -1},
        modebar={
            "remove": ["sendChartToCloud"],
            "bgcolor": "rgba(0,0,0,0)",
        },  # plotly.js would upload the data
    )
    axis: dict[str, Any] = {"gridcolor": GRID_LINE, "zerolinecolor": GRID_LINE, "automargin": True}
    fig.update_xaxes(**axis)
    fig.update_yaxes(**axis)
    return fig

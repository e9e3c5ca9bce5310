"""How many calls diverge in each step, by verdict: the numbers, and bars over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detlab.comparison import Comparison
from detlab.schema import Verdict
from detlab.views.cells import MapSource
from detlab.views.figures import new_figure, style
from detlab.views.palette import VERDICT_COLOURS, css
from detlab.views.text import label

if TYPE_CHECKING:
    import plotly.graph_objects as go


def divergence_counts(cmp: Comparison, source: MapSource | None = None) -> pl.DataFrame:
    """Count the calls of each step by verdict, without what was set aside.

    Parameters
    ----------
    source
        What maps of the comparison are made from, to count nothing again.

    Returns
    -------
    One row per compared step and verdict, in order: ``step``, ``verdict``, ``num_calls``.
    """
    planes = (source or MapSource(cmp)).planes
    counts = [planes.counts([step]).sum(axis=0)[1 : 1 + len(Verdict)] for step in cmp.steps]
    return pl.DataFrame(
        {
            "step": [step for step in cmp.steps for _ in Verdict],
            "verdict": [verdict.name.lower() for _ in cmp.steps for verdict in Verdict],
            "num_calls": np.concatenate([np.empty(0, np.int64), *counts]),
        },
        {"step": pl.Int64, "verdict": pl.String, "num_calls": pl.Int64},
    )


def divergence_by_step(cmp: Comparison) -> go.Figure:
    """Draw how many calls diverge in each step, by verdict."""
    counts = divergence_counts(cmp)
    fig = new_figure()
    for verdict in Verdict:
        here = counts.filter(pl.col("verdict") == verdict.name.lower())
        total = int(here["num_calls"].sum())
        if verdict != Verdict.MATCH and total:
            fig.add_bar(
                x=[str(step) for step in here["step"]],
                y=here["num_calls"].to_list(),
                name=f"{verdict.name.lower()} {total:,}",
                marker={"color": css(VERDICT_COLOURS[verdict]), "pattern": {"shape": PATTERNS[verdict]}},
            )
    names = f"{label(cmp.a.label)} against {label(cmp.b.label)}"
    subtitle = "" if fig.data else "no call diverges in any compared step"
    style(fig, f"Diverging calls by step: {names}", subtitle, 340)
    fig.update_layout(barmode="stack", showlegend=True)
    fig.update_xaxes(title="step", type="category")
    fig.update_yaxes(title="calls")
    return fig


PATTERNS = dict(zip(Verdict, ("", ".", "", "/", "\\", "x", "+", ""), strict=True))
"""A pattern per verdict, so that bars are told apart without their colours."""

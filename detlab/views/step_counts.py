"""How many calls diverge in each step, by verdict: the numbers, and bars over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.schema import Mask, Verdict
from detlab.views.figures import new_figure, style
from detlab.views.palette import VERDICT_COLOURS, css
from detlab.views.text import label
from detlab.views.timeline import timeline

if TYPE_CHECKING:
    import plotly.graph_objects as go


def divergence_counts(cmp: Comparison) -> pl.DataFrame:
    """Count the calls of each step by verdict, without what was set aside.

    Returns
    -------
    One row per compared step and verdict, in order: ``step``, ``verdict``, ``num_calls``.
    """
    counts = np.zeros((len(cmp.steps), len(Verdict)), np.int64)
    row_of = {step: row for row, step in enumerate(cmp.steps)}
    for rank in cmp.ranks:
        for part in timeline(rank):
            here = slice(int(part["position"]), int(part["position"] + part["num_rows"]))
            counts[row_of[int(part["step"])]] += _count(rank.verdicts[here], rank.masks[here])
    return pl.DataFrame(
        {
            "step": [step for step in cmp.steps for _ in Verdict],
            "verdict": [verdict.name.lower() for _ in cmp.steps for verdict in Verdict],
            "num_calls": counts.ravel(),
        },
        {"step": pl.Int64, "verdict": pl.String, "num_calls": pl.Int64},
    )


def _count(verdicts: NDArray[np.uint8], masks: NDArray[np.uint8]) -> NDArray[np.int64]:
    if masks.any():
        verdicts = verdicts[(masks & (Mask.SET_ASIDE | Mask.UNTRACED)) == 0]
    odd = verdicts[verdicts != Verdict.MATCH]
    counts = np.bincount(odd, minlength=len(Verdict))
    counts[Verdict.MATCH] = len(verdicts) - len(odd)
    return counts


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

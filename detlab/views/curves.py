"""Curves over steps as plotly figures: a metric of both runs, and the calls that diverge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import polars as pl

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.run import Run
from detlab.schema import Verdict
from detlab.views.figures import style
from detlab.views.palette import NEUTRAL, VERDICT_COLOURS, css
from detlab.views.series import (
    describe,
    divergence_counts,
    first_difference,
    metric_names,
    metric_pairs,
    shown_rank,
)
from detlab.views.text import label

if TYPE_CHECKING:
    import plotly.graph_objects as go

CURVE_A, CURVE_B = "#3b82c4", "#d9822b"
"""Both runs; readable on light and dark pages."""


@overload
def curves(a: Comparison, b: str) -> go.Figure: ...
@overload
def curves(a: Run, b: Run, name: str) -> go.Figure: ...
def curves(a: Comparison | Run, b: Run | str, name: str = "") -> go.Figure:
    """Draw a metric of two runs over the steps, and beneath it how far they are apart.

    Parameters
    ----------
    a, b, name
        Two runs and the name of a metric; or a comparison and the name.

    Returns
    -------
    A figure that marks the first step whose *bits* differ. Steps that one run lacks are gaps, NaN and
    infinity are crosses, and what differs in bits by nothing that a number shows (0.0 and -0.0) is circled.

    Raises
    ------
    InputError
        Neither run has such a metric.
    """
    run_a, run_b, name = (a.a, a.b, str(b)) if isinstance(a, Comparison) else (a, b, name)
    assert isinstance(run_b, Run)
    pairs = metric_pairs(run_a, run_b, name)
    if not len(pairs):
        known = ", ".join(metric_names(run_a, run_b)) or "none was logged"
        raise InputError(f"Neither run has a metric '{name}'.", f"choose one of: {known}")
    return _figure(pairs, run_a, run_b, name)


def _figure(pairs: pl.DataFrame, a: Run, b: Run, name: str) -> go.Figure:
    from plotly.subplots import make_subplots

    shown, first = shown_rank(pairs), first_difference(pairs)
    fig = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.65, 0.35], vertical_spacing=0.06)
    for trace in (_line(shown, "a", a.label), _line(shown, "b", b.label), _circles(shown), *_crosses(shown)):
        fig.add_trace(trace, row=1, col=1)
    fig.add_trace(_difference(shown), row=2, col=1)
    if first is not None:
        fig.add_vline(first, line={"width": 2, "dash": "dot", "color": css(VERDICT_COLOURS[Verdict.ORIGIN])})
    style(fig, label(name), label(describe(shown)), 460)
    fig.update_yaxes(title=label(name), row=1, col=1)
    fig.update_yaxes(title="|a - b|", type="log", exponentformat="power", row=2, col=1)
    fig.update_xaxes(title="step", row=2, col=1)
    if not any(fig.data[-1].y):
        fig.update_yaxes(showticklabels=False, showgrid=False, row=2, col=1)
        fig.add_annotation(
            text="no difference that a number shows",
            xref="x2 domain",
            x=0.5,
            yref="y2 domain",
            y=0.5,
            showarrow=False,
        )
    return fig


def _line(pairs: pl.DataFrame, side: str, name: str) -> go.Scatter:
    import plotly.graph_objects as go

    dash, colour = ("solid", CURVE_A) if side == "a" else ("dash", CURVE_B)
    return go.Scatter(
        x=pairs["step"].to_list(),
        y=[value if value is not None and value - value == 0 else None for value in pairs[side]],
        mode="lines+markers",
        connectgaps=False,
        line={"dash": dash, "color": colour, "width": 2},
        marker={"size": 5},
        name=f"{side}: {label(name)}",
    )


def _circles(pairs: pl.DataFrame) -> go.Scatter:
    """Circle the values of b whose bits differ from those of a."""
    import plotly.graph_objects as go

    odd = pairs.filter(pl.col("bits_differ") & pl.col("b").is_finite())
    return go.Scatter(
        x=odd["step"].to_list(),
        y=odd["b"].to_list(),
        mode="markers",
        marker={"symbol": "circle-open", "size": 11, "color": css(VERDICT_COLOURS[Verdict.ORIGIN])},
        name="bits differ",
        hovertemplate="step %{x}: the bits differ<extra></extra>",
        showlegend=bool(len(odd)),
    )


def _crosses(pairs: pl.DataFrame) -> list[go.Scatter]:
    """Mark NaN and infinity at the foot of the curve, where they have no place of their own."""
    import plotly.graph_objects as go

    values = pl.concat([pairs["a"], pairs["b"]])
    floor = values.filter(values.is_finite()).min() or 0.0
    traces = []
    for side, symbol in (("a", "x"), ("b", "x-open")):
        odd = pairs.filter(~pl.col(side).is_finite())
        if len(odd):
            marker: dict[str, Any] = {
                "symbol": symbol,
                "size": 10,
                "color": CURVE_A if side == "a" else CURVE_B,
            }
            traces.append(
                go.Scatter(
                    x=odd["step"].to_list(),
                    y=[floor] * len(odd),
                    mode="markers",
                    marker=marker,
                    text=[str(value) for value in odd[side]],
                    hovertemplate=f"step %{{x}}: {side} is %{{text}}<extra></extra>",
                    name=f"{side} is NaN or infinite",
                )
            )
    return traces


def _difference(pairs: pl.DataFrame) -> go.Scatter:
    """Draw |a - b| where it is above zero; zero has no place on a log scale."""
    import plotly.graph_objects as go

    apart = [d if d is not None and 0 < d < float("inf") else None for d in pairs["difference"]]
    return go.Scatter(
        x=pairs["step"].to_list(),
        y=apart,
        mode="lines+markers",
        line={"color": NEUTRAL, "width": 2},
        marker={"size": 5},
        name="|a - b|",
        showlegend=False,
    )


def divergence_by_step(cmp: Comparison) -> go.Figure:
    """Draw how many calls diverge in each step, by verdict."""
    import plotly.graph_objects as go

    counts = divergence_counts(cmp)
    fig = go.Figure()
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

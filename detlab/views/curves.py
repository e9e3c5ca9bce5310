"""Curves over steps as plotly figures: a metric of two runs and how far they are apart, or of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import polars as pl

from detlab.comparison import Comparison
from detlab.comparison.metrics.spikes import Excursion, find_spikes
from detlab.errors import InputError
from detlab.run import Run
from detlab.schema import Verdict
from detlab.views.figures import new_figure, style
from detlab.views.palette import NEUTRAL, VERDICT_COLOURS, css
from detlab.views.series import (
    describe,
    first_difference,
    first_visible,
    metric_names,
    metric_pairs,
    shown_rank,
)
from detlab.views.text import label
from detlab.views.thinning import thin

if TYPE_CHECKING:
    import plotly.graph_objects as go

CURVE_A, CURVE_B = "#3b82c4", "#d9822b"
"""Both runs; readable on light and dark pages."""

_MAX_DOTS: Final = 400
_MAX_CIRCLES: Final = 30
_SHOWN_SPIKES: Final = 20
_SHOWN_RESTARTS: Final = 20


@overload
def curves(a: Comparison, b: str) -> go.Figure: ...
@overload
def curves(a: Run, b: str) -> go.Figure: ...
@overload
def curves(a: Run, b: Run, name: str) -> go.Figure: ...
def curves(a: Comparison | Run, b: Run | str, name: str = "") -> go.Figure:
    """Draw a metric of two runs over the steps, and beneath it how far they are apart; or that of one run.

    Parameters
    ----------
    a, b, name
        Two runs and the name of a metric; or a comparison and the name; or one run and the name.

    Returns
    -------
    A figure that marks the first step at which the numbers differ (by their bits, or as printed) and the
    first at which the curves visibly do, shades spikes, and has a line where a run restarted. Beneath, the
    distance on a log scale, and in units in the last place. Steps that one run lacks are gaps, NaN and
    infinity are crosses, and what differs in bits by nothing that a number shows (0.0 and -0.0) is circled.
    Of a long run each pixel or so keeps its lowest and highest number, so that no spike is lost.

    Raises
    ------
    InputError
        No run has such a metric.
    """
    if isinstance(b, str):
        name = b
        run_a, run_b = (a.a, a.b) if isinstance(a, Comparison) else (a, None)
    else:
        assert isinstance(a, Run)
        run_a, run_b = a, b
    pairs = metric_pairs(run_a, run_b or run_a, name)
    if not len(pairs):
        known = ", ".join(metric_names(run_a, run_b or run_a)) or "none was logged"
        who = "Neither run" if run_b else "The run"
        raise InputError(f"{who} has {'a' if run_b else 'no'} metric '{name}'.", f"choose one of: {known}")
    return _two_runs(pairs, run_a, run_b, name) if run_b else _one_run(pairs, run_a, name)


def _one_run(pairs: pl.DataFrame, run: Run, name: str) -> go.Figure:
    shown = thin(shown_rank(pairs), ["a"])
    fig = new_figure([_line(shown, "a", run.label), *_crosses(shown.with_columns(b="a"))[:1]])
    spikes = [each for each in find_spikes(run.metrics) if each.name == name]
    _shade(fig, spikes, CURVE_A, "")
    _mark_restarts(fig, run, "")
    said = ", ".join(_spike_words(each) for each in spikes[:_SHOWN_SPIKES]) or "no spike"
    style(fig, label(name), label(said), 340)
    fig.update_yaxes(title=label(name))
    fig.update_xaxes(title="step")
    return fig


def _spike_words(spike: Excursion) -> str:
    end = "does not recover" if spike.recovery is None else f"recovers at {spike.recovery}"
    return f"spike from step {spike.onset}, peak at {spike.peak}, {end}"


def _two_runs(pairs: pl.DataFrame, a: Run, b: Run, name: str) -> go.Figure:
    from plotly.subplots import make_subplots

    rank = shown_rank(pairs)
    first, visible = first_difference(rank), first_visible(rank)
    shown = thin(rank, ["a", "b", "difference"])
    fig = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        row_heights=[0.54, 0.23, 0.23],
        vertical_spacing=0.05,
        figure=new_figure(),
    )
    for trace in (_line(shown, "a", a.label), _line(shown, "b", b.label), _circles(shown), *_crosses(shown)):
        fig.add_trace(trace, row=1, col=1)
    for row, (column, what) in enumerate((("difference", "|a - b|"), ("ulp", "ulp")), 2):
        fig.add_trace(trace := _distance(shown, column, what), row=row, col=1)
        fig.update_yaxes(title=what, type="log", row=row, col=1, **_powers(trace.y))
    for side, run, colour in (("a", a, CURVE_A), ("b", b, CURVE_B)):
        _shade(fig, [each for each in find_spikes(run.metrics) if each.name == name], colour, side)
        _mark_restarts(fig, run, side)
    _mark_differences(fig, first, visible, bool(rank.filter("differs")["exact"].all()))
    style(fig, label(name), label(describe(rank)), 560)
    fig.update_yaxes(title=label(name), row=1, col=1)
    fig.update_xaxes(title="step", row=3, col=1)
    if not any(fig.data[-1].y):
        _say_equal(fig)
    return fig


def _say_equal(fig: go.Figure) -> None:
    for number in (2, 3):
        fig.update_yaxes(showticklabels=False, showgrid=False, row=number, col=1)
    fig.add_annotation(
        text="no difference that a number shows",
        xref="x2 domain",
        x=0.5,
        yref="y2 domain",
        y=0.5,
        showarrow=False,
    )


def _mark_differences(fig: go.Figure, first: int | None, visible: int | None, exact: bool) -> None:
    """Draw a line at the first difference, and one where it can be seen."""
    what = "bits differ" if exact else "differs as printed"
    if first is not None:
        red = css(VERDICT_COLOURS[Verdict.ORIGIN])
        fig.add_vline(first, line={"width": 2, "dash": "dot", "color": red})
        _name_line(fig, first, f"{what} from step {first}", 1.0)
    if visible is not None and visible != first:
        fig.add_vline(visible, line={"width": 2, "dash": "dash", "color": NEUTRAL})
        _name_line(fig, visible, f"visible from step {visible}", 1.09)


def _mark_restarts(fig: go.Figure, run: Run, side: str) -> None:
    """Draw a thin line where a run restarted."""
    if run.log is None:
        return
    starts = run.log.segments["first_step"].to_list()[1 : 1 + _SHOWN_RESTARTS]
    for step in starts:
        fig.add_vline(step, line={"width": 1, "color": NEUTRAL}, opacity=0.6)
        _name_line(fig, step, f"restart {side}".rstrip(), 0.5)


def _name_line(fig: go.Figure, step: int, text: str, height: float) -> None:
    """Write beside a line, at a height in the upper panel; above 1 it stands over the panel."""
    place = {"x": step, "xref": "x", "y": height, "yref": "y domain"}
    fig.add_annotation(text=text, showarrow=False, yanchor="bottom", xanchor="left", xshift=3, **place)


def _shade(fig: go.Figure, spikes: Sequence[Excursion], colour: str, side: str) -> None:
    """Shade each spike from its onset to its recovery."""
    for spike in spikes[:_SHOWN_SPIKES]:
        end = spike.last if spike.recovery is None else spike.recovery
        fig.add_vrect(spike.onset, end, fillcolor=colour, opacity=0.15, line_width=0, layer="below")
        text = f"spike {side}".rstrip() + (" (few points)" if spike.has_few_points else "")
        _name_line(fig, end, text, 0.74 if side == "b" else 0.86)


def _line(pairs: pl.DataFrame, side: str, name: str) -> go.Scatter:
    import plotly.graph_objects as go

    dash, colour = ("solid", CURVE_A) if side == "a" else ("dash", CURVE_B)
    return go.Scatter(
        x=pairs["step"].to_list(),
        y=[value if value is not None and value - value == 0 else None for value in pairs[side]],
        mode="lines+markers" if len(pairs) <= _MAX_DOTS else "lines",
        connectgaps=False,
        line={"dash": dash, "color": colour, "width": 2},
        marker={"size": 5},
        name=f"{side}: {label(name)}",
    )


def _circles(pairs: pl.DataFrame) -> go.Scatter:
    """Circle the values of b that differ from those of a."""
    import plotly.graph_objects as go

    odd = pairs.filter(pl.col("differs") & pl.col("b").is_finite())
    exact = bool(odd["exact"].all())
    if len(odd) > _MAX_CIRCLES:  # the panels beneath show the others
        odd = odd.filter((pl.col("difference") == 0) | (pl.int_range(pl.len()) == 0)).head(_MAX_DOTS)
    return go.Scatter(
        x=odd["step"].to_list(),
        y=odd["b"].to_list(),
        mode="markers",
        marker={"symbol": "circle-open", "size": 11, "color": css(VERDICT_COLOURS[Verdict.ORIGIN])},
        name="bits differ" if exact else "differs as printed",
        hovertemplate="step %{x}: it differs<extra></extra>",
        showlegend=bool(len(odd)),
    )


def _crosses(pairs: pl.DataFrame) -> list[go.Scatter]:
    """Mark NaN and infinity at the foot of the curve, where they have no place of their own."""
    import plotly.graph_objects as go

    values = pl.concat([pairs["a"], pairs["b"].alias("a")])
    floor = values.filter(values.is_finite()).min() or 0.0
    traces = []
    for side, symbol, colour in (("a", "x", CURVE_A), ("b", "x-open", CURVE_B)):
        odd = pairs.filter(~pl.col(side).is_finite())
        if len(odd):
            traces.append(
                go.Scatter(
                    x=odd["step"].to_list(),
                    y=[floor] * len(odd),
                    mode="markers",
                    marker={"symbol": symbol, "size": 10, "color": colour},
                    text=[str(value) for value in odd[side]],
                    hovertemplate=f"step %{{x}}: {side} is %{{text}}<extra></extra>",
                    name=f"{side} is NaN or infinite",
                )
            )
    return traces


def _powers(values: Sequence[float | None]) -> dict[str, Any]:
    """Label a log axis at a few powers of ten alone, in full size, so that no label lies over another."""
    given = [math.log10(value) for value in values if value]
    decades = max(given) - min(given) if given else 0
    return {"dtick": max(1, math.ceil(decades / 3)), "exponentformat": "e"}


def _distance(pairs: pl.DataFrame, column: str, what: str) -> go.Scatter:
    """Draw how far apart the runs are where that is above zero; zero has no place on a log scale."""
    import plotly.graph_objects as go

    apart = [d if d is not None and 0 < d < float("inf") else None for d in pairs[column]]
    return go.Scatter(
        x=pairs["step"].to_list(),
        y=apart,
        mode="lines+markers" if len(pairs) <= _MAX_DOTS else "lines",
        line={"color": NEUTRAL, "width": 2},
        marker={"size": 5},
        name=what,
        showlegend=False,
    )

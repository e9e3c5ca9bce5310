"""One metric of two runs as light HTML: curves, distances, and the numbers of the selected step."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import polars as pl

from detlab.schema import Verdict
from detlab.views.chart_svg import Line, Values, line_chart, percent
from detlab.views.palette import LIGHT, NEUTRAL, VERDICT_COLOURS, css
from detlab.views.tables import Markup
from detlab.views.text import html
from detlab.views.thinning import thin
from detlab.widgets.metrics_panel_data import Metrics
from detlab.widgets.static_twin_tables import plain_table

_MAX_PLACES: Final = 60
"""So many places of a curve can be clicked; each selects one step."""
_STILL: Final = (640, 150)
_MAX_STILLS: Final = 2
_MAX_LISTED: Final = 30

NO_METRICS: Final = (
    "Neither run logged step metrics. Call rec.metric(name, value) of dl.Recorder while it records, or "
    "compare the logs of the runs: dl.explore(log_a, log_b)."
)


def metric_html(metrics: Metrics, name: str, step: int | None) -> str:
    """Draw one metric with what is known of the selected step.

    Parameters
    ----------
    step
        The selected step, or None. Every ``data-step`` in the result selects one.
    """
    pairs = metrics.shown(name)
    if not len(pairs):
        return "<p>No step of this metric was logged.</p>"
    first = metrics.first(name)
    columns = [column for column in ("a", "b", "difference", "ulp") if pairs[column].is_not_null().any()]
    drawn = thin(pairs, columns, 300)
    steps = drawn["step"].to_list()
    over = _overlay(pairs, step)
    both = [Line("curve-a", drawn["a"].to_list()), Line("curve-b", drawn["b"].to_list())]
    parts = [
        f"<p>{html(metrics.says(name))}.</p>{_keys(metrics)}",
        line_chart(steps, both, f"{name}: {metrics.says(name)}", first, over=over),
    ]
    for column, what in (("difference", "|a - b|"), ("ulp", "ulp")):
        apart = line_chart(
            steps, [Line("apart", drawn[column].to_list())], f"{what} of {name}", first, log=True, over=over
        )
        parts.append(f'<p class="dl-small">{what}, log scale</p>{apart}' if apart else "")
    return "".join([*parts, _steppers(pairs, first, step), _numbers(pairs, step)])


def _keys(metrics: Metrics) -> str:
    sides = (("a", metrics.a.label, "solid"), ("b", metrics.b.label, "dashed"))
    return (
        '<p class="dl-keys">'
        + " ".join(
            f'<b class="curve-{side}">{side}: {html(label)} ({dash})</b>' for side, label, dash in sides
        )
        + "</p>"
    )


def _overlay(pairs: pl.DataFrame, step: int | None) -> str:
    """Lay a button over each stretch of a chart, and a line at the selected step."""
    steps = pairs["step"].to_list()
    size = -(-len(steps) // _MAX_PLACES)
    stretches = [pairs[start : start + size] for start in range(0, len(steps), size)]
    edges = _edges(stretches, steps)
    buttons = "".join(
        _place(stretch, left, right)
        for stretch, left, right in zip(stretches, edges, edges[1:], strict=False)
    )
    inside = step is not None and steps[0] <= step <= steps[-1]
    line = f'<i class="dl-at" style="left:{percent(step or 0, steps):.4g}%"></i>' if inside else ""
    return f'{line}<span class="dl-places">{buttons}</span>'


def _edges(stretches: Sequence[pl.DataFrame], steps: Sequence[int]) -> list[float]:
    """Give where each stretch begins and the last ends: halfway to its neighbour."""
    pairs = pairwise(stretches)
    middles = [
        (percent(mine["step"][-1], steps) + percent(theirs["step"][0], steps)) / 2 for mine, theirs in pairs
    ]
    return [0.0, *middles, 100.0]


def _place(stretch: pl.DataFrame, left: float, right: float) -> str:
    """Write the button of a stretch: it selects the first step that differs there, else the middle one."""
    odd = stretch.filter("differs")
    row = (odd[:1] if len(odd) else stretch[len(stretch) // 2 : len(stretch) // 2 + 1]).to_dicts()[0]
    return (
        f'<button type="button" tabindex="-1" data-step="{row["step"]}" '
        f'style="left:{left:.4g}%;width:{right - left:.4g}%" title="{html(_row_says(row))}" '
        f'aria-label="step {row["step"]}"></button>'
    )


def _row_says(row: dict[str, Any]) -> str:
    return f"step {row['step']}: a {_number(row['a'])}, b {_number(row['b'])}, {_outcome(row)}"


def _number(value: float | None) -> str:
    return "is absent" if value is None else repr(value)


def _outcome(row: dict[str, Any]) -> str:
    if row["differs"] is None:
        return "not compared"
    if not row["differs"]:
        return "same bits" if row["exact"] else "same as printed"
    return "bits differ" if row["exact"] else "differs as printed"


def _steppers(pairs: pl.DataFrame, first: int | None, step: int | None) -> str:
    """Write buttons that go from one differing step to the next, for those who use no mouse."""
    if first is None:
        return '<p class="dl-small">No step differs in this metric.</p>'
    odd = pairs.filter("differs")["step"]
    before: Any = odd.filter(odd < step).max() if step is not None else None
    after: Any = odd.filter(odd > step).min() if step is not None else None
    places = (("first that differs", first), ("one before", before), ("next one", after))
    return (
        '<p class="dl-steppers">'
        + " ".join(
            f'<button type="button" data-step="{at}">{name}: {at}</button>'
            for name, at in places
            if at is not None
        )
        + "</p>"
    )


def _numbers(pairs: pl.DataFrame, step: int | None) -> str:
    """List both numbers of the selected step with all their digits."""
    if step is None:
        return '<p class="dl-small">Click on a curve to select its step.</p>'
    found = pairs.filter(pl.col("step") == step).to_dicts()
    if not found:
        return f'<p class="dl-small">Step {step} has no number of this metric.</p>'
    row = found[0]
    cells = [
        ("a", Markup(f"<code>{html(_number(row['a']))}</code>")),
        ("b", Markup(f"<code>{html(_number(row['b']))}</code>")),
        ("by its bits" if row["exact"] else "as printed", _outcome(row)),
        ("|a - b|", "-" if row["difference"] is None else f"{row['difference']:.3g}"),
        ("ulp", "-" if row["ulp"] is None else f"{row['ulp']:,.6g}"),
    ]
    return plain_table((f"step {step}", ""), cells)


def metrics_still(metrics: Metrics) -> str:
    """Draw the first metrics as pictures, and say of all where they differ; for readers without a kernel."""
    names = metrics.names
    if not names:
        return f"<p>{NO_METRICS}</p>"
    pictures = "".join(_picture(metrics, name) for name in names[:_MAX_STILLS])
    rows = [(name, metrics.says(name)) for name in names[:_MAX_LISTED]]
    return pictures + plain_table(("metric", "by what its numbers prove"), rows, more=len(names) - len(rows))


def _picture(metrics: Metrics, name: str) -> str:
    pairs = metrics.shown(name)
    values = [value for side in "ab" for value in pairs[side].drop_nulls().to_list() if value - value == 0]
    if not values:
        return ""
    drawn = b64encode(_drawing(pairs, (min(values), max(values)), metrics.first(name)).encode()).decode()
    says = html(f"{name}: {metrics.says(name)}")
    return (
        f"<p><b>{html(name)}</b>: a {html(metrics.a.label)} (solid), b {html(metrics.b.label)} (dashed); "
        f"from {min(values):.6g} to {max(values):.6g}</p>"
        f'<img alt="{says}" width="{_STILL[0]}" height="{_STILL[1]}" style="background:#ffffff" '
        f'src="data:image/svg+xml;base64,{drawn}">'
    )


def _drawing(pairs: pl.DataFrame, ends: tuple[float, float], first: int | None) -> str:
    """Draw both curves as one SVG that needs no style sheet."""
    width, height = _STILL
    shown = thin(pairs, ["a", "b"], 300)
    steps = shown["step"].to_list()
    red, body = css(VERDICT_COLOURS[Verdict.ORIGIN]), ""
    if first is not None:
        x = f"{8 + (width - 16) * percent(first, steps) / 100:.1f}"
        body += f'<path d="M{x} 0V{height - 16}" stroke="{red}" stroke-width="2" stroke-dasharray="3 3"/>'
        body += (
            f'<text x="{min(float(x) + 5, width - 150)}" y="12" fill="{red}">differs from step {first}</text>'
        )
    body += '<g stroke-width="2" stroke-linecap="round" fill="none">'
    for side, colour, dash in (("a", LIGHT.curve_a, ""), ("b", LIGHT.curve_b, ' stroke-dasharray="7 5"')):
        for run in _runs(steps, shown[side].to_list(), ends):
            body += f'<polyline points="{run}" stroke="{colour}"{dash}/>'
    body += f'</g><text x="8" y="{height - 3}" fill="{NEUTRAL}">step {steps[0]}</text>'
    body += (
        f'<text x="{width - 8}" y="{height - 3}" fill="{NEUTRAL}" text-anchor="end">step {steps[-1]}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">{body}</svg>'
    )


def _runs(steps: Sequence[int], values: Values, ends: tuple[float, float]) -> list[str]:
    """Give the points of each stretch of a curve without a gap."""
    low, high = ends
    runs: list[list[str]] = [[]]
    for step, value in zip(steps, values, strict=True):
        if value is None or value - value != 0:
            runs.append([])
            continue
        x = 8 + (_STILL[0] - 16) * percent(step, steps) / 100
        y = 18 + (_STILL[1] - 44) * (0.5 if high == low else (high - value) / (high - low))
        runs[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(run * 2 if len(run) == 1 else run) for run in runs if run]

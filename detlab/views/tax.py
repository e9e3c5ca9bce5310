"""The determinism tax as a figure: what costs more and what less with determinism, largest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from detlab.errors import InputError
from detlab.schema import Verdict
from detlab.views.figures import new_figure, style
from detlab.views.palette import DARK, NEUTRAL, VERDICT_COLOURS, css
from detlab.views.text import label, shorten

if TYPE_CHECKING:
    import plotly.graph_objects as go

_HEAD_PX, _ROW_PX = 190, 26
_WIDEST_NAME: Final = 48

_WORDS: Final = {
    "op": "ops",
    "kernel": "kernels",
    "forward": "modules",
    "backward": "nodes of the backward pass",
    "range": "ranges",
}
"""Tables of places in the order in which one is chosen, and what stands in them."""

_LOOKS: Final = {
    "costs more": (DARK.curve_b, "circle"),
    "only with determinism": (DARK.curve_b, "square"),
    "costs less": (css(VERDICT_COLOURS[Verdict.RECEIVER]), "diamond"),
    "only without determinism": (css(VERDICT_COLOURS[Verdict.RECEIVER]), "square-open"),
}
"""Colour and marker of rows by what they are; on which side of zero they lie tells it as well."""

Row = Mapping[str, Any]


class Checked(Protocol):
    """A result of `detlab.check_tax`."""

    def to_json(self) -> dict[str, Any]:
        """Give the document of ``detlab/schemas/check.json``."""


def tax(result: Checked | Mapping[str, Any], table: str | None = None, *, rows: int = 20) -> go.Figure:
    """Draw what determinism costs: the largest differences of a table, both signs, largest first.

    Parameters
    ----------
    result
        What `detlab.check_tax` gave, or its JSON form.
    table
        ``op``, ``kernel``, ``forward``, ``backward`` or ``range``; by default the first of these that it has.
        Without profiles it has none, and the figure shows the step alone with its interval.
    rows
        How many rows to draw at most.

    Raises
    ------
    InputError
        It is no result of this check, or has no such table.
    """
    body = result if isinstance(result, Mapping) else result.to_json()
    if body.get("check") != "tax" or not body.get("table"):
        raise InputError("This result holds no measured tax.", "give what dl.check_tax gives")
    found = list(dict.fromkeys(row["table"] for row in body["table"] if row["table"] in _WORDS))
    chosen = table or next((name for name in _WORDS if name in found), "")
    if table and table not in found:
        raise InputError(
            f"The result has no table '{table}'.", f"choose one of: {', '.join(found) or 'none'}"
        )
    step = next((row for row in body["table"] if row["table"] == "step"), None)
    title = "What determinism costs"
    if not chosen:
        return _step_alone(step, title)
    all_rows = [row for row in body["table"] if row["table"] == chosen]
    moved = sorted((row for row in all_rows if row["delta_ms"]), key=lambda row: -abs(row["delta_ms"]))[:rows]
    fig = new_figure(_traces(moved))
    said = _subtitle(step, moved, all_rows, chosen)
    style(fig, title, said, _HEAD_PX + _ROW_PX * max(len(moved), 3))
    fig.update_yaxes(autorange="reversed", type="category", categoryarray=_names(moved), showgrid=False)
    fig.update_xaxes(
        title=f"{all_rows[0]['clock']} time with determinism less that without, ms", zeroline=True
    )
    fig.update_layout(showlegend=True)
    return fig


def _subtitle(step: Row | None, shown: Sequence[Row], rows: Sequence[Row], table: str) -> str:
    said = (
        f"{len(shown)} of {len(rows)} {_WORDS[table]}"
        if shown
        else f"no difference between {len(rows)} pairs of {_WORDS[table]}"
    )
    return label(f"{_step_text(step)}; {said}" if step else said)


def _step_text(step: Row) -> str:
    """Say how much longer a step takes, with its interval."""
    text = f"step time {100 * (step['ratio'] - 1):+.1f} %"
    if step["low"] is None:
        return f"{text}, no interval"
    return f"{text} (95 % interval {100 * (step['low'] - 1):+.1f} to {100 * (step['high'] - 1):+.1f} %)"


def _names(rows: Sequence[Row]) -> list[str]:
    """Name rows with their numbers, so that nobody has to measure a line; no two rows are called the same."""
    names, seen = [], Counter[str]()
    for row in rows:
        name = shorten(row["name"], _WIDEST_NAME)
        seen[name] += 1
        name += f" ({seen[name]})" if seen[name] > 1 else ""
        names.append(label(f"{name}: {row['delta_ms']:+,.3g} ms"))
    return names


def _look(row: Row) -> str:
    if row["only_in"]:
        return f"only with{'out' if row['only_in'] == 'default' else ''} determinism"
    return "costs more" if row["delta_ms"] > 0 else "costs less"


def _traces(rows: Sequence[Row]) -> list[Any]:
    """Draw a bar from zero to each difference and a marker at its end, by what it is."""
    import plotly.graph_objects as go

    named = list(zip(_names(rows), rows, strict=True))
    traces = []
    for look, (colour, symbol) in _LOOKS.items():
        mine = [(name, row) for name, row in named if _look(row) == look]
        if not mine:
            continue
        xs = [at for _, row in mine for at in (0.0, row["delta_ms"], None)]
        ys = [name for name, _ in mine for _ in range(3)]
        line = {"color": colour, "width": 12}
        traces.append(go.Scatter(x=xs, y=ys, mode="lines", line=line, showlegend=False, hoverinfo="skip"))
        traces.append(
            go.Scatter(
                x=[row["delta_ms"] for _, row in mine],
                y=[name for name, _ in mine],
                mode="markers",
                name=look,
                marker={
                    "color": colour,
                    "size": 13,
                    "symbol": symbol,
                    "line": {"color": NEUTRAL, "width": 1},
                },
                customdata=[_hover(row) for _, row in mine],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    return traces


def _hover(row: Row) -> str:
    share = f", {100 * row['share']:+.0f} % of the difference" if row["share"] is not None else ""
    calls = f"{row['count_default']:,} and {row['count_deterministic']:,} calls{share}"
    times = f"{row['default_ms']:,.4g} ms without, {row['deterministic_ms']:,.4g} ms with determinism"
    return f"{label(shorten(row['name'], 120))}<br>{times}<br>{calls}"


def _step_alone(step: Row | None, title: str) -> go.Figure:
    """Draw the ratio of step times with its interval, where there is no profile."""
    if step is None:
        raise InputError("This result holds no measured tax.", "give what dl.check_tax gives")
    import plotly.graph_objects as go

    name, at = label(shorten(step["name"], _WIDEST_NAME)), 100 * (step["ratio"] - 1)
    low, high = (at if step[end] is None else 100 * (step[end] - 1) for end in ("low", "high"))
    line = {"color": NEUTRAL, "width": 2}
    fig = new_figure(
        [
            go.Scatter(x=[low, high], y=[name, name], mode="lines", name="95 % interval", line=line),
            go.Scatter(
                x=[at], y=[name], mode="markers", name="ratio of medians",
                marker={"color": NEUTRAL, "size": 12, "symbol": "diamond"},
                hovertemplate="%{x:+.2f} %<extra></extra>",
            ),
        ]
    )  # fmt: skip
    style(fig, title, label(_step_text(step)), 300)
    fig.update_yaxes(type="category")
    fig.update_xaxes(title="longer with determinism, %", zeroline=True, range=_span(low, high))
    return fig


def _span(low: float, high: float) -> list[float]:
    """Span an interval and zero, with some room."""
    low, high = min(low, 0.0), max(high, 0.0)
    room = 0.08 * (high - low) or 1.0
    return [low - room, high + room]

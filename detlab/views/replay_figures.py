"""Figures of a replay: different results by condition with their bounds, and how far results lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from detlab.errors import InputError
from detlab.views.figures import new_figure, style
from detlab.views.palette import NEUTRAL
from detlab.views.text import label, shorten

if TYPE_CHECKING:
    import plotly.graph_objects as go

_HEAD_PX, _ROW_PX = 190, 34
_WIDEST_NAME = 44

Row = tuple[str, Mapping[str, Any]]


class Replay(Protocol):
    """A report of `detlab.kernel.replay`, which this package knows by its JSON form alone."""

    def to_json(self) -> dict[str, Any]:
        """Give the document of ``detlab/schemas/replay.json``."""


def distinct_results(report: Replay | Mapping[str, Any]) -> go.Figure:
    """Draw how many different results each condition gave, and the rate of others than the most frequent.

    The rate has its two-sided 95 % interval; where no other result was seen, it lies below its one-sided
    95 % bound. A condition without a trial says why it has none.

    Parameters
    ----------
    report
        A report of `detlab.kernel.replay`, or its JSON form.
    """
    from plotly.subplots import make_subplots

    body = _body(report)
    rows = list(zip(map(_row_name, body["conditions"]), body["conditions"], strict=True))
    fig = make_subplots(
        1, 2, shared_yaxes=True, horizontal_spacing=0.06, column_widths=[0.45, 0.55], figure=new_figure()
    )
    for column, traces in enumerate((_counts(rows), _rates(rows)), 1):
        for trace in traces:
            fig.add_scatter(**trace, row=1, col=column)
    style(fig, f"Replay of {_call(body)}", _class(body), _HEAD_PX + _ROW_PX * max(len(rows), 1))
    fig.update_yaxes(autorange="reversed", type="category", categoryarray=[name for name, _ in rows])
    fig.update_xaxes(title="distinct results", range=[0, _most(rows)], col=1)
    fig.update_xaxes(title="rate of other results, %", range=[0, 102], col=2)
    return fig


def ulp_histogram(report: Replay | Mapping[str, Any]) -> go.Figure:
    """Draw how many numbers differ from the first result by how many units in the last place, by output.

    Parameters
    ----------
    report
        A report of `detlab.kernel.replay`, or its JSON form.
    """
    body = _body(report)
    outputs = [output for output in body["outputs"] if any(output.get("ulp_histogram", ()))]
    size = max((len(output["ulp_histogram"]) for output in outputs), default=0)
    fig = new_figure()
    for number, output in enumerate(outputs):
        counts = [*output["ulp_histogram"], *[0] * (size - len(output["ulp_histogram"]))]
        fig.add_bar(
            x=[_span(bucket) for bucket in range(size)],
            y=counts,
            name=f"output {output['index']}",
            marker={"color": NEUTRAL, "pattern": {"shape": _PATTERNS[number % len(_PATTERNS)]}},
        )
    largest = max((output["max_ulp"] or 0 for output in outputs), default=0)
    said = f"up to {largest:,} ULP from the first result" if outputs else "no two numbers differ"
    style(fig, f"How far results of {_call(body)} lie apart", said, 380)
    fig.update_layout(showlegend=len(outputs) > 1, barmode="stack")
    fig.update_xaxes(title="distance from the first result, ULP", type="category")
    fig.update_yaxes(title="numbers", rangemode="tozero")
    return fig


_PATTERNS = ("", "/", ".", "x", "\\", "+")
"""Outputs are told apart by pattern, so that colour says nothing here."""


def _body(report: Replay | Mapping[str, Any]) -> Mapping[str, Any]:
    body = report if isinstance(report, Mapping) else report.to_json()
    if "conditions" not in body or "outputs" not in body:
        raise InputError("This report holds no trial.", "give what dl.replay or dl.load_replay gives")
    return body


def _call(body: Mapping[str, Any]) -> str:
    return label(shorten(str(body.get("op", "a call")), 60))


def _class(body: Mapping[str, Any]) -> str:
    site = f" at {shorten(str(body['site']), 70)}" if body.get("site") else ""
    return label(f"{str(body['class']).replace('_', ' ')}{site}")


def _row_name(row: Mapping[str, Any]) -> str:
    """Name a condition with its numbers, so that nobody has to measure a line."""
    name = shorten(row["name"], _WIDEST_NAME)
    found = f"{row['distinct']:,} of {row['trials']:,}" if row["trials"] else row.get("status", "no trial")
    return label(f"{name}: {found}")


def _most(rows: Sequence[Row]) -> float:
    return 1.08 * max((row["distinct"] for _, row in rows), default=1) or 1.0


def _counts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = [(name, 0.0, row["distinct"], row["distinct"]) for name, row in rows if row["trials"]]
    return _spans(found, "distinct results", "circle")


def _rates(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Draw the rate of others where results differ, and how far it reaches where none was seen."""
    seen, held = [], []
    for name, row in rows:
        low, high = row.get("interval_95") or (0.0, 1.0)
        if row["upper_bound_95"] is not None:
            bound = 100 * row["upper_bound_95"]
            held.append((name, 0.0, bound, bound))
        elif row["trials"]:
            seen.append((name, 100 * low, 100 * (1 - row["modal_share"]), 100 * high))
    return [
        *_spans(seen, "rate of other results with its 95 % interval", "diamond"),
        *_spans(held, "none seen: a rate beyond is excluded at 95 %", "square-open"),
    ]


def _spans(found: Sequence[tuple[str, float, float, float]], name: str, symbol: str) -> list[dict[str, Any]]:
    """Draw in each row a line from a low to a high value, and a marker at the value between them."""
    xs: list[float | None] = []
    for _, low, _, high in found:
        xs += [low, high, None]
    names = [row for row, *_ in found]
    line = {"color": NEUTRAL, "width": 2}
    lines = {"x": xs, "y": [row for row in names for _ in range(3)], "mode": "lines", "line": line}
    marks = {"x": [at for _, _, at, _ in found], "y": names, "mode": "markers", "name": name}
    marks["marker"] = {"color": NEUTRAL, "size": 10, "symbol": symbol}
    marks["hovertemplate"] = "%{y}: %{x:.4g}<extra></extra>"
    return [{**lines, "showlegend": False, "hoverinfo": "skip"}, marks] if found else []


def _span(bucket: int) -> str:
    return "1" if bucket == 0 else f"{2**bucket:,}..{2 ** (bucket + 1) - 1:,}"

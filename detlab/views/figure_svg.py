"""A figure of ours as SVG, for pages that run no script: the same marks, drawn without plotly.

It knows what `detlab.views` draws: lines and markers, bars, and cells in the colours of the verdicts, over
axes of numbers, powers and names, in panels that stand one above or beside another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np

from detlab.views.figure_axes import Axis
from detlab.views.figure_text import is_named, plain
from detlab.views.palette import DARK, LIGHT, NEUTRAL, Theme
from detlab.views.png import data_uri
from detlab.views.text import html, shorten

WIDTH: Final = 1000
_HEADER: Final = 96
"""Pixels that plotly leaves for the title, which stands beside this picture and not in it."""
_TOP, _BOTTOM, _RIGHT = 18, 36, 14
_WIDEST_LABEL: Final = 36
_CHARACTER: Final = 6.6
_DASHES: Final = {"dash": "7 5", "dot": "2 4", "dashdot": "7 4 2 4"}


def figure_svg(fig: Any) -> str:
    """Draw a figure as one SVG that stands alone."""
    legend, legend_height = _legend(fig)
    height = max(140, (fig.layout.height or 450) - _HEADER)
    canvas = _Canvas(fig, height)
    body = "".join(map(canvas.panel, canvas.panels))
    body += "".join(map(canvas.shape, fig.layout.shapes)) + "".join(map(canvas.note, fig.layout.annotations))
    total = height + legend_height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" '
        f'height="{total}" font-family="system-ui,Noto Sans,sans-serif" font-size="12">'
        f"<style>{_THEMES}</style><defs>{_DEFS}</defs>"
        f'<rect width="{WIDTH}" height="{total}" class="page"/>{body}'
        f'<g transform="translate(0 {height})">{legend}</g></svg>'
    )


def _theme(theme: Theme) -> str:
    fills = f".page{{fill:{theme.page}}}text{{fill:{theme.muted}}}"
    return f"{fills}.line{{stroke:{theme.line}}}.dark{{stroke:{theme.muted}}}"


_THEMES: Final = f"{_theme(LIGHT)}@media (prefers-color-scheme:dark){{{_theme(DARK)}}}"


class _Canvas:
    """The axes of a figure, fitted to its traces, and what is drawn on them."""

    def __init__(self, fig: Any, height: int) -> None:
        self._fig, self._height = fig, height
        self._traces: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for trace in fig.data:
            self._traces[trace.xaxis or "x", trace.yaxis or "y"].append(trace)
        self.panels = list(self._traces)
        self._axes = {name: Axis(self._layout(name)) for panel in self.panels for name in panel}
        for name in self._axes:
            self._fit(name)
        self._left = self._widest_label()
        for name, axis in self._axes.items():
            axis.start, axis.stop = self._span(name)

    def _layout(self, name: str) -> Any:
        return self._fig.layout[f"{name[0]}axis{name[1:]}"]

    def _fit(self, name: str) -> None:
        """Fit an axis to all traces on it and on those that move with it."""
        leader = self._axes[name].layout.matches or name
        family = {each for each, axis in self._axes.items() if (axis.layout.matches or each) == leader}
        traces = [t for panel, here in self._traces.items() if family & set(panel) for t in here]
        values = [value for trace in traces for value in _values(trace, name[0])]
        grows = [t for t in traces if t.type == "bar" and (t.orientation or "v") == "vh"[name[0] == "x"]]
        if grows and self._fig.layout.barmode == "stack":
            values += _stacked(traces)
        padded = name[0] == "y" or any(trace.type == "scatter" for trace in traces)
        self._axes[name].fit(values, padded=padded, from_zero=bool(grows))

    def _widest_label(self) -> float:
        names = [text for name, axis in self._axes.items() if name[0] == "y" for _, text in axis.ticks()]
        longest = max((len(shorten(text, _WIDEST_LABEL)) for text in names), default=0)
        return 34 + _CHARACTER * longest

    def _span(self, name: str) -> tuple[float, float]:
        low, high = self._layout(name).domain or (0.0, 1.0)
        if name[0] == "x":
            width = WIDTH - self._left - _RIGHT
            return self._left + low * width, self._left + high * width
        inner = self._height - _TOP - _BOTTOM
        return _TOP + (1 - low) * inner, _TOP + (1 - high) * inner

    def panel(self, names: tuple[str, str]) -> str:
        """Draw the axes of a panel and what stands in it."""
        x, y = (self._axes[name] for name in names)
        marks = "".join(_cells(trace, x, y) for trace in self._traces[names] if trace.type == "heatmap")
        marks += "".join(_bars(self._traces[names], x, y))
        marks += "".join(_scatter(trace, x, y) for trace in self._traces[names] if trace.type == "scatter")
        return _frame(x, y) + marks

    def _ref(self, name: str | None, direction: str) -> tuple[Axis | None, bool]:
        """Give the axis that a reference names, and whether it means parts of the axis, not its values."""
        axis, _, domain = (name or direction).partition(" ")
        return self._axes.get(axis), bool(domain)

    def _place(self, value: Any, ref: str | None, direction: str) -> float | None:
        axis, is_part = self._ref(ref, direction)
        if axis is not None:
            return axis.start + (axis.stop - axis.start) * float(value) if is_part else axis.place(value)
        if ref == "paper":
            ends = (self._left, WIDTH - _RIGHT) if direction == "x" else (self._height - _BOTTOM, _TOP)
            return ends[0] + (ends[1] - ends[0]) * float(value)
        return None

    def shape(self, shape: Any) -> str:
        """Draw a line or a rectangle that marks a place."""
        xs = [self._place(value, shape.xref, "x") for value in (shape.x0, shape.x1)]
        ys = [self._place(value, shape.yref, "y") for value in (shape.y0, shape.y1)]
        if None in xs or None in ys:
            return ""
        (x0, x1), (y0, y1) = sorted(xs), sorted(ys)  # type: ignore[type-var]
        if shape.type == "rect":
            size = f'width="{max(x1 - x0, 1):.1f}" height="{y1 - y0:.1f}"'  # type: ignore[operator]
            fill = f'fill="{html(shape.fillcolor or "none")}" opacity="{shape.opacity or 1}"'
            return f'<rect x="{x0:.1f}" y="{y0:.1f}" {size} {fill}/>'
        return (
            f'<line x1="{x0:.1f}" x2="{x1:.1f}" y1="{y0:.1f}" y2="{y1:.1f}" opacity="{shape.opacity or 1}"'
            f"{_stroke(shape.line, NEUTRAL)}/>"
        )

    def note(self, note: Any) -> str:
        """Write the words beside a mark."""
        x, y = self._place(note.x, note.xref, "x"), self._place(note.y, note.yref, "y")
        if x is None or y is None:
            return ""
        shift = (note.xshift or 0, (note.yshift or 0) + {"bottom": 3}.get(note.yanchor, -4))
        anchor = {"left": "start", "right": "end"}.get(note.xanchor, "middle")
        return _text(min(max(x + shift[0], 4), WIDTH - 4), max(y - shift[1], 11), plain(note.text), anchor)


def _values(trace: Any, direction: str) -> list[Any]:
    """List what an axis has to span for a trace."""
    given = trace[direction]
    if trace.type == "heatmap" and given is None:
        start, step = trace[f"{direction}0"] or 0, trace[f"d{direction}"] or 1
        return [start - step / 2, start + step * (np.asarray(trace.z).shape[direction == "x"] - 0.5)]
    values = [] if given is None else list(given)
    if trace.type == "bar" and trace.base is not None and (trace.orientation == "h") == (direction == "x"):
        return []  # bars with a base fill an axis that others span
    return values


def _stacked(traces: Sequence[Any]) -> list[float]:
    heights: dict[Any, float] = defaultdict(float)
    for trace in traces:
        if trace.type == "bar":
            for x, y in zip(trace.x, trace.y, strict=True):
                heights[x] += y or 0
    return list(heights.values())


def _frame(x: Axis, y: Axis) -> str:
    """Draw the axes of a panel with their ticks and titles."""
    foot, head = max(y.start, y.stop), min(y.start, y.stop)
    parts = [f'<path d="M{x.start:.1f} {head:.1f}V{foot:.1f}H{x.stop:.1f}" fill="none" class="line"/>']
    for at, text in y.ticks():
        if y.layout.showgrid is not False:
            parts.append(f'<path d="M{x.start:.1f} {at:.1f}H{x.stop:.1f}" class="line" opacity=".5"/>')
        parts.append(_text(x.start - 6, at + 4, shorten(text, _WIDEST_LABEL), "end"))
    ticks = list(x.ticks())
    every = max(1, -(-len(ticks) * max((len(text) + 2 for _, text in ticks), default=0) // 130))
    parts += [_text(at, foot + 16, shorten(text, _WIDEST_LABEL)) for at, text in ticks[::every]]
    if title := plain(x.layout.title.text):
        parts.append(_text((x.start + x.stop) / 2, foot + 31, shorten(title, 120)))
    if title := plain(y.layout.title.text):
        middle = (head + foot) / 2
        turned = f' transform="rotate(-90 12 {middle:.1f})"'
        parts.append(_text(12, middle + 4, shorten(title, max(8, int((foot - head) / 7))), more=turned))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html(text)}</text>'


def _stroke(line: Any, colour: str) -> str:
    dash = _DASHES.get(line.dash or "")
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f' stroke="{html(line.color or colour)}" stroke-width="{line.width or 2}"{dashes}'


def _scatter(trace: Any, x: Axis, y: Axis) -> str:
    """Draw a line with a gap wherever it has no place, and its markers."""
    mode, xs = trace.mode or "lines", [] if trace.x is None else trace.x
    places = [(x.place(a), y.place(b)) for a, b in zip(xs, [] if trace.y is None else trace.y, strict=True)]
    drawn = ""
    if "lines" in mode:
        for is_gap, run in groupby(places, key=lambda place: None in place):
            if not is_gap:
                points = " ".join(f"{a:.1f},{b:.1f}" for a, b in run)
                drawn += f'<polyline points="{points}" fill="none"{_stroke(trace.line, NEUTRAL)}/>'
    if "markers" in mode:
        draw = _marker(trace)
        drawn += "".join(draw(a, b) for a, b in places if a is not None and b is not None)
    return drawn


def _marker(trace: Any) -> Callable[[float, float], str]:
    """Give what draws the marker of a trace at a place, at its own size whatever is beneath it."""
    marker = trace.marker
    colour = marker.color if isinstance(marker.color, str) else trace.line.color
    symbol, size = str(marker.symbol or "circle"), float(marker.size or 6)
    fill = f'fill="none" stroke="{html(colour or NEUTRAL)}" stroke-width="2"'
    if "open" not in symbol and not symbol.startswith("x"):
        edge = f' stroke="{html(marker.line.color)}" stroke-width="{marker.line.width or 1}"'
        fill = f'fill="{html(colour or NEUTRAL)}"{edge if marker.line.color else ""}'
    half = size / 2
    if symbol.startswith("circle"):
        return lambda x, y: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{half:g}" {fill}/>'
    if symbol.startswith("diamond"):
        path = f"m0 {-half:g}l{half:g} {half:g}l{-half:g} {half:g}l{-half:g} {-half:g}z"
    elif symbol.startswith("x"):
        path = f"m{-half:g} {-half:g}l{size:g} {size:g}m0 {-size:g}l{-size:g} {size:g}"
    else:
        path = f"m{-half:g} {-half:g}h{size:g}v{size:g}h{-size:g}z"
    return lambda x, y: f'<path d="M{x:.1f} {y:.1f}{path}" {fill}/>'


def _cells(trace: Any, x: Axis, y: Axis) -> str:
    """Lay the cells of a map between its axes, one pixel a cell, drawn large."""
    codes = np.asarray(trace.z).astype(np.uint8)
    if not codes.size:
        return ""
    step, first = trace.dx or 1, trace.x0 or 0
    left = x.at(first - step / 2)
    width = x.at(first + step * (codes.shape[1] - 0.5)) - left
    top, foot = sorted((y.at(-0.5), y.at(codes.shape[0] - 0.5)))
    return (
        f'<svg x="{x.start:.1f}" y="{top:.1f}" width="{x.stop - x.start:.1f}" height="{foot - top:.1f}">'
        f'<image href="{data_uri(codes)}" x="{left - x.start:.1f}" width="{width:.1f}" '
        f'height="{foot - top:.1f}" preserveAspectRatio="none" style="image-rendering:pixelated"/></svg>'
    )


def _bars(traces: Sequence[Any], x: Axis, y: Axis) -> Iterator[str]:
    """Draw bars: lying ones between two places of their row, which hatch it, and standing ones on another."""
    base: dict[Any, float] = defaultdict(float)
    for trace in (each for each in traces if each.type == "bar"):
        if trace.orientation == "h":
            yield from _lying(trace, x, y)
            continue
        colour, pattern = html(trace.marker.color or NEUTRAL), _pattern(trace)
        width = 0.8 * abs(x.stop - x.start) / max(len(x.names) or len(set(trace.x)), 1)
        for place, value in zip(trace.x, trace.y, strict=True):
            low, high = base[place], base[place] + (value or 0)
            base[place] = high
            middle, head = x.place(place), y.place(high)
            foot = y.place(low) if low > 0 or not y.is_log else y.start
            if None in (middle, head, foot) or not value:
                continue
            size = f'width="{width:.1f}" height="{max(foot - head, 1):.1f}"'  # type: ignore[operator]
            at = f'x="{middle - width / 2:.1f}" y="{head:.1f}"'  # type: ignore[operator]
            yield f'<rect {at} {size} fill="{colour}"/>'
            if pattern:
                yield f'<rect {at} {size} fill="url(#{pattern})"/>'


def _lying(trace: Any, x: Axis, y: Axis) -> Iterator[str]:
    bases = [0.0] * len(trace.x) if trace.base is None else trace.base
    for name, start, length in zip(trace.y, bases, trace.x, strict=True):
        row = y.number(name)
        if row is None:
            continue
        left, right = (min(max(x.at(at), x.start), x.stop) for at in (start, start + length))
        top, foot = sorted((y.at(row - 0.5), y.at(row + 0.5)))
        size = f'width="{right - left:.1f}" height="{foot - top:.1f}"'
        yield f'<rect x="{left:.1f}" y="{top:.1f}" {size} fill="url(#{_pattern(trace)})"/>'


def _legend(fig: Any) -> tuple[str, int]:
    """Name what is drawn, with a sample of each; give its height as well."""
    shown, x, y = "", 12.0, 14.0
    if fig.layout.showlegend is False:
        return "", 0
    for trace in filter(is_named, fig.data):
        name = shorten(plain(trace.name), 60)
        width = 40 + _CHARACTER * len(name)
        if x + width > WIDTH and x > 12:
            x, y = 12.0, y + 20
        shown += f"{_sample(trace, x, y)}{_text(x + 28, y + 4, name, 'start')}"
        x += width
    return shown, int(y + 12) if shown else 0


def _sample(trace: Any, x: float, y: float) -> str:
    if trace.type == "bar":
        box, colour = f'<rect x="{x + 4:.0f}" y="{y - 6:.0f}" width="12" height="12"', trace.marker.color
        is_empty = not isinstance(colour, str) or colour.startswith("rgba(0,0,0,0")
        pattern = f'{box} fill="url(#{_pattern(trace)})"/>' if _pattern(trace) else ""
        return (
            f'{box} class="line" fill="none"/>' if is_empty else f'{box} fill="{html(colour)}"/>'
        ) + pattern
    mode = trace.mode or "lines"
    line = f'<path d="M{x:.0f} {y:.0f}h22" fill="none"{_stroke(trace.line, NEUTRAL)}/>'
    return (line if "lines" in mode else "") + (_marker(trace)(x + 11, y) if "markers" in mode else "")


_PATTERNS: Final = {
    "/": ("hatch", "M-1 7L7 -1M-1 1L1 -1M5 7L7 5"),
    "\\": ("back", "M-1 -1L7 7M5 -1L7 1M-1 5L1 7"),
    "x": ("cross", "M-1 7L7 -1M-1 -1L7 7"),
    "+": ("plus", "M3 0V6M0 3H6"),
    ".": ("dots", "M2 3h2"),
}
"""What plotly draws on bars so that they are told apart without their colours, and its name here."""

_DEFS: Final = "".join(
    f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
    f'<path d="{path}" class="dark" stroke-width="1.2" fill="none"/></pattern>'
    for name, path in _PATTERNS.values()
)


def _pattern(trace: Any) -> str:
    shape = trace.marker.pattern.shape
    return _PATTERNS[shape][0] if isinstance(shape, str) and shape in _PATTERNS else ""

"""Small charts over steps as inline SVG: text keeps its size, lines follow the width of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detlab.views.text import html

HEIGHT: Final = 120
_MAX_DOTS = 120
_MAX_BARS = 300

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; ``kind`` is the CSS class that gives it its colour and dashes."""

    kind: str
    values: Values


def line_chart(
    steps: Sequence[int],
    lines: Sequence[Line],
    says: str,
    mark: int | None = None,
    log: bool = False,
    over: str = "",
) -> str:
    """Draw values over steps.

    Parameters
    ----------
    steps
        Ascending; the same for every line.
    lines
        None is a gap, and zero too on a log scale; NaN and infinity are crosses at the foot.
    says
        The chart in words.
    mark
        A step to mark with a vertical line.
    log
        Whether the scale is logarithmic.
    over
        Safe HTML to lay over the plot, such as buttons placed by `percent`.
    """
    odd = "".join(_odd(line, steps) for line in lines)
    curves = [Line(line.kind, [_place(value, log) for value in line.values]) for line in lines]
    known = [value for curve in curves for value in curve.values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    spread = (high - low) or 1.0
    xs = [percent(step, steps) for step in steps]
    drawn = odd + "".join(_curve(curve, xs, low if high > low else low - 0.5, spread) for curve in curves)
    if mark is not None:
        at = f"{percent(mark, steps):.4g}%"
        drawn += f'<line x1="{at}" x2="{at}" y1="0" y2="{HEIGHT}" class="mark"/>'
    top, bottom = (10**high, 10**low) if log else (high, low)
    ends = (f"{top:.6g}", f"{bottom:.6g}") if high > low else (f"{top:.6g}",)
    return _framed(drawn, ends, f"step {steps[0]}", f"step {steps[-1]}", says, over)


def percent(step: int, steps: Sequence[int]) -> float:
    """Give where a step stands between the left end of a chart, 0, and its right end, 100."""
    return 100 * (step - steps[0]) / (steps[-1] - steps[0]) if steps[-1] > steps[0] else 50.0


def _odd(line: Line, steps: Sequence[int]) -> str:
    """Write a cross at the foot of the chart for each NaN and infinity."""
    places = (
        s for s, value in zip(steps, line.values, strict=True) if value is not None and value - value != 0
    )
    crosses = [
        f'<text x="{percent(step, steps):.4g}%" y="{HEIGHT - 9}" class="middle odd">&#215;</text>'
        for step in places
    ]
    return f'<g class="{line.kind}">{"".join(crosses[:_MAX_DOTS])}</g>' if crosses else ""


def _place(value: float | None, log: bool) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    if not log:
        return value
    return math.log10(value) if value > 0 else None


def _curve(curve: Line, xs: Sequence[float], low: float, spread: float) -> str:
    """Draw a line with a gap wherever a value is missing, and dots when there is room for them."""
    heights = [None if value is None else 96 - 92 * (value - low) / spread for value in curve.values]
    runs: list[list[str]] = [[]]
    for x, y in zip(xs, heights, strict=True):
        if y is None:
            runs.append([])
        else:
            runs[-1].append(f"{10 * x:.1f},{y:.1f}")
    lines = "".join(f'<polyline points="{" ".join(run)}"/>' for run in runs if len(run) > 1)
    dots = ""
    if len(xs) <= _MAX_DOTS:
        places = ((x, y) for x, y in zip(xs, heights, strict=True) if y is not None)
        dots = "".join(f'<circle cx="{x:.4g}%" cy="{y / 100 * HEIGHT:.1f}" r="3"/>' for x, y in places)
    inner = (
        f'<svg viewBox="0 0 1000 100" width="100%" height="{HEIGHT}" preserveAspectRatio="none">{lines}</svg>'
    )
    return f'<g class="{curve.kind}">{inner}{dots}</g>'


def bar_chart(steps: Sequence[int], layers: Sequence[tuple[str, Sequence[int]]], says: str) -> str:
    """Stack numbers of calls for each step, or for each run of steps when there are many.

    Parameters
    ----------
    layers
        Colour and one number per step; the first layer lies at the bottom.
    """
    size = -(-len(steps) // _MAX_BARS)
    pooled = [
        (colour, [sum(numbers[at : at + size]) for at in range(0, len(steps), size)])
        for colour, numbers in layers
    ]
    heights = [sum(numbers) for numbers in zip(*(numbers for _, numbers in pooled), strict=True)]
    highest, width = max(heights, default=0), 100 / max(len(heights), 1)
    if not highest:
        return ""
    drawn, base = "", [0] * len(heights)
    for colour, numbers in pooled:
        for at, number in enumerate(numbers):
            if number:
                y, height = (
                    (HEIGHT - 4) * (1 - (base[at] + number) / highest) + 4,
                    (HEIGHT - 4) * number / highest,
                )
                drawn += (
                    f'<rect x="{at * width + width * 0.1:.4g}%" width="{width * 0.8:.4g}%" y="{y:.2f}" '
                    f'height="{max(height, 1):.2f}" fill="{colour}" class="bar"/>'
                )
                base[at] += number
    return _framed(drawn, (f"{highest:,}", "0"), f"step {steps[0]}", f"step {steps[-1]}", says)


def _framed(drawn: str, numbers: Sequence[str], left: str, right: str, says: str, over: str = "") -> str:
    """Put numbers at the corners of a chart: they give its scale."""
    scale = "".join(f"<span>{html(number)}</span>" for number in numbers)
    ends = (
        f"<span>{html(left)}</span><span>{html(right)}</span>"
        if left != right
        else f"<span>{html(left)}</span>"
    )
    plot = (
        f'<svg width="100%" height="{HEIGHT}" role="img" aria-label="{html(says)}" class="plot">{drawn}</svg>'
    )
    laid = f'<div class="over">{plot}{over}</div>' if over else plot
    return (
        f'<div class="chart"><div class="scale">{scale}</div>{laid}<span></span>'
        f'<div class="ends">{ends}</div></div>'
    )

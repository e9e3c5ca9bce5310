"""Axes of a plotly figure in plain numbers: what they span, where a value stands, where the ticks are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from detlab.views.figure_text import plain

_PAD: Final = 0.05
_MAX_NAMES: Final = 40
_TICKS: Final = 5


@dataclass
class Axis:
    """One axis, from a place on the picture to another.

    Attributes
    ----------
    layout
        What plotly knows of it.
    start, stop
        Pixels of its lowest and highest value.
    names
        The categories, in order; none of an axis of numbers.
    low, high
        The values at its ends; of a logarithmic axis their powers of ten.
    """

    layout: Any
    start: float = 0.0
    stop: float = 1.0
    names: list[str] = field(default_factory=list)
    low: float = 0.0
    high: float = 1.0

    @property
    def is_log(self) -> bool:
        """Whether places stand for powers."""
        return bool(self.layout.type == "log")

    def fit(self, values: Sequence[Any], *, padded: bool, from_zero: bool) -> None:
        """Span the values that are drawn, or what the layout asks for."""
        if self.layout.type == "category" or any(isinstance(value, str) for value in values):
            self._fit_names(values)
            return
        known = [number for value in values if (number := self.number(value)) is not None]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if from_zero and not self.is_log:
            low, high = min(low, 0.0), max(high, 0.0)
        pad = (high - low) * _PAD if high > low else 0.5
        down, up = (0.0 if from_zero and low == 0 else pad, pad) if padded or high == low else (0.0, 0.0)
        self.low, self.high = map(float, self.layout.range) if self.layout.range else (low - down, high + up)

    def _fit_names(self, values: Sequence[Any]) -> None:
        given = self.layout.categoryarray
        met = [*(() if given is None else given), *(value for value in values if value is not None)]
        self.names = list(dict.fromkeys(map(str, met)))
        self.low, self.high = -0.5, max(len(self.names), 1) - 0.5
        if self.layout.autorange == "reversed":
            self.low, self.high = self.high, self.low

    def number(self, value: Any) -> float | None:
        """Give the number that a value stands at; None for a gap, and for what a logarithm does not show."""
        if isinstance(value, str):
            return float(self.names.index(value)) if value in self.names else None
        if value is None or not math.isfinite(value) or (self.is_log and value <= 0):
            return None
        return math.log10(value) if self.is_log else float(value)

    def place(self, value: Any) -> float | None:
        """Give the pixel of a value; None where it has none."""
        number = self.number(value)
        return None if number is None else self.at(number)

    def at(self, number: float) -> float:
        """Give the pixel of a number of the axis."""
        return self.start + (self.stop - self.start) * (number - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Give the pixels that are named, and their names."""
        if self.layout.showticklabels is False:
            return
        if self.names:
            every = -(-len(self.names) // _MAX_NAMES)
            yield from ((self.at(n), plain(name)) for n, name in list(enumerate(self.names))[::every])
        elif self.layout.tickvals is not None:
            texts = map(plain, self.layout.ticktext or self.layout.tickvals)
            yield from (
                (self.at(float(n)), text) for n, text in zip(self.layout.tickvals, texts, strict=False)
            )
        else:
            yield from (
                (self.at(n), f"1e{n:g}" if self.is_log else f"{n:,.6g}") for n in self._round_numbers()
            )

    def _round_numbers(self) -> Iterable[float]:
        low, high = sorted((self.low, self.high))
        rough = (high - low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next((each * power for each in (1, 2, 5, 10) if each * power >= rough), power)
        step = max(1.0, math.ceil(step)) if self.is_log else step
        first = math.ceil(low / step)
        return [n * step for n in range(first, math.floor(high / step) + 1)]

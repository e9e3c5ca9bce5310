"""The one palette: a colour for each verdict, told apart also without red, green or blue cones.

Colour is never alone: an origin has a marker shape, what is untraced is hatched, and every picture has a
legend with the number of calls. Matches are a translucent grey that recedes on light and dark pages alike.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from detlab.schema import Verdict

Rgba = tuple[int, int, int, int]

VERDICT_COLOURS: Final[dict[Verdict, Rgba]] = {
    Verdict.MATCH: (128, 128, 128, 41),
    Verdict.ABSORBED: (0x2F, 0xA3, 0x7C, 255),
    Verdict.RECEIVER: (0x8F, 0xC1, 0xE3, 255),
    Verdict.ONLY_A: (0x55, 0x55, 0x55, 255),
    Verdict.ONLY_B: (0x24, 0x34, 0x8F, 255),
    Verdict.CHANGED: (0xF0, 0xE4, 0x42, 255),
    Verdict.UNKNOWN: (0xB0, 0x58, 0xE0, 255),
    Verdict.ORIGIN: (0xC5, 0x1B, 0x1B, 255),
}
"""Red, green, blue and opacity, 0 to 255 each."""

UNTRACED_COLOUR: Final[Rgba] = (0, 0, 0, 0)
"""Nothing is painted where no call was recorded, so that the hatching beneath shows."""

CODE_COLOURS: Final = (UNTRACED_COLOUR, *(VERDICT_COLOURS[verdict] for verdict in Verdict))
"""Colours by the codes of `detlab.views.pooling`."""

NEUTRAL: Final = "#808080"
"""Lines and text that stand on light and dark pages alike."""

HATCH: Final = "#8c8c8c"
"""The lines of the hatching of what is untraced."""


class Theme(NamedTuple):
    """Colours of a page; ``text``, ``muted`` and the curves are readable on ``page`` and on ``panel``."""

    page: str
    panel: str
    line: str
    text: str
    muted: str
    curve_a: str
    curve_b: str


LIGHT: Final = Theme("#ffffff", "#f5f6f8", "#d4d8de", "#1b1f24", "#565d66", "#1a4f8a", "#a3480a")
DARK: Final = Theme("#16181c", "#1f2227", "#3a3f47", "#e8eaed", "#a9b0b9", "#8ab8f0", "#f0a868")


def css(colour: Rgba) -> str:
    """Write a colour for CSS, SVG and plotly."""
    red, green, blue, alpha = colour
    return (
        f"#{red:02x}{green:02x}{blue:02x}"
        if alpha == 255
        else f"rgba({red},{green},{blue},{alpha / 255:.2f})"
    )


def ink_on(colour: Rgba) -> str:
    """Choose black or white text, whichever is easier to read on a colour."""
    red, green, blue, alpha = colour
    if alpha < 255:
        return "currentColor"
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 120 else "#fff"

"""The mark of a verdict, which every panel draws the same way."""

from __future__ import annotations

from detlab.schema import Verdict
from detlab.views.map_html import SYMBOLS
from detlab.views.palette import VERDICT_COLOURS, css, ink_on


def verdict_sign(name: str) -> str:
    """Give the sign of a verdict; colour is never alone."""
    return SYMBOLS[Verdict[name.upper()]]


def verdict_mark(name: str) -> str:
    """Draw the sign of a verdict in its colour, with inline styles so that it survives a strict host."""
    colour = VERDICT_COLOURS[Verdict[name.upper()]]
    style = (
        "display:inline-block;min-width:1.3em;text-align:center;border:1px solid #808080;border-radius:3px;"
        f"font-weight:bold;line-height:1.25;background:{css(colour)};color:{ink_on(colour)}"
    )
    return f'<span aria-hidden="true" style="{style}">{verdict_sign(name)}</span>'

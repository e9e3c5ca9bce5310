"""Text from files, made safe for pages and figures: markup stays text, and nothing hides or reorders it."""

from __future__ import annotations

from html import escape

from detlab.text import shorten, visible

__all__ = ["html", "label", "shorten", "visible"]


def html(text: object) -> str:
    """Make text safe inside HTML, also inside an attribute in double quotes."""
    return escape(visible(text), quote=True)


def label(text: object) -> str:
    """Make text safe in a figure: plotly reads some HTML, and formulas between dollar signs."""
    return escape(visible(text), quote=False).replace("$", "&#36;")

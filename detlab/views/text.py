"""Text from files, made safe for pages and figures: markup stays text, and nothing hides or reorders it.

What is redacted (see `detlab.redaction`) is taken out here, too.
"""

from __future__ import annotations

from html import escape

from detlab.redaction import redacted
from detlab.text import bounded, shorten, visible

__all__ = ["html", "label", "shorten", "visible"]


def html(text: object) -> str:
    """Make text safe inside HTML, also inside an attribute in double quotes."""
    return escape(visible(redacted(str(text))), quote=True)


def label(text: object) -> str:
    """Make text safe and short in a figure: plotly reads some HTML, and formulas between dollar signs."""
    return escape(bounded(visible(redacted(str(text)))), quote=False).replace("$", "&#36;")

"""Text from files, made safe for pages and figures: markup stays text, and nothing hides or reorders it.

What is redacted (see `detlab.views.redact`) is taken out here, too.
"""

from __future__ import annotations

from html import escape

from detlab import text as plain
from detlab.text import visible
from detlab.views.redact import redacted

__all__ = ["html", "label", "shorten", "visible"]


def html(text: object) -> str:
    """Make text safe inside HTML, also inside an attribute in double quotes."""
    return escape(visible(redacted(str(text))), quote=True)


def label(text: object) -> str:
    """Make text safe in a figure: plotly reads some HTML, and formulas between dollar signs."""
    return escape(visible(redacted(str(text))), quote=False).replace("$", "&#36;")


def shorten(text: str, size: int = 80) -> str:
    """Cut the middle out of long text; its end says more than its middle."""
    return plain.shorten(redacted(text), size)  # what is cut in two is not found any more

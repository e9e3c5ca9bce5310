"""Text from files, made safe to show: markup stays text, and control characters become visible."""

from __future__ import annotations

import re
from html import escape
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)
"""Control, direction and zero-width characters, which can hide or reorder what stands beside them."""


def visible(text: object) -> str:
    """Write characters that steer a terminal or the reading direction as their escapes."""
    return _UNSEEN.sub(lambda match: repr(match[0])[1:-1], str(text))


def html(text: object) -> str:
    """Make text safe inside HTML, also inside an attribute in double quotes."""
    return escape(visible(text), quote=True)


def label(text: object) -> str:
    """Make text safe in a figure: plotly reads some HTML, and formulas between dollar signs."""
    return escape(visible(text), quote=False).replace("$", "&#36;")


def shorten(text: str, size: int = 80) -> str:
    """Cut the middle out of long text; its end says more than its middle."""
    if len(text) <= size:
        return text
    head = size // 3
    return f"{text[:head]}…{text[len(text) - (size - head - 1) :]}"

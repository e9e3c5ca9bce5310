"""The text of a plotly figure as plain words: its markup is taken out, what was escaped is text again."""

from __future__ import annotations

import re
from html import unescape
from typing import Any, Final

from detlab.text import shorten

_MARKUP: Final = re.compile(r"<[^>]*>")


def plain(text: object) -> str:
    """Give what a person reads of a label."""
    return " ".join(unescape(_MARKUP.sub(" ", str(text or ""))).split())


def words_of(fig: Any) -> str:
    """Say in words what a figure shows: its title, what it found, and what is drawn in it."""
    title = fig.layout.title
    lines = [plain(title.text), plain(title.subtitle.text)]
    names = list(dict.fromkeys(shorten(plain(trace.name)) for trace in fig.data if is_named(trace)))
    lines += [f"shown: {', '.join(names)}"] if names else []
    return "\n".join(line for line in lines if line)


def is_named(trace: Any) -> bool:
    """Say whether a trace stands in the legend."""
    return bool(trace.name) and trace.showlegend is not False and trace.type != "heatmap"

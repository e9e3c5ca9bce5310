"""Cases as Markdown: the summary that GitHub shows on the page of a workflow's run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from detlab.cli.cases import Case
from detlab.text import shorten, visible

_MAX_ROWS: Final = 100
_WIDEST: Final = 300
_SIGNS: Final = {"pass": "✓ pass", "fail": "✗ fail", "error": "! not decided", "skipped": "- skipped"}
_ORDER: Final = ("fail", "error", "pass", "skipped")
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()#+!|~@:-])")
"""What Markdown or GitHub would read as markup, a mention or an address."""


def markdown(title: str, verdict: str, cases: Sequence[Case]) -> str:
    """Write cases as a heading and a table, what failed first; text from files stays text."""
    rows = sorted(cases, key=lambda case: _ORDER.index(case.outcome))
    lines = [
        f"### {_text(title)}: {_text(verdict)}",
        "",
        "| outcome | what | says |",
        "| --- | --- | --- |",
        *(f"| {_SIGNS[row.outcome]} | {_text(row.name)} | {_text(_says(row))} |" for row in rows[:_MAX_ROWS]),
    ]
    more = len(rows) - _MAX_ROWS
    return "\n".join([*lines, *([f"\n… and {more} more."] if more > 0 else []), "", ""])


def _says(case: Case) -> str:
    return "; ".join((case.says, *case.more)) if case.outcome in ("fail", "error") else case.says


def _text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", escape(shorten(visible(text), _WIDEST), quote=False))

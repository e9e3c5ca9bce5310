"""Tables with inline styles alone, for a host that strips style sheets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from detlab.views.tables import cell_html
from detlab.views.text import html

_CELL: Final = "text-align:left;vertical-align:top;padding:2px 14px 2px 0"
_LONG_WORD: Final = re.compile(r"(?<=>)[^<>]*[^<>\s]{17}[^<>]*(?=<)")
_JOINTS: Final = re.compile(r"(?<=[./_,:=-])(?=[^\W\d])")
_NUMBER: Final = "text-align:right;vertical-align:top;padding:2px 14px 2px 0"


def plain_table(
    headings: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", more: int = 0
) -> str:
    """Write a table whose first column names its rows.

    Parameters
    ----------
    headings
        One per column.
    rows
        Cells: text is escaped but for `Markup`, numbers are aligned to the right, None is a hyphen.
    caption
        What the table lists.
    more
        How many rows are left out.
    """
    kinds = [_style(cell) for cell in rows[0]] if rows else [_CELL] * len(headings)
    head = "".join(
        f'<th scope="col" style="{kind}">{html(text)}</th>'
        for text, kind in zip(headings, kinds, strict=True)
    )
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{html(caption)}</caption>' if caption else ""
    rest = f"<p>… and {more:,} more.</p>" if more > 0 else ""
    return _breakable(f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}")


def _row(cells: Sequence[Any]) -> str:
    first = f'<th scope="row" style="{_style(cells[0])};white-space:nowrap">{cell_html(cells[0])}</th>'
    return first + "".join(f'<td style="{_style(cell)}">{cell_html(cell)}</td>' for cell in cells[1:])


def _style(cell: Any) -> str:
    return _NUMBER if isinstance(cell, (int, float)) else _CELL


def inlined(markup: str) -> str:
    """Give tables of `detlab.views.tables` inline styles; in safe HTML no text can hold these tags."""
    for tag in ("caption", 'th scope="row"', 'th scope="col"', "td"):
        markup = markup.replace(f"<{tag}>", f'<{tag} style="{_CELL}">')
    return _breakable(markup)


def _breakable(markup: str) -> str:
    """Let long words break at their joints, but no number.

    A table that scrolls needs the focus, and a host may strip what gives it that, and styles too.
    """
    return _LONG_WORD.sub(lambda match: _JOINTS.sub("<wbr>", match[0]), markup)

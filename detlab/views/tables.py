"""Tables as HTML: a caption, real headings, every cell escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detlab.views.text import html


class Markup(str):
    """HTML that is already safe; every other text is escaped."""

    __slots__ = ()


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", more: int = 0) -> str:
    """Write a table whose first column names its rows.

    Parameters
    ----------
    headings
        One per column.
    rows
        Cells; numbers are aligned to the right, None is written as a hyphen.
    caption
        What the table lists.
    more
        How many rows are left out.
    """
    kinds = [_kind(cell) for cell in rows[0]] if rows else [""] * len(headings)
    named = zip(headings, ["", *kinds[1:]], strict=True)
    head = "".join(f'<th scope="col"{kind}>{html(heading)}</th>' for heading, kind in named)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    title = f"<caption>{html(caption)}</caption>" if caption else ""
    rest = f'<p class="more">… and {more:,} more.</p>' if more > 0 else ""
    name = html(caption or headings[0])
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>{title}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}"
    )


def _row(cells: Sequence[Any]) -> str:
    first = f'<th scope="row">{cell_html(cells[0])}</th>'
    return first + "".join(f"<td{_kind(cell)}>{cell_html(cell)}</td>" for cell in cells[1:])


def _kind(cell: Any) -> str:
    return ' class="number"' if isinstance(cell, (int, float)) else ""


def cell_html(cell: Any) -> str:
    """Write one cell: text is escaped but for `Markup`, None is a hyphen."""
    if isinstance(cell, Markup):
        return cell
    if cell is None:
        return "-"
    return html(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else cell)

"""What people wrote about a comparison, and what they should do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detlab.comparison import Comparison, Finding
from detlab.comparison.journal import Hypothesis, Journal, Note, journal_path
from detlab.views.text import html

_SIGNS: Final = {"open": "?", "confirmed": "✓", "falsified": "✗"}

_MAX_STEPS: Final = 6


def journal_of(cmp: Comparison) -> Journal | None:
    """Give the journal that is kept beside a comparison, if there is one."""
    path = journal_path(cmp)
    return Journal(path, (cmp.a.label, cmp.b.label)) if path.is_file() else None


def notes_section(cmp: Comparison, journal: Journal | None = None) -> str:
    """List hypotheses with what became of them, and notes; an empty text when nobody wrote any."""
    hypotheses = journal.hypotheses if journal else ()
    notes = [*(Note(text, "") for text in cmp.notes), *(journal.notes if journal else ())]
    return _list("Hypotheses", [_hypothesis(each) for each in hypotheses]) + _list(
        "Notes", [_note(each) for each in notes]
    )


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    return f'<h3>{title}</h3><ul class="notes">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def _hypothesis(each: Hypothesis) -> str:
    state = f'<b class="state"><span aria-hidden="true">{_SIGNS[each.state]}</span> {each.state}</b>'
    why = f'<br><span class="why">{html(each.why)}</span>' if each.why else ""
    return f"{state} {html(each.text)}{_when(each.at)}{why}"


def _note(note: Note) -> str:
    about = ""
    if note.site is not None:
        rank = f' data-rank="{note.rank}"' if note.rank is not None else ""
        about = f'<br>rank {note.rank}: <code{rank} data-site="{html(note.site)}">{html(note.site)}</code>'
    return f"{html(note.text)}{_when(note.at)}{about}"


def _when(at: str) -> str:
    return f' <span class="when">{html(at)}</span>' if at else ""


def next_section(cmp: Comparison) -> str:
    """List what to do next, once for findings that ask for the same; nothing is left without a next step."""
    asked: dict[str, list[Finding]] = {}
    for finding in cmp.roots:
        if not finding.accepted:
            asked.setdefault(finding.next, []).append(finding)
    items = [_step(told, found) for told, found in list(asked.items())[:_MAX_STEPS]]
    if len(asked) > _MAX_STEPS:
        items.append(f"<li>what the other {len(asked) - _MAX_STEPS:,} findings ask for</li>")
    if cmp.problems:
        items.append("<li>make whole what is listed under Problems, and compare again</li>")
    if not items:
        return f"<p>{html(_without_finding(cmp))}</p>"
    return f'<ol class="next-steps">{"".join(items)}</ol>'


def _step(told: str, found: Sequence[Finding]) -> str:
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"<li>for {html(found[0].finding_class)}, {html(found[0].op)}{more}: <code>{html(told)}</code></li>"
    )


def _without_finding(cmp: Comparison) -> str:
    if cmp.roots:
        return "Every finding was accepted with a reason; nothing is left to do."
    if cmp.exit_code == 1:
        first = cmp.first.row(0, named=True) if len(cmp.first) else None
        where = f": cmp.sites(step={first['step']}, rank={first['rank']})" if first else ""
        return f"Look at the calls around the first one that differs{where}."
    return (
        "Nothing differs in what was compared. To look further, record what the coverage below leaves out: "
        "more steps, more ranks, or more of the model."
    )

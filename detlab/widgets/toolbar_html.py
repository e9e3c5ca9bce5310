"""Notes and hypotheses as HTML, with buttons to judge a hypothesis where somebody listens."""

from __future__ import annotations

from collections.abc import Sequence

from detlab.comparison.journal import Hypothesis, Journal, Note
from detlab.views.text import html

_SIGNS = {"open": "?", "confirmed": "✓", "falsified": "✗"}


def journal_html(journal: Journal | None, before: Sequence[str] = (), *, live: bool = True) -> str:
    """List the notes and hypotheses of a journal.

    Parameters
    ----------
    before
        Notes that were saved with the comparison itself.
    live
        Whether to write buttons: ``data-hypothesis`` with ``data-state``, and ``data-rank`` with
        ``data-site`` for the call that a note is about.
    """
    kept = journal.hypotheses if journal else ()
    hypotheses = "".join(_hypothesis(n, each, live) for n, each in enumerate(kept))
    notes = "".join(
        f"<li>{html(text)} <span class='dl-small'>saved with the comparison</span></li>" for text in before
    )
    notes += "".join(_note(each, live) for each in (journal.notes if journal else ()))
    said = (f"<p><b>Hypotheses</b></p><ul class='dl-list'>{hypotheses}</ul>" if hypotheses else "") + (
        f"<p><b>Notes</b></p><ul class='dl-list'>{notes}</ul>" if notes else ""
    )
    if said:
        return said
    return "<p class='dl-small'>No notes yet.</p>" if live else ""


def _hypothesis(number: int, hypothesis: Hypothesis, live: bool) -> str:
    state = f"<b>{_SIGNS[hypothesis.state]} {hypothesis.state}</b>"
    why = f" because {html(hypothesis.why)}" if hypothesis.why else ""
    return f"<li>{state}: {html(hypothesis.text)}{why} {_judging(number, hypothesis) if live else ''}</li>"


def _judging(number: int, hypothesis: Hypothesis) -> str:
    """Write the buttons that give a hypothesis another state."""
    verbs = {"confirmed": "confirm", "falsified": "falsify", "open": "reopen"}
    return " ".join(
        f'<button type="button" data-hypothesis="{number}" data-state="{state}" '
        f'aria-label="{verb} hypothesis {number + 1}">{verb}</button>'
        for state, verb in verbs.items()
        if state != hypothesis.state
    )


def _note(note: Note, live: bool) -> str:
    when = f'<span class="dl-small">{html(note.at)}</span>'
    return f"<li>{html(note.text)} {when}{_about(note, live)}</li>"


def _about(note: Note, live: bool) -> str:
    if note.site is None or note.rank is None:
        return ""
    place = f"rank {note.rank}, {html(note.site)}"
    if not live:
        return f"<br><code>{place}</code>"
    return (
        f'<br><button type="button" class="dl-link" data-rank="{note.rank}" data-site="{html(note.site)}">'
        f"{place}</button>"
    )

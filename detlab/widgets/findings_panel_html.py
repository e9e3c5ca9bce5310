"""Findings as HTML: what, where, how strong, why, and what to do next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from detlab.comparison import Comparison, Finding
from detlab.run import spans
from detlab.schema import Verdict
from detlab.text import plural
from detlab.views.text import html, shorten
from detlab.widgets.styles import verdict_mark

MAX_FINDINGS: Final = 50
_MAX_RANKS: Final = 64
"""A finding draws at most this many ranks one by one."""


def findings_html(cmp: Comparison, chosen: Collection[int] = (), *, live: bool = True) -> str:
    """Write every finding as a card.

    Parameters
    ----------
    chosen
        Numbers of the findings that the selected call belongs to.
    live
        Whether to write buttons: ``data-finding``, with ``data-rank`` for one of its ranks.
    """
    shown = cmp.roots[:MAX_FINDINGS]
    if not shown:
        return f"<p>{nothing_found(cmp)}</p>"
    cards = "".join(_card(number, each, number in chosen, live) for number, each in enumerate(shown))
    more = len(cmp.roots) - len(shown)
    rest = f"<p>… and {more:,} more: see cmp.findings.</p>" if more else ""
    return f'<ol class="dl-findings">{cards}</ol>{rest}'


def nothing_found(cmp: Comparison) -> str:
    """Say in one sentence why there is no finding."""
    if cmp.verdict == "diverged":
        return "Calls differ, and where that began was not found: record from an earlier step."
    if cmp.verdict == "match":
        return "No finding: nothing differs in what was compared."
    return "No finding so far: the comparison is incomplete."


def _card(number: int, finding: Finding, is_chosen: bool, live: bool) -> str:
    title = (
        f'<span class="dl-class">{html(finding.finding_class)}</span> '
        f'<code title="{html(finding.op)}">{html(shorten(finding.op, 60))}</code>'
    )
    pressed = "true" if is_chosen else "false"
    head = (
        f'<button type="button" class="dl-title" data-finding="{number}" aria-pressed="{pressed}">'
        f"{title}</button>"
        if live
        else f"<b>{title}</b>"
    )
    verb = "origin" if finding.is_made_here else "enters"
    axis = f"<p>{html(finding.pattern)}</p>" if finding.pattern else ""
    accepted = f"<p>accepted: {html(finding.accepted)}</p>" if finding.accepted else ""
    return (
        f'<li class="dl-finding">{head}<p>{html(_where(finding))}</p>'
        f"<p>{verb} on {html(_ranks(finding.ranks))}, steps {html(spans(list(finding.steps)))}; "
        f"receivers: {html(_ranks(finding.receivers))}</p>{_strip(number, finding, live)}{axis}"
        f"<p>{finding.matched_before:,} calls before it match; {finding.untested_after:,} after it have "
        f"differing inputs: untested, not exonerated. Evidence: {html(finding.evidence)}.</p>{accepted}"
        f"{_why(finding, live)}"
        f'<p><b>Next:</b></p><pre class="dl-copy" tabindex="0">{html(finding.next)}</pre></li>'
    )


def _why(finding: Finding, live: bool) -> str:
    sites = "".join(f"<li><code>{html(site)}</code></li>" for site in finding.sites)
    calls = f"{finding.num_sites:,} {plural('call', finding.num_sites)}, {len(finding.sites)} listed"
    said = f"<p>{html(finding.why)}</p><p>{calls}:</p><ul class='dl-list'>{sites}</ul>"
    return f"<details><summary>why, and where</summary>{said}</details>" if live else said


def _where(finding: Finding) -> str:
    scopes = [shorten(scope, 60) or "no module" for scope in finding.scopes[:3]]
    more = f" and {len(finding.scopes) - 3:,} more scopes" if len(finding.scopes) > 3 else ""
    return f"in {', '.join(scopes)}{more}, {finding.phase.replace('_', ' ')}"


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "none"
    return f"{plural('rank', len(ranks))} {shorten(spans(list(ranks)), 60)}"


def _strip(number: int, finding: Finding, live: bool) -> str:
    """Write the ranks that have the finding, each to jump to; with the sign of an origin where it is one."""
    if not live or len(finding.ranks) > _MAX_RANKS:
        return ""
    mark = f"{verdict_mark(Verdict.ORIGIN.name)} " if finding.is_made_here else ""
    buttons = "".join(
        f'<button type="button" data-finding="{number}" data-rank="{rank}" '
        f'aria-label="first call of this finding on rank {rank}">{mark}{rank}</button>'
        for rank in finding.ranks
    )
    return f'<div class="dl-strip" role="group" aria-label="ranks of this finding">{buttons}</div>'

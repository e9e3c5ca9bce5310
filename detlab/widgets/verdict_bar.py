"""The verdict bar: one sentence to paste into a chat, how sure it is, and what was not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any, Final

from detlab.comparison import Comparison, Finding
from detlab.comparison.text import PROVES, coverage_line, headline
from detlab.run import Run, spans
from detlab.schema import Evidence
from detlab.text import capitalized, plural
from detlab.views.series import metrics_line
from detlab.views.text import html, shorten
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.panel_css import PANEL_CSS
from detlab.widgets.static_twin import StaticTwin, Twin

_MAX_PROBLEMS: Final = 5


class VerdictBar(StaticTwin, HtmlPanel):
    """Says the verdict and what it rests on; what was set aside is shown on request."""

    _css = PANEL_CSS

    def __init__(self, cmp: Comparison) -> None:
        self._cmp, self._shows_aside = cmp, False
        super().__init__(html=verdict_html(cmp))
        self.on_act(self._act)

    def _act(self, data: dict[str, Any]) -> None:
        if "aside" in data:
            self._shows_aside = not self._shows_aside
            self.html = verdict_html(self._cmp, shows_aside=self._shows_aside)

    def twin(self) -> Twin:
        """Give the verdict with all that was set aside."""
        return Twin(verdict_html(self._cmp, shows_aside=None), headline(self._cmp))


def verdict_html(cmp: Comparison, shows_aside: bool | None = False) -> str:
    """Write the verdict.

    Parameters
    ----------
    shows_aside
        Whether to list what was set aside beneath its button; None: without a button.
    """
    word, _, said = headline(cmp).partition(": ")
    covered, _, left_out = coverage_line(cmp).partition(". Left out by request: ")
    parts = [
        f'<p class="dl-sentence"><strong class="dl-word dl-{cmp.verdict}">{html(word)}</strong> '
        f"{html(said)}</p>",
        *(_root(finding) for finding in cmp.roots[:1]),
        f"<p>{html(capitalized(covered.partition('. Evidence:')[0]))}. {_evidence(cmp.evidence)}</p>",
        f"<p>Left out by request: {html(left_out)}.</p>" if left_out else "",
        _not_looked_at(cmp) if cmp.verdict != "diverged" else "",
        _problems(cmp) if cmp.problems else "",
        _aside(cmp, shows_aside),
    ]
    return f'<div class="dl-verdict">{"".join(parts)}</div>'


def _evidence(evidence: Evidence) -> str:
    level, _, meaning = PROVES[evidence].partition(": ")
    return f'Evidence: <b class="dl-evidence dl-{level}">{level}</b> ({meaning}).'


def _root(finding: Finding) -> str:
    ranks = f"{plural('rank', len(finding.ranks))} {shorten(spans(list(finding.ranks)), 60)}"
    axis = f" ({finding.pattern})" if finding.pattern else ""
    begins = "Begins" if finding.is_made_here else "Enters"
    return (
        f"<p>{begins} on {html(ranks)}{html(axis)}; {finding.matched_before:,} calls before it match, "
        f"{finding.untested_after:,} after it have differing inputs: untested, not exonerated.</p>"
    )


def _not_looked_at(cmp: Comparison) -> str:
    """Say what a verdict without a difference does not speak of."""
    recorded, world = cmp.num_ranks, cmp.a.manifest.world_size
    said = []
    if recorded < world:
        said.append(f"{world - recorded:,} of {world:,} ranks")
    said.append(f"every step but {spans(list(cmp.steps))}")
    if cmp.num_without_evidence:
        said.append(f"the outputs of {cmp.num_without_evidence:,} calls, which not both runs recorded")
    said += [f"{item['count']:,} {item['kind']} (set aside)" for item in cmp.ignored]
    if cmp.evidence < Evidence.EXACT:
        said.append(f"what the weakest digest misses ({cmp.evidence.name.lower()})")
    listed = "".join(f"<li>{html(each)}</li>" for each in said)
    beside = metrics_line(cmp.a, cmp.b)
    beside = f"<p>{html(beside)}</p>" if beside else ""
    return f'{beside}<p><b>Not looked at:</b></p><ul class="dl-list">{listed}</ul>'


def _problems(cmp: Comparison) -> str:
    shown = cmp.problems[:_MAX_PROBLEMS]
    listed = "".join(f"<li><b>{html(where)}:</b> {html(what)}</li>" for where, what in shown)
    more = f"<li>… and {len(cmp.problems) - len(shown):,} more</li>" if len(cmp.problems) > len(shown) else ""
    fixes = "".join(f'<pre class="dl-copy" tabindex="0">{html(line)}</pre>' for line in remedies(cmp))
    return (
        f'<p><b>Missing or damaged:</b></p><ul class="dl-list">{listed}{more}</ul>'
        f"<p><b>To get a whole answer:</b></p>{fixes}"
    )


def remedies(cmp: Comparison) -> list[str]:
    """Give what to run so that an incomplete comparison becomes a whole one, as lines to copy."""
    lines = [f"detlab record-info {quote(run.source)}" for run in (cmp.a, cmp.b) if run.problems]
    sides = ((cmp.a, cmp.b), (cmp.b, cmp.a))
    again = [line for run, other in sides for line in _record_again(run, other)]
    if again:
        part = f"ranks={_spans([rank.rank for rank in cmp.ranks])}, steps={_spans(cmp.steps)}"
        again.append(
            f"dl.compare(*(dl.load_run(run, {part}) for run in ({cmp.a.source!r}, {cmp.b.source!r})))"
            "  # a verdict about these alone"
        )
    return lines + again


def _record_again(run: Run, other: Run) -> list[str]:
    """Give the recorder for what a run lacks; where that is both ranks and steps, for all of the other."""
    places = other.by_coordinate
    lost = {
        "steps": sorted(set(other.steps) - set(run.steps)),
        "ranks": sorted(places[each].header.rank for each in places.keys() - run.by_coordinate.keys()),
    }
    if all(lost.values()):
        lost = {"steps": sorted(other.steps), "ranks": sorted(each.header.rank for each in places.values())}
    chosen = [f"{what}={_spans(numbers)}" for what, numbers in lost.items() if numbers]
    return [f"dl.Recorder({run.source!r}, {', '.join(chosen)})"] if chosen else []


def _spans(numbers: Sequence[int]) -> str:
    """Write numbers as a selection that `detlab.load_run` and the recorder read."""
    return repr(spans(numbers).replace(" ", ""))


def _aside(cmp: Comparison, shows: bool | None) -> str:
    if not cmp.ignored:
        counted = f" Counted on request: {html(', '.join(cmp.counted))}." if cmp.counted else ""
        return f"<p>Nothing was set aside.{counted}</p>"
    kinds = ", ".join(f"{item['count']:,} {item['kind']}" for item in cmp.ignored)
    button = (
        ""
        if shows is None
        else f'<button type="button" data-aside="1" aria-expanded="{str(shows).lower()}">'
        f"{'hide' if shows else 'show why'}</button>"
    )
    listed = "".join(
        f"<li>{item['count']:,} {html(item['kind'])}: {html(item['why'])}</li>" for item in cmp.ignored
    )
    again = f"<li>count them: dl.compare(a, b, count={[item['kind'] for item in cmp.ignored]!r})</li>"
    details = f'<ul class="dl-list">{listed}{again}</ul>' if shows in (True, None) else ""
    return f"<p>Set aside: {html(kinds)}. {button}</p>{details}"

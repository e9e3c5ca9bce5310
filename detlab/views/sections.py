"""The sections of the report, in the order in which an engineer asks: what, how sure, where, what next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import polars as pl

from detlab.comparison import Comparison, Finding
from detlab.comparison.places import differing_at
from detlab.comparison.text import PROVES, coverage_line, headline
from detlab.run import Run, spans
from detlab.schema import Site, Verdict
from detlab.text import capitalized, plural
from detlab.views.cells import MapSource
from detlab.views.chart_svg import Line, bar_chart, line_chart
from detlab.views.fill import make_grid
from detlab.views.map_html import map_html, swatch
from detlab.views.palette import VERDICT_COLOURS, css
from detlab.views.path_svg import paths_html
from detlab.views.recipes import compared_recipes
from detlab.views.routes import Routes
from detlab.views.sections_notes import next_section, notes_section
from detlab.views.series import (
    MEASURED,
    describe,
    first_difference,
    measurements,
    metric_names,
    metric_pairs,
    metrics_line,
    shown_rank,
)
from detlab.views.step_counts import divergence_counts
from detlab.views.tables import Markup, table
from detlab.views.text import html, shorten

MAX_ROWS: Final = 50
"""A table of the report has at most this many rows, and says how many it leaves out."""

_MAX_METRICS = 8

_MAX_TRIED: Final = 64
"""A call of a finding is looked for on at most this many of its ranks."""


def banner(cmp: Comparison) -> str:
    """Write the verdict: its word, one sentence, and what it covers."""
    return (
        f'<p class="verdict {cmp.verdict}"><span class="word">{cmp.verdict}</span> '
        f"{html(headline(cmp).partition(': ')[2])}</p><p>{html(capitalized(coverage_line(cmp)))}.</p>"
        f"{_beside_calls(cmp)}"
        f'<dl class="runs">{_run("a", cmp.a)}{_run("b", cmp.b)}</dl>'
    )


def _beside_calls(cmp: Comparison) -> str:
    """Say which metrics differ where no call does: the verdict speaks of calls alone."""
    said = metrics_line(cmp.a, cmp.b) if cmp.verdict != "diverged" else ""
    return f"<p>{html(said)}</p>" if said else ""


def _run(side: str, run: Run) -> str:
    created = f", {html(run.manifest.created)}" if run.manifest.created else ""
    what = f"<b>{html(run.label)}</b> <span>{html(run.source)}{created}</span>"
    return f"<div><dt>{side}</dt><dd>{what}</dd></div>"


def findings(cmp: Comparison) -> str:
    """Write every finding: what, where, how strong, why, and what to do next."""
    shown = cmp.roots[:MAX_ROWS]
    rest = (
        f"<p>… and {len(cmp.roots) - len(shown):,} more findings.</p>" if len(cmp.roots) > len(shown) else ""
    )
    if not shown:
        said = (
            "Calls differ, and where that began was not found"
            if cmp.exit_code == 1
            else "Nothing differs in what was compared"
        )
        return f"<p>{said}.</p>"
    routes = Routes(cmp)
    return (
        "".join(_finding(cmp, finding, paths_html(finding, routes.of(finding))) for finding in shown) + rest
    )


def _finding(cmp: Comparison, finding: Finding, paths: str) -> str:
    scopes = ", ".join(scope or "no module" for scope in finding.scopes[:4])
    more = f" and {len(finding.scopes) - 4} more" if len(finding.scopes) > 4 else ""
    axis = f", {finding.pattern}" if finding.pattern else ""
    accepted = [("accepted", finding.accepted)] if finding.accepted else []
    facts = (
        ("where", f"{scopes}{more}, {finding.phase}"),
        (
            "begins on" if finding.is_made_here else "enters on",
            f"{len(finding.ranks)} of {finding.of_ranks} ranks: {spans(list(finding.ranks))}{axis}",
        ),
        ("receivers", spans(list(finding.receivers))),
        ("steps", spans(list(finding.steps))),
        ("evidence", finding.evidence),
        (
            "before and after",
            f"{finding.matched_before:,} calls before it match; {finding.untested_after:,} after it "
            "have differing inputs: untested, not exonerated",
        ),
        ("why", finding.why),
        *accepted,
    )
    listed = "".join(f"<div><dt>{name}</dt><dd>{html(text)}</dd></div>" for name, text in facts)
    sites = "".join(f"<li>{_site(rank, site, site)}</li>" for rank, site in _placed(cmp, finding))
    return (
        f'<article class="finding"><h3><span class="class">{html(finding.finding_class)}</span> '
        f"<code>{html(finding.op)}</code></h3><dl>{listed}</dl>"
        f'<p class="next"><b>Next:</b> <code>{html(finding.next)}</code></p>{paths}'
        f"<details{' open' if len(finding.sites) == 1 else ''}>"
        f"<summary>{_number(finding.num_sites, 'call')}, "
        f"{_number(len(finding.sites), 'site')} listed</summary><ul>{sites}</ul></details></article>"
    )


def _placed(cmp: Comparison, finding: Finding) -> Iterator[tuple[int | None, str]]:
    """Give the first rank on which each listed call differs in run a; None for one that only run b makes."""
    ranks = {each.rank: each for each in cmp.ranks}
    tried = list(finding.ranks[:_MAX_TRIED])
    for site in finding.sites:
        for rank in tried:
            position = differing_at(ranks[rank], Site.parse(site))
            if position is not None:
                yield rank if ranks[rank].rows_at(position)[0] >= 0 else None, site
                tried = [rank, *(each for each in tried if each != rank)]  # it makes the next one too, mostly
                break
        else:
            yield None, site


def _site(rank: int | None, site: str, name: str) -> str:
    """Name a call so that the living map, which counts the calls of run a, can offer a way to it."""
    place = "" if rank is None else f'data-rank="{rank}" data-site="{html(site)}" '
    return f'<code {place}title="{html(site)}">{_breakable(name)}</code>'


def _breakable(name: str) -> str:
    """Let a dotted name break into lines at its dots."""
    return html(name).replace(".", ".<wbr>")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {plural(noun, count)}"


def picture(cmp: Comparison, source: MapSource | None = None) -> str:
    """Draw the map of ranks by calls: the first step that differs, then the worst over all steps."""
    source = source or MapSource(cmp)
    firsts = cmp.first["step"].to_list()
    steps = [min(firsts), None] if firsts and len(cmp.steps) > 1 else [None]
    return "".join(map_html(cmp, make_grid(cmp, step=step, source=source)) for step in steps)


def firsts(cmp: Comparison) -> str:
    """List the first divergence and the first origin of each rank."""
    if not len(cmp.first):
        return ""
    note = "<p>One row per rank, in that rank's own order: no order between ranks is claimed.</p>"
    return (
        note
        + _calls(cmp.first, "First divergence of each rank")
        + _calls(cmp.first_origin, "First origin of each rank")
    )


def _calls(frame: pl.DataFrame, caption: str) -> str:
    if not len(frame):
        return f"<p>{caption}: there is none.</p>"
    headings = ("rank", "place", "verdict", "step", "phase", "op", "scope", "order in a", "order in b")
    rows = [
        (
            str(row["rank"]),
            Markup(f'<span class="nowrap">{html(row["coordinate"])}</span>'),
            _verdict(row["verdict"]),
            row["step"],
            Markup(f'<span class="nowrap">{html(row["phase"])}</span>'),
            Markup(_site(None if row["seq_a"] is None else row["rank"], row["site"], shorten(row["op"], 60))),
            Markup(f'<span class="scope">{_breakable(shorten(row["scope"], 60) or "no module")}</span>'),
            row["seq_a"],
            row["seq_b"],
        )
        for row in frame.head(MAX_ROWS).to_dicts()
    ]
    return table(headings, rows, caption, len(frame) - len(rows))


def _verdict(name: str) -> Markup:
    return Markup(f'<span class="nowrap">{swatch(Verdict[name.upper()])} {name}</span>')


def by_step(cmp: Comparison, source: MapSource | None = None) -> str:
    """Draw and list how many calls diverge in each step."""
    counts = divergence_counts(cmp, source).pivot(
        on="verdict", index="step", values="num_calls", maintain_order=True
    )
    present = [v for v in Verdict if v != Verdict.MATCH and counts[v.name.lower()].sum()]
    if not present:
        return ""
    layers = [(css(VERDICT_COLOURS[v]), counts[v.name.lower()].to_list()) for v in present]
    says = "Diverging calls by step; the table below gives the numbers."
    names = [verdict.name.lower() for verdict in (*present, Verdict.MATCH)]
    rows = [(str(row["step"]), *(row[name] for name in names)) for row in counts.head(MAX_ROWS).to_dicts()]
    keys = "".join(f"<li>{swatch(verdict)} {verdict.name.lower()}</li>" for verdict in present)
    return (
        f'{bar_chart(counts["step"].to_list(), layers, says)}<ul class="legend">{keys}</ul>'
        f"{table(('step', *names), rows, 'Calls by step and verdict', len(counts) - len(rows))}"
    )


def metrics(cmp: Comparison) -> str:
    """Draw the metrics that both runs logged, those that differ first before others, measurements last."""
    measured = measurements(cmp.a, cmp.b)
    compared = [(name, metric_pairs(cmp.a, cmp.b, name)) for name in metric_names(cmp.a, cmp.b)]
    order = {name: None if name in measured else first_difference(pairs) for name, pairs in compared}
    compared.sort(
        key=lambda item: (item[0] in measured, order[item[0]] is None, order[item[0]] or 0, item[0])
    )
    if not compared:
        return ""
    said = [(name, shown_rank(pairs), name in measured) for name, pairs in compared]
    rows = [
        (name, MEASURED if is_measured else describe(pairs)) for name, pairs, is_measured in said[:MAX_ROWS]
    ]
    lines = (("a", "solid"), ("b", "dashed"))
    items = "".join(f'<li><b class="curve-{side}">{side}: {dash}</b></li>' for side, dash in lines)
    keys = f'<ul class="legend">{items}</ul>'
    drawn = "".join(_metric(*each) for each in said[:_MAX_METRICS])
    heads = ("metric", "by what its numbers prove")
    return keys + drawn + table(heads, rows, "Metrics of both runs", len(compared) - len(rows))


def _metric(name: str, pairs: pl.DataFrame, is_measured: bool) -> str:
    steps, first = pairs["step"].to_list(), None if is_measured else first_difference(pairs)
    says = MEASURED if is_measured else describe(pairs)
    lines = [Line("curve-a", pairs["a"].to_list()), Line("curve-b", pairs["b"].to_list())]
    values = line_chart(steps, lines, f"{name}: {says}", first)
    apart = line_chart(
        steps, [Line("apart", pairs["difference"].to_list())], f"|a - b| of {name}", first, log=True
    )
    beneath = f"<p>|a - b|, log scale</p>{apart}" if apart else ""
    caption = f"<figcaption>{html(name)}: {html(says)}</figcaption>"
    return f'<figure class="metric">{caption}{values}{beneath}</figure>'


def coverage(cmp: Comparison) -> str:
    """Say what was looked at, and with what evidence."""
    covered = cmp.coverage
    rows = [
        ("ranks", f"{covered['ranks']:,} of {covered['of_ranks']:,}"),
        ("steps", spans(list(cmp.steps))),
        ("calls compared", f"{covered['events']:,}"),
        ("calls without output evidence", f"{covered['without_evidence']:,}: they never count as identical"),
        ("places traced in one run only", ", ".join(covered["untraced"][:MAX_ROWS]) or "none"),
        ("complete", "yes" if cmp.complete else "no, see the problems"),
        ("evidence", PROVES[cmp.evidence]),
    ]
    return table(("what", "covered"), rows, "What was compared")


def aside(cmp: Comparison) -> str:
    """List what was set aside and why."""
    asked = f"<p>Counted on request: {', '.join(cmp.counted)}.</p>" if cmp.counted else ""
    if not cmp.ignored:
        return f"{asked}<p>Nothing was set aside.</p>"
    rows = [(item["kind"], item["count"], item["why"]) for item in cmp.ignored]
    return asked + table(("kind", "calls", "why"), rows, "What was set aside and is not counted")


def structure(cmp: Comparison) -> str:
    """Say how the programs of the runs differ."""
    found = cmp.structure
    numbers = {
        "only in a": found.only_a,
        "only in b": found.only_b,
        "reordered": found.reordered,
        "in a recomputation": found.recomputed,
    }
    if not any(numbers.values()):
        return "<p>Both runs make the same calls in the same order.</p>"
    details = pl.DataFrame(list(found.details), cmp.first.schema) if found.details else cmp.first.clear()
    listed = _calls(details, "The first calls that only one run makes") if found.details else ""
    return table(("difference", "calls"), list(numbers.items()), "How the programs differ") + listed


def problems(cmp: Comparison) -> str:
    """List what is missing or damaged."""
    if not cmp.problems:
        return "<p>None: both traces are whole.</p>"
    rows = cmp.problems[:MAX_ROWS]
    return table(("where", "what"), rows, "Missing or damaged", len(cmp.problems) - len(rows))


def recipes(cmp: Comparison) -> str:
    """Show where manifests and recipes differ, what that is worth, and the versions of both."""
    found = compared_recipes(cmp)
    said = "<p>The recorded manifests and recipes do not differ.</p>"
    if found.differing:
        rows = [
            (each.name, each.group, shorten(each.a, 200), shorten(each.b, 200)) for each in found.differing
        ]
        headings = ("setting", "the difference", "a", "b")
        said = table(headings, rows[:MAX_ROWS], "Where manifests and recipes differ", len(rows) - MAX_ROWS)
    if found.is_empty:
        said = "<p>No recipe was recorded.</p>"
    alike = [(name, shorten(value, 200)) for name, value in found.versions[:MAX_ROWS]]
    return said + (table(("version", "both"), alike, "Versions that are the same") if alike else "")


SECTIONS: Final[tuple[tuple[str, str, Callable[[Comparison], str]], ...]] = (
    ("findings", "Findings", findings),
    ("next", "What to do next", next_section),
    ("notes", "Notes and hypotheses", notes_section),
    ("map", "Map of ranks and calls", picture),
    ("firsts", "Where each rank first differs", firsts),
    ("steps", "Divergence by step", by_step),
    ("metrics", "Metrics", metrics),
    ("coverage", "Coverage", coverage),
    ("aside", "Set aside", aside),
    ("structure", "Structure", structure),
    ("problems", "Problems", problems),
    ("recipes", "Manifests and recipes", recipes),
)
"""Anchor, title and writer of each section; one that has nothing to say gives an empty text."""

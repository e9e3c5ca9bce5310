"""The comparison as one screen of text: the verdict first, what it rests on, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from os.path import exists
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

from detlab.comparison.findings import Finding
from detlab.run import Run, left_out, spans
from detlab.schema import Evidence, Verdict
from detlab.text import bounded, plural, visible

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

_WIDEST = 100
_MAX_FINDINGS = 5

PROVES = {
    Evidence.EXACT: "exact: a digest over every byte",
    Evidence.PARTIAL: "partial: a digest over a sample of the bytes",
    Evidence.SCREEN: "screen: a digest that misses permutations or pairs",
    Evidence.STATISTIC: "statistic: norms or sums, which prove little either way",
    Evidence.PRINTED: "printed: rounded numbers",
    Evidence.STRUCTURE: "structure: only what was called, no values",
    Evidence.NONE: "none: no output was recorded",
}
"""What equality means at each level of evidence."""


def summary(cmp: Comparison) -> str:
    """Write the comparison on one screen."""
    lines = [headline(cmp), ""]
    for finding in cmp.roots[:_MAX_FINDINGS]:
        lines += [*finding_lines(finding), ""]
    if len(cmp.roots) > _MAX_FINDINGS:
        lines += [f"… and {len(cmp.roots) - _MAX_FINDINGS} more: see findings, or the report", ""]
    lines += [coverage_line(cmp), counts_line(cmp)]
    lines += [f"set aside: {item['count']:,} {item['kind']} ({item['why']})" for item in cmp.ignored]
    lines += [f"counted on request: {', '.join(cmp.counted)}"] if cmp.counted else []
    lines += [f"problem: {where}: {what}" for where, what in cmp.problems]
    lines += [f"note: {note}" for note in cmp.notes]
    return "\n".join(map(wrapped, lines))


def wrapped(line: str) -> str:
    """Wrap a line of prose; what is to be pasted stays on one line, and no control character gets through."""
    line = bounded(visible(line))
    if line.startswith("  next:"):
        return line
    width = min(_WIDEST, max(60, get_terminal_size((_WIDEST, 24)).columns))
    return fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def as_html(said: object) -> str:
    """Write the text of an object for a notebook, where a page may set a font that breaks its columns."""
    return f'<pre style="font-family: monospace">{escape(repr(said))}</pre>'


def headline(cmp: Comparison) -> str:
    """Say the verdict in one sentence that can be pasted into a chat."""
    names = f"{cmp.a.label} and {cmp.b.label}"
    if cmp.verdict == "match":
        where = "the ranks and steps that were asked for" if cmp.is_part else "what both recorded"
        if _is_one_run(cmp):
            return f"MATCH: {cmp.a.label} was compared with itself: nothing differs in {where}."
        return f"MATCH: nothing differs between {names} in {where}."
    if cmp.verdict == "incomplete":
        return f"INCOMPLETE: nothing differs between {names}, but not all of it could be compared."
    if not cmp.roots:
        return f"DIVERGED: {names} differ."
    finding = cmp.roots[0]
    others = len(cmp.roots) - 1
    more = f"; {others} more {plural('finding', others)}" if others else ""
    return (
        f"DIVERGED: {finding.finding_class}: {finding.op} in {_scopes(finding)} ({finding.phase}), on "
        f"{len(finding.ranks)} of {finding.of_ranks} ranks, since step {finding.steps[0]}{more}."
    )


def _is_one_run(cmp: Comparison) -> bool:
    """Say whether one place was given twice, which is soon typed and always matches."""
    places = (cmp.a.source, cmp.b.source)
    return all(map(exists, places)) and Path(places[0]).samefile(places[1])


def _scopes(finding: Finding) -> str:
    shown = [scope or "no module" for scope in finding.scopes]
    return shown[0] if len(shown) == 1 else f"{shown[0]} and {len(shown) - 1} more scopes"


def finding_lines(finding: Finding) -> list[str]:
    """Write one finding: what, where, how strong, why, next."""
    axis = f" ({finding.pattern})" if finding.pattern else ""
    begins = "origin" if finding.is_made_here else "enters"
    lines = [
        f"{finding.finding_class}: {finding.op} in {_scopes(finding)}, {finding.phase}",
        f"  {begins} on {_ranks(finding.ranks)}{axis}; "
        f"receivers: {_ranks(finding.receivers)}; steps {spans(list(finding.steps))}",
        f"  at {finding.num_sites} {plural('call', finding.num_sites)}, first {finding.sites[0]}",
        f"  {finding.matched_before:,} calls before it match; {finding.untested_after:,} after it have "
        f"differing inputs: untested, not exonerated. Evidence: {finding.evidence}",
        f"  why: {finding.why}",
        f"  next: {finding.next}",
    ]
    return [*lines, f"  accepted: {finding.accepted}"] if finding.accepted else lines


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "none"
    return f"{plural('rank', len(ranks))} {spans(list(ranks))}"


def coverage_line(cmp: Comparison) -> str:
    """Say what was looked at, and with what evidence."""
    untraced = f", {len(cmp.untraced)} places traced in one run only" if cmp.untraced else ""
    return (
        f"compared {cmp.num_ranks} of {cmp.a.manifest.world_size} ranks, steps {spans(list(cmp.steps))}, "
        f"{cmp.num_calls:,} calls, {cmp.num_without_evidence:,} of them without output evidence{untraced}. "
        f"Evidence: {PROVES[cmp.evidence]}{left_out_text((cmp.a, cmp.b))}"
    )


def left_out_text(runs: Sequence[Run]) -> str:
    """Say what nobody looked at because it was not asked for; nothing where all was."""
    if all(run.subset.takes_all for run in runs):
        return ""
    parts = [
        f"{what if len(numbers) > 1 else what.removesuffix('s')} {spans(numbers)}"
        for what, numbers in left_out(runs).items()
        if numbers
    ]
    return f". Left out by request: {' and '.join(parts) or 'nothing'}"


def counts_line(cmp: Comparison) -> str:
    """Count the calls by verdict."""
    unproven = min(cmp.num_without_evidence, cmp.counts[Verdict.MATCH])
    counts = {**cmp.counts, Verdict.MATCH: cmp.counts[Verdict.MATCH] - unproven}
    parts = [f"{counts[verdict]:,} {verdict.name.lower()}" for verdict in Verdict if counts[verdict]]
    parts += [f"{unproven:,} without evidence of their output"] if unproven else []
    reordered = f", {cmp.structure.reordered:,} reordered" if cmp.structure.reordered else ""
    return f"calls: {', '.join(parts) or 'none'}{reordered}"

"""The comparison of many runs as one screen of text."""

from __future__ import annotations

import re
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from detlab.comparison.facts import host_of, note_of
from detlab.comparison.metrics.coverage import where
from detlab.comparison.text import PROVES, left_out_text, wrapped
from detlab.run import spans
from detlab.schema import Evidence

if TYPE_CHECKING:
    from detlab.comparison.many import ManyComparison

_MAX_CLASSES = 8
_MAX_FACTS = 5
_MAX_FINDINGS = 5
_MAX_PROBLEMS = 5

_TOPOLOGY: Final = re.compile(r"(?i)rack|switch|topolog|\bpod|leaf|spine")
"""Names of facts that say how machines are wired."""

CONCLUSIONS: Final = {
    "equal": "All runs are equal in everything that all of them recorded.",
    "run_to_run": "run to run: runs that state the same, hosts included, are in different classes.",
    "environment": "environment: every class repeats itself: {num} reproducible classes; they differ by "
    "{facts}. Not run-to-run nondeterminism, as far as so few runs can show.",
    "recipe": "recipe: every class repeats itself, and what separates them are arguments or settings of "
    "the recorder: the runs were not asked for the same.",
}


def summary(many: ManyComparison) -> str:
    """Write the comparison on one screen."""
    lines = [headline(many), conclusion_line(many), ""]
    lines += [*_split_lines(many), *_finding_lines(many), *_fact_lines(many), _coverage_line(many)]
    lines += [f"problem: {where}: {what}" for where, what in many.problems[:_MAX_PROBLEMS]]
    if len(many.problems) > _MAX_PROBLEMS:
        lines.append(f"… and {len(many.problems) - _MAX_PROBLEMS} more problems: see .problems")
    return "\n".join(map(wrapped, lines))


def headline(many: ManyComparison) -> str:
    """Say the verdict and the classes in one line."""
    shown = [
        "{" + shorten(", ".join(members), 60, placeholder=" …") + "}"
        for members in many.classes[:_MAX_CLASSES]
    ]
    more = f" and {len(many.classes) - len(shown)} more" if len(many.classes) > len(shown) else ""
    num = "1 class" if len(many.classes) == 1 else f"{len(many.classes)} classes"
    if many.evidence is Evidence.PRINTED:
        num += " of equal numbers as printed"
    return f"{many.verdict.upper()}: {len(many.runs)} runs in {num}: {' '.join(shown)}{more}."


def conclusion_line(many: ManyComparison) -> str:
    """Say what the difference goes with, and how little that proves."""
    conclusion = many.conclusion
    if conclusion == "environment":
        return CONCLUSIONS[conclusion].format(num=len(many.classes), facts=_separating(many))
    if conclusion != "unknown":
        return CONCLUSIONS[conclusion]
    if not many.states_hosts:
        reason = "the runs do not state on which hosts they ran"
    elif min(map(len, many.classes)) < 2:
        reason = "a class of one run shows nothing that repeats itself; run each environment twice"
    else:
        reason = "nothing that the runs state goes with their classes"
    return f"unknown: {reason}."


def _separating(many: ManyComparison) -> str:
    """Name the facts that separate the classes, and say which of them are topology."""
    names = [fact.name for fact in many.found_facts if fact.separates]
    shown = shorten(", ".join(names), 60, placeholder=" …")
    is_topology = any(_TOPOLOGY.search(name) for name in names)
    return f"{'topology' if is_topology else 'where and with what they ran'} ({shown})"


def _split_lines(many: ManyComparison) -> list[str]:
    if many.first_step is None:
        return []
    step = many.first_step
    by_trace = len(set(many.step_classes.get(step, ())) - {None}) > 1
    first, names = many.metrics.first()
    metrics = names if first == step else []
    parts = ["the trace"] * by_trace + metrics
    return [f"first split: step {step}, in {shorten(', '.join(parts), 70, placeholder=' …')}"]


def _finding_lines(many: ManyComparison) -> list[str]:
    rows = many.findings.to_dicts()
    lines = []
    for row in rows[:_MAX_FINDINGS]:
        places = [scope or "no module" for scope in row["scopes"]]
        more = f" and {len(places) - 1} more scopes" if len(places) > 1 else ""
        note = f" ({row['note']})" if row["note"] else ""
        lines.append(
            f"{row['class']}: {row['op']} in {places[0]}{more}, {row['phase']}, from step "
            f"{row['first_step']}: in {row['num_pairs']} of {row['of_pairs']} pairs{note}"
        )
    if len(rows) > _MAX_FINDINGS:
        lines.append(f"… and {len(rows) - _MAX_FINDINGS} more findings: see .findings")
    return lines


def _fact_lines(many: ManyComparison) -> list[str]:
    if len(many.classes) == 1:
        return []
    facts = [fact for fact in many.found_facts if fact.separates or not host_of(fact)]
    lines = []
    for fact in facts[:_MAX_FACTS]:
        chance = "" if fact.p is None else f", p = {fact.p:.2g}"
        separates = "separates the classes" if fact.separates else "does not separate the classes"
        lines.append(f"{fact.name} ({fact.kind}) {separates}{chance}: {note_of(fact, many.found_facts)}")
    num_more = len(many.found_facts) - len(lines)
    if num_more:
        lines.append(f"… and {num_more} more facts: see .facts")
    return lines


def _coverage_line(many: ManyComparison) -> str:
    parts = [f"steps {spans(sorted(many.step_classes))} by trace"] if many.step_classes else []
    names, steps = many.metrics.names, many.metrics.places["step"]
    if names:
        num = "1 metric" if len(names) == 1 else f"{len(names)} metrics"
        parts.append(f"{num} at {where(steps)}")
    printed = ", so equal means as printed" if many.evidence is Evidence.PRINTED else ""
    return f"compared {' and '.join(parts)}. Evidence: {_proves(many)}{printed}{left_out_text(many.runs)}"


def _proves(many: ManyComparison) -> str:
    """Say what equality means; the numbers of metrics are no digests."""
    if many.evidence is Evidence.EXACT and not many.step_classes:
        return "exact: all bits of the numbers"
    return PROVES[many.evidence]

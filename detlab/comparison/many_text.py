"""The comparison of many runs as one screen of text."""

from __future__ import annotations

from textwrap import fill, shorten
from typing import TYPE_CHECKING, Final

from detlab.comparison.facts import note_of
from detlab.comparison.text import PROVES, left_out_text
from detlab.run import spans

if TYPE_CHECKING:
    from detlab.comparison.many import ManyComparison

_WIDTH = 100
_MAX_CLASSES = 8
_MAX_FACTS = 5
_MAX_FINDINGS = 5
_MAX_PROBLEMS = 5

CONCLUSIONS: Final = {
    "equal": "All runs are equal in everything that all of them recorded.",
    "run_to_run": "run to run: runs that state the same, hosts included, are in different classes.",
    "environment": "environment: every class repeats itself, and what separates them is where and with what "
    "they ran. Not run-to-run nondeterminism, as far as so few runs can show.",
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
    return "\n".join(fill(line, _WIDTH, subsequent_indent="    ") for line in lines)


def headline(many: ManyComparison) -> str:
    """Say the verdict and the classes in one line."""
    shown = [
        "{" + shorten(", ".join(members), 60, placeholder=" …") + "}"
        for members in many.classes[:_MAX_CLASSES]
    ]
    more = f" and {len(many.classes) - len(shown)} more" if len(many.classes) > len(shown) else ""
    num = "1 class" if len(many.classes) == 1 else f"{len(many.classes)} classes"
    return f"{many.verdict.upper()}: {len(many.runs)} runs in {num}: {' '.join(shown)}{more}."


def conclusion_line(many: ManyComparison) -> str:
    """Say what the difference goes with, and how little that proves."""
    if many.conclusion != "unknown":
        return CONCLUSIONS[many.conclusion]
    if not many.states_hosts:
        reason = "the runs do not state on which hosts they ran"
    elif min(map(len, many.classes)) < 2:
        reason = "a class of one run shows nothing that repeats itself; run each environment twice"
    else:
        reason = "nothing that the runs state goes with their classes"
    return f"unknown: {reason}."


def _split_lines(many: ManyComparison) -> list[str]:
    if many.first_step is None:
        return []
    step = many.first_step
    by_trace = len(set(many.step_classes.get(step, ())) - {None}) > 1
    metrics = [
        name
        for (at, name), classes in many.metric_classes.items()
        if at == step and len(set(classes) - {None}) > 1
    ]
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
    lines = []
    for fact in many.found_facts[:_MAX_FACTS]:
        chance = "" if fact.p is None else f", p = {fact.p:.2g}"
        separates = "separates the classes" if fact.separates else "does not separate the classes"
        lines.append(f"{fact.name} ({fact.kind}) {separates}{chance}: {note_of(fact, many.found_facts)}")
    if len(many.found_facts) > _MAX_FACTS:
        lines.append(f"… and {len(many.found_facts) - _MAX_FACTS} more facts: see .facts")
    return lines


def _coverage_line(many: ManyComparison) -> str:
    steps = spans(sorted(many.step_classes))
    num_metrics = len({name for _, name in many.metric_classes})
    return (
        f"compared steps {steps} by trace and {num_metrics} metrics. Evidence: {PROVES[many.evidence]}"
        f"{left_out_text(many.runs)}"
    )

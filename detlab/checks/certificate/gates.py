"""The gates of a certificate: one question each, answered by a check, and closed where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from detlab.checks.certificate.controls import metrics_control, trace_control
from detlab.checks.result import CheckResult, Verified
from detlab.comparison import Comparison, MetricsComparison, compare, compare_metrics
from detlab.errors import InputError, NotComparable
from detlab.run import Run, spans
from detlab.schema import Evidence
from detlab.text import plural

GateVerdict = Literal["pass", "fail", "not shown", "invalid"]
_WORST_FIRST: Final[tuple[GateVerdict, ...]] = ("fail", "invalid", "not shown", "pass")


@dataclass(frozen=True)
class Gate:
    """One question of a certificate with its answer.

    Attributes
    ----------
    name
        recipe, same setup, whole traces, repeatability, replicas, recomputation, resume or negative controls.
    verdict
        ``pass``, ``fail``, ``invalid`` (it could not be decided) or ``not shown`` (nothing was given for it).
    says
        One sentence: what was seen and on what, or why not.
    evidence
        The least evidence that it rests on; empty where it rests on none.
    documents
        What the checks and comparisons behind it print as JSON.
    """

    name: str
    verdict: GateVerdict
    says: str
    evidence: str = ""
    documents: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the gate as it stands in the document."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "says": self.says,
            "evidence": self.evidence,
            "documents": list(self.documents),
        }


class _Answer(NamedTuple):
    """What one check or comparison behind a gate says."""

    verdict: GateVerdict
    says: str
    document: dict[str, Any] | None = None
    evidence: Evidence | None = None


def _gate(name: str, answers: Sequence[_Answer], nothing: str) -> Gate:
    """Join answers: the worst decides, and says so; with no answer the gate was not shown."""
    if not answers:
        return Gate(name, "not shown", nothing)
    verdict = min((each.verdict for each in answers), key=_WORST_FIRST.index)
    said = [each.says for each in answers if each.verdict == verdict]
    levels = [each.evidence for each in answers if each.evidence is not None]
    documents = tuple(each.document for each in answers if each.document is not None)
    evidence = min(levels).name.lower() if levels and verdict != "not shown" else ""
    return Gate(name, verdict, "; ".join(dict.fromkeys(said)), evidence, documents)


def checked(name: str, checks: Sequence[Callable[[], CheckResult]], nothing: str) -> Gate:
    """Make checks; where there is nothing to look at it was not shown, where one is refused it is invalid."""
    return _gate(name, [_check(each) for each in checks], nothing)


def resumed(checks: Sequence[Callable[[], CheckResult]]) -> Gate:
    """Check resumes; one whose equality does not rest on bits alone is invalid, not a pass."""
    return _gate("resume", [_check(each, is_exact=True) for each in checks], "no resume was given")


def _check(check: Callable[[], CheckResult], *, is_exact: bool = False) -> _Answer:
    try:
        found = check()
    except NotComparable as error:
        return _Answer("not shown", error.finding)
    except InputError as error:
        return _Answer("invalid", error.finding)
    weak = [f"{each.what} ({each.evidence})" for each in found.verified if not _rests_on_bits(each)]
    if is_exact and weak and found.verdict == "pass":
        says = f"{' and '.join(found.subjects)}: equal, but not by their bits: {', '.join(weak)}"
        return _Answer("invalid", says, found.to_json())
    evidence = Evidence.EXACT if is_exact and found.verdict == "pass" else None
    return _Answer(found.verdict, check_says(found), found.to_json(), evidence)


def _rests_on_bits(each: Verified) -> bool:
    return each.evidence.startswith(Evidence.EXACT.name.lower())


def check_says(found: CheckResult) -> str:
    """Write a check in one sentence: what failed first, or how much holds and what was warned of."""
    about = " and ".join(found.subjects)
    bad = found.findings.filter(found.findings["severity"] != "note")
    first = [
        f"{row['code'] or row['component']}: {row['found']}" for row in bad.head(2).iter_rows(named=True)
    ]
    more = [f"and {len(bad) - 2} more"] if len(bad) > 2 else []
    what = [*first, *more] or [f"{len(found.verified)} verified"]
    problem = [f"{each.where}: {each.what}" for each in found.problems[:1]]
    return f"{about}: {', '.join([*what, *problem]).rstrip('.')}"


def repeatability(runs: Sequence[Run]) -> Gate:
    """Compare every run with the first: traces by every event, metrics by their bits."""
    refusal = _not_independent(runs)
    if refusal:
        return Gate("repeatability", "invalid", refusal)
    answers = [answer for other in runs[1:] for answer in _pair(runs[0], other)]
    return _gate("repeatability", answers, "fewer than two runs were given")


def _not_independent(runs: Sequence[Run]) -> str:
    """Say why two of the runs are one: equality with itself proves nothing."""
    seen: dict[str, str] = {}
    for run in runs:
        for mark in _marks(run):
            if mark in seen:
                return f"{seen[mark]} and {run.label} are one run, not two independent ones ({mark})"
            seen[mark] = run.label
    return ""


def _marks(run: Run) -> Iterator[str]:
    """Give what no two runs have in common: where they lie, and when which ranks of them began."""
    if Path(run.source).exists():
        yield f"both are {Path(run.source).resolve()}"
    if run.manifest.created:
        ranks = spans([rank.header.rank for rank in run.ranks])
        yield f"ranks {ranks} of both began at {run.manifest.created}"


def _pair(a: Run, b: Run) -> Iterator[_Answer]:
    has_traces, has_metrics = bool(a.ranks and b.ranks), bool(len(a.metrics) and len(b.metrics))
    if has_traces:
        yield _answer_of(lambda: _traces(compare(a, b)))
    if has_metrics:
        yield _answer_of(lambda: _metrics(compare_metrics(a, b)))
    if not (has_traces or has_metrics):
        yield _Answer("invalid", f"{a.label} and {b.label} have neither traces nor metrics in common")


def _answer_of(make: Callable[[], _Answer]) -> _Answer:
    try:
        return make()
    except InputError as error:
        return _Answer("invalid", error.finding)


def _traces(cmp: Comparison) -> _Answer:
    where = f"{cmp.a.label} and {cmp.b.label}, ranks {cmp.num_ranks} of {cmp.a.manifest.world_size}"
    where += f", steps {spans(list(cmp.steps))}, {cmp.num_calls:,} calls"
    document = cmp.to_json()
    if cmp.verdict == "diverged":
        first = cmp.first.row(0, named=True) if len(cmp.first) else None
        place = f": rank {first['rank']} at {first['site']} ({first['verdict']})" if first else ""
        return _Answer("fail", f"traces differ{place}; {where}", document, cmp.evidence)
    if cmp.verdict != "match":
        return _Answer("invalid", f"traces could not all be compared; {where}", document, cmp.evidence)
    if cmp.evidence < Evidence.EXACT:
        says = f"traces show no difference, but their evidence is {cmp.evidence.name.lower()}; {where}"
        return _Answer("invalid", says, document, cmp.evidence)
    silent = (
        f", {cmp.num_without_evidence:,} of them without output evidence" if cmp.num_without_evidence else ""
    )
    return _Answer(
        "pass", f"traces are bitwise identical in what was recorded: {where}{silent}", document, cmp.evidence
    )


def _metrics(cmp: MetricsComparison) -> _Answer:
    steps, num = cmp.steps, len(cmp.compared)
    where = f"{num} {plural('metric', num)} of {cmp.a.label} and {cmp.b.label} at {len(steps)} steps"
    document = cmp.to_json()
    if cmp.verdict == "diverged":
        names = ", ".join(cmp.first["name"].cast(str).unique(maintain_order=True).to_list()[:3])
        return _Answer(
            "fail",
            f"metrics differ first at step {cmp.first_step} ({names}); {where}",
            document,
            cmp.evidence,
        )
    if cmp.verdict != "match":
        return _Answer("invalid", f"metrics could not all be compared: {where}", document, cmp.evidence)
    if cmp.evidence < Evidence.EXACT:
        return _Answer("invalid", f"equal as printed, which hides bits: {where}", document, cmp.evidence)
    return _Answer("pass", f"metrics have equal bits: {where}", document, cmp.evidence)


def negative_controls(runs: Sequence[Run], equal: Gate, resumes: Gate) -> Gate:
    """Plant one bit in each kind of evidence that was found equal; the resumes bring controls of their own.

    Parameters
    ----------
    equal, resumes
        The gates of repeatability and of resumes; what did not pass there needs no control.
    """
    pairs = pairwise(runs) if equal.verdict == "pass" else ()
    answers = [
        _Answer("fail" if missed else "pass", missed or f"a turned bit was found in {what}")
        for a, b in pairs
        for what, missed in _planted(a, b)
    ]
    if resumes.verdict == "pass":
        answers.append(_Answer("pass", "each component that a resume restores was taken away and missed"))
    return _gate("negative controls", answers, "nothing was found equal in which a bit could be turned")


def _planted(a: Run, b: Run) -> Iterator[tuple[str, str]]:
    try:
        if a.ranks and b.ranks:
            yield f"the trace of {b.label}", trace_control(a, b)
        if len(a.metrics) and len(b.metrics):
            names = compare_metrics(a, b).compared["name"].cast(str).to_list()
            yield f"the metrics of {b.label}", metrics_control(a, b, names)
    except InputError as error:
        yield b.label, f"no control was possible: {error.finding}"

"""The gates of a certificate: one question each, answered by a check, and closed where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from detlab.checks.certificate.controls import Control, metrics_control, trace_control
from detlab.checks.result import CheckResult, Verified
from detlab.comparison import Comparison, MetricsComparison, compare, compare_metrics
from detlab.errors import InputError, NotComparable
from detlab.run import Run, spans
from detlab.schema import Evidence
from detlab.text import plural

GateVerdict = Literal["pass", "fail", "not shown", "invalid"]
_WORST_FIRST: Final[tuple[GateVerdict, ...]] = ("fail", "invalid", "not shown", "pass")
_MAX_NAMES: Final = 6


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
    open
        What its answer leaves open, one sentence each; it stands among what was not shown.
    """

    name: str
    verdict: GateVerdict
    says: str
    evidence: str = ""
    documents: tuple[dict[str, Any], ...] = ()
    open: tuple[str, ...] = ()

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
    open: str = ""


def _gate(name: str, answers: Sequence[_Answer], nothing: str) -> Gate:
    """Join answers: the worst decides, and says so; with no answer the gate was not shown."""
    if not answers:
        return Gate(name, "not shown", nothing)
    verdict = min((each.verdict for each in answers), key=_WORST_FIRST.index)
    said = [each.says for each in answers if each.verdict == verdict]
    levels = [each.evidence for each in answers if each.evidence is not None]
    documents = tuple(each.document for each in answers if each.document is not None)
    evidence = min(levels).name.lower() if levels and verdict != "not shown" else ""
    left = tuple(dict.fromkeys(each.open for each in answers if each.open))
    return Gate(name, verdict, "; ".join(dict.fromkeys(said)), evidence, documents, left)


def checked(
    name: str, checks: Sequence[Callable[[], CheckResult]], nothing: str, *, may_be_empty: bool = False
) -> Gate:
    """Make checks; what was given and could not be looked at is invalid.

    Parameters
    ----------
    nothing
        What to say where there is no check to make.
    may_be_empty
        Whether a run may have nothing of the kind, as one without recomputation: then it was not shown.
    """
    return _gate(name, [_check(each, may_be_empty=may_be_empty) for each in checks], nothing)


def resumed(checks: Sequence[Callable[[], CheckResult]]) -> Gate:
    """Check resumes; one whose equality does not rest on bits alone is invalid, not a pass."""
    return _gate("resume", [_check(each, is_exact=True) for each in checks], "no resume was given")


def _check(
    check: Callable[[], CheckResult], *, is_exact: bool = False, may_be_empty: bool = False
) -> _Answer:
    try:
        found = check()
    except InputError as error:
        is_empty = may_be_empty and isinstance(error, NotComparable)
        return _Answer("not shown" if is_empty else "invalid", error.finding)
    document, left = found.to_json(), _left_open(found)
    if not found.verified and found.verdict != "fail":
        if may_be_empty and found.findings.is_empty() and found.problems:
            return _Answer("not shown", "; ".join(each.what.rstrip(".") for each in found.problems), document)
        return _Answer("invalid", check_says(found), document)
    weak = [f"{each.what} ({each.evidence})" for each in found.verified if not _rests_on_bits(each)]
    if is_exact and weak and found.verdict == "pass":
        says = f"{' and '.join(found.subjects)}: equal, but not by their bits: {', '.join(weak)}"
        return _Answer("invalid", says, document)
    evidence = Evidence.EXACT if is_exact and found.verdict == "pass" else None
    return _Answer(found.verdict, check_says(found), document, evidence, left)


def _left_open(found: CheckResult) -> str:
    """Say what a check did not look at, for those that said anything else."""
    names = list(dict.fromkeys(each.what for each in found.not_checked))
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{' and '.join(found.subjects)}: {', '.join(names[:_MAX_NAMES])}{more}" if names else ""


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
    refusal = _not_independent(runs) or _unlike(runs)
    if refusal:
        return Gate("repeatability", "invalid", refusal)
    answers = [answer for other in runs[1:] for answer in _pair(runs[0], other)]
    return _gate("repeatability", answers, "fewer than two runs were given")


def _not_independent(runs: Sequence[Run]) -> str:
    """Say why two of the runs are one: equality with itself proves nothing."""
    for a, b in combinations(runs, 2):
        if a is b or _shares_ranks(a, b) or _shares_files(a, b):
            return f"{a.label} and {b.label} are one run, not two independent ones"
        if a.manifest.created and a.manifest.created == b.manifest.created:
            return (
                f"{a.label} and {b.label} both began at {a.manifest.created}: a copy cannot be told from a "
                "second run; start runs a second apart"
            )
    return ""


def _shares_ranks(a: Run, b: Run) -> bool:
    return bool({id(rank) for rank in a.ranks} & {id(rank) for rank in b.ranks})


def _shares_files(a: Run, b: Run) -> bool:
    places = [Path(run.source) for run in (a, b)]
    return all(run.source and place.exists() for run, place in zip((a, b), places, strict=True)) and (
        places[0].samefile(places[1])
    )


def _unlike(runs: Sequence[Run]) -> str:
    """Say why what the runs have in common is nothing that all of them show."""
    traced = [run for run in runs if run.ranks]
    if len(runs) < 2 or not traced:
        return ""
    if len(traced) < len(runs):
        bare = next(run for run in runs if not run.ranks)
        return f"{traced[0].label} has a trace and {bare.label} has none: nobody sees whether all are equal"
    for what, common in (("rank", common_ranks(runs)), ("step", common_steps(runs))):
        if not common:
            return f"no {what} is in the traces of all {len(runs)} runs"
    return ""


def common_ranks(runs: Sequence[Run]) -> list[int]:
    """Give the ranks of which all of some runs have a trace."""
    ranks = [{rank.header.rank for rank in run.ranks} for run in runs]
    return sorted(set.intersection(*ranks)) if ranks else []


def common_steps(runs: Sequence[Run]) -> list[int]:
    """Give the steps that all of some runs show, in their traces or else in their metrics."""
    steps = [set(run.steps) if run.ranks else set(run.metrics["step"].to_list()) for run in runs]
    return sorted(set.intersection(*steps)) if steps else []


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
    silent = cmp.num_without_evidence
    blind = f"{silent:,} of {cmp.num_calls:,} calls have no evidence of their outputs" if silent else ""
    says = f"traces are bitwise identical in what was recorded: {where}{f'; {blind}' if blind else ''}"
    return _Answer("pass", says, document, cmp.evidence, f"{cmp.b.label}: {blind}" if blind else "")


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
    answers = [answer for a, b in pairs for answer in _planted(a, b)]
    if resumes.verdict == "pass":
        answers += map(_controls_of, resumes.documents)
    return _gate("negative controls", answers, "nothing was found equal in which a bit could be turned")


def _planted(a: Run, b: Run) -> Iterator[_Answer]:
    if a.ranks and b.ranks:
        yield _answer_of(lambda: _control(trace_control(a, b), "trace", b))
    if len(a.metrics) and len(b.metrics):
        yield _answer_of(lambda: _control(metrics_control(a, b), "metrics", b))


def _control(found: Control, what: str, b: Run) -> _Answer:
    if not found.is_possible:
        return _Answer("invalid", f"no control of the {what} of {b.label} was possible: {found.says}")
    if not found.is_caught:
        return _Answer("fail", f"{found.says} of {b.label} was not found")
    return _Answer("pass", f"a turned bit was found in the {what} of {b.label}")


def _controls_of(resume: Mapping[str, Any]) -> _Answer:
    """Give the controls that a check of a resume ran: components without one are left open."""
    about = " and ".join(resume["subjects"])
    ran = [row["component"] for row in resume["table"] if row["caught"]]
    if not ran:
        return _Answer("invalid", f"{about}: no control of the resume ran")
    bare = sorted({each["what"] for each in resume["verified"]} - set(ran))
    names = ", ".join(sorted(set(ran)))
    says = f"{about}: each of {len(ran)} states that were taken away again was noticed ({names})"
    return _Answer("pass", says, open=f"{about}: no control for {', '.join(bare)}" if bare else "")

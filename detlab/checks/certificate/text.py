"""A certificate in words: the statement, one line a gate, and what was not shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from detlab.comparison.text import wrapped
from detlab.text import plural

if TYPE_CHECKING:
    from detlab.checks.certificate import Certificate

_HEADS: Final = {
    "pass": "CERTIFIED",
    "fail": "NOT CERTIFIED",
    "invalid": "NOT CERTIFIED: it could not be decided",
}
_ALLOCATIONS: Final = {
    "same": "on the same hosts",
    "other": "on different allocations of hosts",
    "not known": "on hosts that are not all known",
}


def statement(found: Certificate) -> str:
    """Write the statement in one sentence."""
    scope = found.scope
    num = len(scope.runs)
    about = f"{num} {plural('run', num)} ({', '.join(scope.runs) or 'none'}) {_ALLOCATIONS[scope.allocation]}"
    if found.verdict != "pass":
        gates = [f"{gate.name} ({gate.verdict})" for gate in found.gates if _stands_against(found, gate.name)]
        return f"{_HEADS[found.verdict]}: {about}; in the way: {', '.join(gates)}."
    ranks = f" on {_ranks(found)}" if scope.ranks else ""
    steps = f"{plural('step', len(scope.steps.replace('-', ',').split(',')))} {scope.steps}"
    return (
        f"CERTIFIED: {about} gave the same bits in all that was recorded of {steps}{ranks}{_resumed(found)}."
    )


def _resumed(found: Certificate) -> str:
    """Say what of the resumes is equal in every one of them, no more."""
    gate = next((each for each in found.gates if each.name == "resume" and each.verdict == "pass"), None)
    if gate is None:
        return ""
    equal = [dict.fromkeys(each["what"] for each in document["verified"]) for document in gate.documents]
    names = [name for name in equal[0] if all(name in each for each in equal)] if equal else []
    num = found.scope.resumes
    return f", and {num} {plural('resume', num)} had equal {', '.join(names)}" if names else ""


def _ranks(found: Certificate) -> str:
    size = found.scope.world_size
    return "its only rank" if size == 1 else f"ranks {found.scope.ranks} of {size}"


def _stands_against(found: Certificate, name: str) -> bool:
    from detlab.checks.certificate import REQUIRED

    gate = next(each for each in found.gates if each.name == name)
    return gate.verdict in ("fail", "invalid") or (name in REQUIRED and gate.verdict != "pass")


def not_shown(found: Certificate) -> Iterator[str]:
    """Say what the certificate is silent about: gates without an answer, and what no such gate can show."""
    for gate in found.gates:
        if gate.verdict == "not shown":
            yield f"{gate.name}: {gate.says}"
        yield from (f"{gate.name}: {each}" for each in gate.open)
    scope = found.scope
    yield f"any step outside {scope.steps or 'those compared'}"
    if not scope.ranks:
        yield "any value inside a step: only step metrics were compared"
    elif scope.world_size > 1 and scope.ranks != f"0-{scope.world_size - 1}":
        yield f"any rank but {scope.ranks} of {scope.world_size}"
    if scope.allocation != "other":
        yield "another allocation: rings and trees follow the topology, and other hosts may give other bits"
    yield "other versions, other hardware, another parallel layout"
    num = len(scope.runs)
    seen = f"{num} {plural('run', num)} {'is' if num == 1 else 'are'} what was seen"
    yield f"that a further run gives these bits too: {seen}, and a race can be rare"


def summary(found: Certificate) -> str:
    """Write the certificate on one screen."""
    lines = [found.statement, ""]
    for gate in found.gates:
        evidence = f" [{gate.evidence}]" if gate.evidence else ""
        lines.append(f"{gate.verdict:<9} {gate.name}: {gate.says}{evidence}")
    lines += ["", *(f"not shown: {each}" for each in found.not_shown)]
    return "\n".join(map(wrapped, lines))

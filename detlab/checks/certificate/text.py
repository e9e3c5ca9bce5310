"""A certificate in words: the statement, one line a gate, and what was not shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from detlab.comparison.text import wrapped

if TYPE_CHECKING:
    from detlab.checks.certificate import Certificate

_HEADS: Final = {
    "pass": "CERTIFIED",
    "fail": "NOT CERTIFIED",
    "invalid": "NOT CERTIFIED: it could not be decided",
}
_ALLOCATIONS: Final = {
    "same": "on the same hosts",
    "other": "on different hosts",
    "not known": "on hosts that not every run names",
}


def statement(found: Certificate) -> str:
    """Write the statement in one sentence."""
    scope = found.scope
    about = f"{len(scope.runs)} runs ({', '.join(scope.runs)}) {_ALLOCATIONS[scope.allocation]}"
    if found.verdict != "pass":
        gates = [f"{gate.name} ({gate.verdict})" for gate in found.gates if _stands_against(found, gate.name)]
        return f"{_HEADS[found.verdict]}: {about}; in the way: {', '.join(gates)}."
    ranks = f" on {_ranks(found)}" if scope.ranks else ""
    resumed = f", and {scope.resumes} resumed as they should" if _passed(found, "resume") else ""
    return f"CERTIFIED: {about} gave the same bits over steps {scope.steps}{ranks}{resumed}."


def _ranks(found: Certificate) -> str:
    return f"ranks {found.scope.ranks} of {found.scope.world_size}"


def _passed(found: Certificate, name: str) -> bool:
    return any(gate.name == name and gate.verdict == "pass" for gate in found.gates)


def _stands_against(found: Certificate, name: str) -> bool:
    from detlab.checks.certificate import REQUIRED

    gate = next(each for each in found.gates if each.name == name)
    return gate.verdict in ("fail", "invalid") or (name in REQUIRED and gate.verdict != "pass")


def not_shown(found: Certificate) -> Iterator[str]:
    """Say what the certificate is silent about: gates without an answer, and what no such gate can show."""
    for gate in found.gates:
        if gate.verdict == "not shown":
            yield f"{gate.name}: {gate.says}"
    scope = found.scope
    yield f"any step outside {scope.steps or 'those compared'}"
    if not scope.ranks:
        yield "any value inside a step: only step metrics were compared"
    elif scope.world_size and scope.ranks != f"0-{scope.world_size - 1}":
        yield f"any rank but {scope.ranks} of {scope.world_size}"
    if scope.allocation != "other":
        yield "another allocation: rings and trees follow the topology, and other hosts may give other bits"
    yield "other versions, other hardware, another parallel layout"
    num = len(scope.runs)
    yield f"that a further run gives these bits too: {num} runs are what was seen, and a race can be rare"


def summary(found: Certificate) -> str:
    """Write the certificate on one screen."""
    lines = [found.statement, ""]
    for gate in found.gates:
        evidence = f" [{gate.evidence}]" if gate.evidence else ""
        lines.append(f"{gate.verdict:<9} {gate.name}: {gate.says}{evidence}")
    lines += ["", *(f"not shown: {each}" for each in found.not_shown)]
    return "\n".join(map(wrapped, lines))

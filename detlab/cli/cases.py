"""Any verdict as a list of cases that passed, failed or could not be decided: what CI systems show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

Outcome = Literal["pass", "fail", "error", "skipped"]


class Case(NamedTuple):
    """One thing that was asked: its name, what came out, and why in a line or more."""

    name: str
    outcome: Outcome
    says: str = ""
    more: tuple[str, ...] = ()


Document = Mapping[str, Any]


def cases_of(document: Document, exit_code: int) -> list[Case]:
    """Give the cases of a document that ``--json`` prints.

    What the exit code says is in them: for 0 a case that passed; where no case shows why it is 1 or 2, one
    for the verdict itself. A problem that does not lower the verdict is told and is no error.
    """
    kind = str(document["schema"]).removeprefix("detlab.").partition("/")[0]
    found = [*_CASES.get(kind, _nothing)(document), *_problems(document, exit_code)]
    if exit_code == 0 or not any(case.outcome in ("fail", "error") for case in found):
        said = str(document.get("verdict", document.get("conclusion", "")))
        found.insert(0, Case("verdict", _BY_EXIT_CODE[exit_code], said))
    return found


_BY_EXIT_CODE: Final[tuple[Outcome, ...]] = ("pass", "fail", "error")


def _nothing(_: Document) -> Iterator[Case]:
    yield from ()


def _problems(document: Document, exit_code: int) -> Iterator[Case]:
    for each in document.get("problems", ()):
        yield Case(f"problem: {each['where']}", "error" if exit_code else "skipped", each["what"])


def _of_check(document: Document) -> Iterator[Case]:
    for each in document.get("findings", ()):
        says = f"{each['found']}; expected {each['expected']}" if each["expected"] else each["found"]
        outcome: Outcome = "fail" if each["severity"] == "error" else "pass"
        more = (each["where"], each["why"], each["next"], each["source"])
        name = each.get("code") or each["component"]
        yield Case(f"{each['severity']}: {name}", outcome, says, tuple(filter(None, more)))
    for each in document.get("verified", ()):
        yield Case(each["what"], "pass", each["says"], tuple(filter(None, (each["evidence"],))))
    for each in document.get("not_checked", ()):
        yield Case(each["what"], "skipped", each["why"])


def _of_comparison(document: Document) -> Iterator[Case]:
    for each in document.get("findings", ()):
        name = f"{each['class']}: {each['op']} in {', '.join(each['scopes'][:3]) or 'no module'}"
        more = (each["why"], f"next: {each['next']}")
        steps = f"steps {', '.join(map(str, each['steps']))}"
        says = f"accepted: {each['accepted']}; {steps}" if each["accepted"] else steps
        yield Case(f"{name} ({each['phase']})", "skipped" if each["accepted"] else "fail", says, more)
    if "findings" in document and not document["findings"]:
        for each in document.get("first", ()):
            yield Case(f"rank {each['rank']}", "fail", f"{each['verdict']}: {each['site']}")


def _of_metrics(document: Document) -> Iterator[Case]:
    for each in document.get("gates", ()):
        yield Case(each["gate"], _GATES.get(each["verdict"], "error"), each["why"])
    for each in document.get("metrics", ()) if "verdict" in document else ():
        if each.get("kind", "compared") != "compared":
            yield Case(each["name"], "skipped", each["kind"])
            continue
        says = f"differs at {each['steps_different']} of {each['steps_common']} steps"
        outcome: Outcome = "fail" if each["steps_different"] else "pass"
        yield Case(each["name"], outcome, f"{says}, first {each['first_step']}" if outcome == "fail" else "")


def _of_certificate(document: Document) -> Iterator[Case]:
    for each in document.get("gates", ()):
        yield Case(each["name"], _GATES.get(each["verdict"], "error"), each["says"])


_GATES: Final[Mapping[str, Outcome]] = {
    "pass": "pass", "fail": "fail", "not tested": "skipped", "not shown": "skipped",
}  # fmt: skip


_CASES: Final[Mapping[str, Callable[[Document], Iterator[Case]]]] = {
    "check": _of_check,
    "comparison": _of_comparison,
    "metrics": _of_metrics,
    "certificate": _of_certificate,
}

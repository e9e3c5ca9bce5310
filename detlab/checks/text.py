"""A check as one screen of text: the verdict first, then findings, what holds, what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from detlab.checks.result import SEVERITIES
from detlab.comparison.text import wrapped
from detlab.text import capitalized, plural

if TYPE_CHECKING:
    from detlab.checks.result import CheckResult

_MAX_FINDINGS: Final = 12
_MAX_LINES: Final = 12


def summary(result: CheckResult) -> str:
    """Write a check on about one screen."""
    problems = [f"problem: {each.where}: {each.what}" for each in result.problems]
    problems += [""] if problems else []
    # Of an invalid check they are the answer; beside an error they only bound what else was seen.
    decisive = result.verdict == "invalid"
    lines = [headline(result), "", *(problems if decisive else [])]
    for row in result.findings.head(_MAX_FINDINGS).iter_rows(named=True):
        lines += [*finding_lines(row), ""]
    more = len(result.findings) - _MAX_FINDINGS
    lines += [f"… and {more} more: see findings", ""] if more > 0 else []
    lines += [] if decisive else problems
    lines += _bounded([_verified(each) for each in result.verified])
    lines += _bounded([f"not checked: {each.what}: {each.why}" for each in result.not_checked])
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join(map(wrapped, lines)).rstrip()


def headline(result: CheckResult) -> str:
    """Give the verdict in one sentence."""
    about = " and ".join(result.subjects)
    counts = Counter(result.findings["severity"].to_list())
    said = ", ".join(f"{counts[each]} {plural(each, counts[each])}" for each in SEVERITIES if counts[each])
    looked = f"{len(result.verified)} verified" if result.verified else "nothing verified"
    looked += f", {len(result.not_checked)} not checked" if result.not_checked else ""
    return f"{result.verdict.upper()}: {result.check} of {about}: {f'{said}; ' if said else ''}{looked}."


def finding_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Write one finding: what, found and expected, where, why, and the next step."""
    yield f"{row['severity']} {row['code'] or row['component']}: {_found(row)}"
    if row["where"]:
        yield f"  at {row['where']}"
    if row["why"]:
        yield f"  {capitalized(row['why'])}" + (f" ({row['source']})" if row["source"] else "")
    if row["next"]:
        yield f"  next: {row['next']}"


def _found(row: Mapping[str, Any]) -> str:
    return f"{row['found']}; expected {row['expected']}" if row["expected"] else row["found"]


def _verified(each: Any) -> str:
    return f"verified: {each.what}: {each.says}" + (f" ({each.evidence})" if each.evidence else "")


def _bounded(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], *([f"… and {more} more of these"] if more > 0 else [])]

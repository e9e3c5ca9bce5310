"""What a check gives: findings, what it verified, what it could not look at, and one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from detlab.comparison.text import as_html

Verdict = Literal["pass", "fail", "invalid"]
"""What a check says; the exit codes are 0, 1 and 2."""

SEVERITIES: Final = ("error", "warning", "note")
"""How much a finding weighs, worst first: only an error makes a check fail."""

FINDING_COLUMNS: Final[dict[str, Any]] = {
    "code": pl.String,
    "component": pl.String,
    "severity": pl.Enum(SEVERITIES),
    "found": pl.String,
    "expected": pl.String,
    "where": pl.String,
    "why": pl.String,
    "next": pl.String,
    "source": pl.String,
}
"""Columns that the findings of every check begin with; a check may have more of its own after them."""


class Verified(NamedTuple):
    """One thing that was looked at and holds.

    Attributes
    ----------
    what
        The component, the code of the rule or the invariant.
    says
        What holds, with its extent: how many tensors, ranks, steps.
    evidence
        What it rests on, such as ``exact: every byte`` or ``printed``.
    """

    what: str
    says: str
    evidence: str = ""


class NotChecked(NamedTuple):
    """One thing that was not looked at, and why."""

    what: str
    why: str


class Problem(NamedTuple):
    """One thing that is missing or damaged; with no error found, it makes the check invalid."""

    where: str
    what: str


@dataclass(frozen=True, eq=False, repr=False)
class CheckResult:
    """What one check found.

    Attributes
    ----------
    check
        Its name: recipe, resume, replicas, recompute, tax, trace or kernels.
    subjects
        What was checked: labels of runs, or paths.
    findings
        One row per finding, worst first, with the columns of `FINDING_COLUMNS` and those that the check
        adds. Exactly one of ``code`` and ``component`` is filled.
    verified
        What was looked at and holds. A check that found no error and verified nothing is invalid.
    not_checked
        What was not looked at, and why; it stands beside every verdict.
    problems
        What is missing or damaged.
    notes
        What a reader must know beside it.
    table
        What was measured, where the check measures (the tax); else an empty frame.
    """

    check: str
    subjects: tuple[str, ...]
    findings: pl.DataFrame
    verified: tuple[Verified, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    table: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def verdict(self) -> Verdict:
        """The verdict; it fails closed: damage, or nothing that was found to hold, is never a pass."""
        if (self.findings["severity"] == SEVERITIES[0]).any():
            return "fail"
        return "pass" if self.verified and not self.problems else "invalid"

    @property
    def exit_code(self) -> int:
        """0 for a pass, 1 for a failure, 2 where it could not be decided."""
        return {"pass": 0, "fail": 1, "invalid": 2}[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Give the check as a document of the schema ``detlab.check/1``."""
        return {
            "schema": "detlab.check/1",
            "check": self.check,
            "subjects": list(self.subjects),
            "verdict": self.verdict,
            "findings": [_finding(row) for row in self.findings.iter_rows(named=True)],
            "verified": [each._asdict() for each in self.verified],
            "not_checked": [each._asdict() for each in self.not_checked],
            "notes": list(self.notes),
            "table": self.table.rows(named=True),
            "problems": [each._asdict() for each in self.problems],
        }

    def __repr__(self) -> str:
        from detlab.checks.text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _finding(row: Mapping[str, Any]) -> dict[str, Any]:
    """Give a finding: the shared columns, and what the check adds under ``details``."""
    named = "code" if row["code"] else "component"
    shared = {name: row[name] for name in FINDING_COLUMNS if name not in ("code", "component")}
    details = {name: value for name, value in row.items() if name not in FINDING_COLUMNS}
    return {named: row[named], **shared, "details": details}


def findings_frame(rows: Sequence[Mapping[str, Any]], more: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Make the frame of findings, worst first and otherwise in the order given.

    Parameters
    ----------
    rows
        Findings; a shared column that one leaves out is empty.
    more
        Columns and types that the check adds.
    """
    schema = {**FINDING_COLUMNS, **(more or {})}
    usual = dict.fromkeys(FINDING_COLUMNS, "")
    frame = pl.DataFrame([{**usual, **row} for row in rows], schema)
    return frame.sort(pl.col("severity").to_physical(), maintain_order=True)

"""The gates of one recipe gathered into a statement: its scope, its evidence, and what was not shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from detlab.checks.certificate.gates import (
    Gate,
    checked,
    negative_controls,
    repeatability,
    resumed,
)
from detlab.checks.certificate.scope import Scope, scope_of
from detlab.checks.result import CheckResult, Verified
from detlab.checks.tax.times import unique_labels
from detlab.comparison.text import as_html
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run

__all__ = ["Certificate", "Gate", "Scope", "certify"]

REQUIRED: Final = ("recipe", "same setup", "repeatability", "negative controls")
"""Gates without which nothing is certified; what another gate did not show is only told."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A statement on one recipe.

    Attributes
    ----------
    scope
        What it is about.
    gates
        Every question with its answer, also those that nothing was given for.
    created
        When it was made: ISO 8601, UTC.
    """

    scope: Scope
    gates: tuple[Gate, ...]
    created: str

    @property
    def verdict(self) -> Literal["pass", "fail", "invalid"]:
        """``pass`` only when every gate that was asked passed, and every one of `REQUIRED` was asked."""
        verdicts = {gate.verdict for gate in self.gates}
        if "fail" in verdicts:
            return "fail"
        lacking = any(gate.verdict != "pass" for gate in self.gates if gate.name in REQUIRED)
        return "invalid" if lacking or "invalid" in verdicts else "pass"

    @property
    def exit_code(self) -> int:
        """0 certified, 1 a gate failed, 2 it could not be decided."""
        return {"pass": 0, "fail": 1, "invalid": 2}[self.verdict]

    @property
    def statement(self) -> str:
        """The statement in one sentence, never wider than its evidence."""
        from detlab.checks.certificate.text import statement

        return statement(self)

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What this certificate says nothing about, one sentence each."""
        from detlab.checks.certificate.text import not_shown

        return tuple(not_shown(self))

    def to_json(self) -> dict[str, Any]:
        """Give the certificate as a document of the schema ``detlab.certificate/1``."""
        return {
            "schema": "detlab.certificate/1",
            "verdict": self.verdict,
            "statement": self.statement,
            "scope": self.scope.to_json(),
            "gates": [{**gate.to_json(), "required": gate.name in REQUIRED} for gate in self.gates],
            "not_shown": list(self.not_shown),
            "created": self.created,
            "detlab": version("detlab"),
            "problems": [],
        }

    def __repr__(self) -> str:
        from detlab.checks.certificate.text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        return as_html(self)


Source = Run | str | PathLike[str]


def certify(
    runs: Sequence[Source],
    *,
    recipe: Any = None,
    framework: str | None = None,
    resumes: Sequence[tuple[Any, Any]] = (),
) -> Certificate:
    """Gather the gates of one recipe into a statement; it fails closed.

    A gate that fails, that cannot be decided, or that is required and was not shown is no certificate.
    Equality that rests on printed digits or on digests that miss differences does not pass for bits.

    Parameters
    ----------
    runs
        Two independent runs of the recipe or more, as traces, as logs with the bits of their metrics, or as
        paths of these.
    recipe
        What `detlab.check_recipe` takes, beside what each run recorded of its own: both must be right, and
        where both speak of a setting they must agree.
    framework
        Whose rules the recipe is held against, where it does not say so itself.
    resumes
        For each checkpoint that was resumed from: the reference and the resumed side, as
        `detlab.check_resume` takes them.

    Returns
    -------
    The certificate: ``verdict``, ``statement``, ``scope``, ``gates``, ``not_shown``, ``exit_code``.

    Raises
    ------
    InputError
        A run cannot be read.
    """
    loaded = _told_apart([as_run(run) for run in _several(runs)])
    pairs = list(dict.fromkeys(_Pair(*each) for each in resumes))
    equal = repeatability(loaded)
    resume = resumed([partial(_resume, loaded, pair) for pair in pairs])
    gates = (
        checked("recipe", _recipes(loaded, recipe, framework), "no recipe was given or recorded"),
        checked("same setup", _setups(loaded), "no two runs recorded how they were set up"),
        checked("whole traces", _of_traces(_trace, loaded), "no trace was given"),
        equal,
        checked("replicas", _of_traces(_replicas, loaded), "no trace was given", may_be_empty=True),
        checked("recomputation", _of_traces(_recompute, loaded), "no trace was given", may_be_empty=True),
        resume,
        negative_controls(loaded, equal, resume),
    )
    scope = scope_of(loaded, recipe, len(pairs))
    return Certificate(scope, gates, datetime.now(UTC).isoformat(timespec="seconds"))


class _Pair:
    """A reference and what was resumed from it; equal where both are the same paths or objects."""

    def __init__(self, reference: Any, resumed: Any) -> None:
        self.sides = (reference, resumed)
        self._key = tuple(
            str(Path(side).resolve()) if isinstance(side, str | PathLike) else id(side) for side in self.sides
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pair) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _several(runs: Sequence[Source]) -> Sequence[Source]:
    if isinstance(runs, str | PathLike | Run):
        raise InputError(f"certify was given one run ({runs}).", "give a list of two: certify([a, b])")
    return runs


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Give runs of one label a number behind it: all that is said of them is said by their labels."""
    labels = unique_labels([run.label for run in runs])
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def _recipes(runs: Sequence[Run], recipe: Any, framework: str | None) -> list[Any]:
    """Give the checks of the recipe that was given, of those recorded, and that the former is the latter."""
    recorded = [run for run in runs if any(rank.header.recipe for rank in run.ranks)]
    checks = [partial(_recipe, run) for run in recorded or runs if run.ranks]
    if recipe is None:
        return checks
    of_file = [
        partial(_recipe, recipe, framework),
        *(partial(_contradictions, recipe, run) for run in recorded),
    ]
    return of_file + (checks if recorded else [])


def _setups(runs: Sequence[Run]) -> list[Any]:
    return [partial(_setup, runs[0], other) for other in runs[1:] if runs[0].ranks and other.ranks]


def _of_traces(check: Any, runs: Sequence[Run]) -> list[Any]:
    return [partial(check, run) for run in runs if run.ranks]


def _recipe(source: Any, framework: str | None = None) -> CheckResult:
    from detlab.checks.recipe import check_recipe

    return check_recipe(source, framework=framework)


def _setup(a: Run, b: Run) -> CheckResult:
    from detlab.checks.recipe import compare_recipes

    return compare_recipes(a, b)


def _contradictions(recipe: Any, run: Run) -> CheckResult:
    """Hold what a run recorded against the recipe given: what it does not set may be anything."""
    from detlab.checks.recipe.differences import NOT_SET_HERE
    from detlab.checks.recipe.said import NOT_SET

    found = _setup(recipe, run)
    told = found.findings.filter(~pl.col("a").is_in([NOT_SET, NOT_SET_HERE]) & (pl.col("setting") != ""))
    said = Verified("recipe", f"{len(found.verified)} topics equal where both speak of them")
    return replace(found, findings=told, verified=(said,), problems=(), not_checked=())


def _trace(run: Run) -> CheckResult:
    from detlab.checks.trace import check_trace

    return check_trace(run)


def _replicas(run: Run) -> CheckResult:
    from detlab.checks.replicas import check_replicas

    return check_replicas(run)


def _recompute(run: Run) -> CheckResult:
    from detlab.checks.replicas import check_recompute

    return check_recompute(run)


def _resume(runs: Sequence[Run], pair: _Pair) -> CheckResult:
    """Check one resume; a side that recorded another recipe than the runs is no resume of theirs."""
    from detlab.checks.resume import check_resume
    from detlab.checks.resume.sides import as_side

    sides = [as_side(side, role) for side, role in zip(pair.sides, ("reference", "resumed"), strict=True)]
    for side in sides:
        if side.trace and runs and any(rank.header.recipe for rank in runs[0].ranks):
            other = _setup(runs[0], side.trace)
            if other.verdict == "fail":
                first = other.findings["found"][0]
                raise InputError(f"{side.label} is of another recipe than {runs[0].label}: {first}")
    return check_resume(*sides)

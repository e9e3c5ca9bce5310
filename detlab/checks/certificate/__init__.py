"""The gates of one recipe gathered into a statement: its scope, its evidence, and what was not shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from os import PathLike
from typing import Any, Final, Literal, NamedTuple

from detlab.checks.certificate.gates import Gate, checked, negative_controls, repeatability, resumed
from detlab.checks.result import CheckResult
from detlab.comparison.facts import recorded_hosts
from detlab.comparison.text import as_html
from detlab.readers import as_run
from detlab.run import Run, spans

__all__ = ["Certificate", "Gate", "Scope", "certify"]

REQUIRED: Final = ("recipe", "same setup", "repeatability", "negative controls")
"""Gates without which nothing is certified; what another gate did not show is only told."""

Allocation = Literal["same", "other", "not known"]


class Scope(NamedTuple):
    """What a certificate is about, and about nothing else.

    Attributes
    ----------
    recipe
        Where the recipe was read.
    runs
        Labels of the runs.
    steps, ranks
        Steps and global ranks that all runs show, as text such as ``1-3``.
    world_size
        Number of ranks that trained; 0 where it is not known.
    layout
        Size of each parallel axis.
    allocation
        Whether the runs ran on the same hosts, on others, or nobody says.
    hosts
        The hosts of each run by its label.
    resumes
        Number of resumes that were checked.
    """

    recipe: str
    runs: tuple[str, ...]
    steps: str
    ranks: str
    world_size: int
    layout: Mapping[str, int]
    allocation: Allocation
    hosts: Mapping[str, tuple[str, ...]]
    resumes: int

    def to_json(self) -> dict[str, Any]:
        """Give the scope as it stands in the document."""
        hosts = {label: list(each) for label, each in self.hosts.items()}
        return {**self._asdict(), "runs": list(self.runs), "layout": dict(self.layout), "hosts": hosts}


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
        What `detlab.check_recipe` takes; by default what each run recorded of its own.
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
    loaded = [as_run(run) for run in runs]
    recipes = [recipe] if recipe is not None else [run for run in loaded if run.ranks]
    equal = repeatability(loaded)
    resume = resumed([partial(_resume, *pair) for pair in resumes])
    gates = (
        checked("recipe", [partial(_recipe, each) for each in recipes], "no recipe was given or recorded"),
        checked("same setup", _setups(loaded), "no run recorded how it was set up"),
        checked("whole traces", _of_traces(_trace, loaded), "no trace was given"),
        equal,
        checked("replicas", _of_traces(_replicas, loaded), "no trace was given"),
        checked("recomputation", _of_traces(_recompute, loaded), "no trace was given"),
        resume,
        negative_controls(loaded, equal, resume),
    )
    scope = _scope(loaded, recipe, len(resumes))
    return Certificate(scope, gates, datetime.now(UTC).isoformat(timespec="seconds"))


def _setups(runs: Sequence[Run]) -> list[Any]:
    return [partial(_setup, runs[0], other) for other in runs[1:] if runs[0].ranks and other.ranks]


def _of_traces(check: Any, runs: Sequence[Run]) -> list[Any]:
    return [partial(check, run) for run in runs if run.ranks]


def _recipe(source: Any) -> CheckResult:
    from detlab.checks.recipe import check_recipe

    return check_recipe(source)


def _setup(a: Run, b: Run) -> CheckResult:
    from detlab.checks.recipe import compare_recipes

    return compare_recipes(a, b)


def _trace(run: Run) -> CheckResult:
    from detlab.checks.trace import check_trace

    return check_trace(run)


def _replicas(run: Run) -> CheckResult:
    from detlab.checks.replicas import check_replicas

    return check_replicas(run)


def _recompute(run: Run) -> CheckResult:
    from detlab.checks.replicas import check_recompute

    return check_recompute(run)


def _resume(reference: Any, resumed: Any) -> CheckResult:
    from detlab.checks.resume import check_resume

    return check_resume(reference, resumed)


def _scope(runs: Sequence[Run], recipe: Any, num_resumes: int) -> Scope:
    traced = [run for run in runs if run.ranks]
    steps = [set(run.steps) if run.ranks else set(run.metrics["step"].to_list()) for run in runs]
    ranks = [{rank.header.rank for rank in run.ranks} for run in traced]
    first = traced[0].manifest if traced else None
    hosts = {run.label: recorded_hosts(run) for run in traced if recorded_hosts(run)}
    return Scope(
        recipe="as each run recorded it" if recipe is None else str(getattr(recipe, "label", recipe)),
        runs=tuple(run.label for run in runs),
        steps=spans(sorted(set.intersection(*steps))) if steps else "",
        ranks=spans(sorted(set.intersection(*ranks))) if ranks else "",
        world_size=first.world_size if first else 0,
        layout=dict(first.layout) if first else {},
        allocation=_allocation(runs, hosts),
        hosts=hosts,
        resumes=num_resumes,
    )


def _allocation(runs: Sequence[Run], hosts: Mapping[str, tuple[str, ...]]) -> Allocation:
    if len(runs) < 2 or any(run.label not in hosts for run in runs):
        return "not known"
    return "same" if len(set(hosts.values())) == 1 else "other"

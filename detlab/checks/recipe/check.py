"""``check_recipe``: every rule held against one recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final

import polars as pl

from detlab.checks.recipe.judge import Outcome, judge
from detlab.checks.recipe.rules import RULES
from detlab.checks.recipe.rules.requirements import Before
from detlab.checks.recipe.rules.rule import FRAMEWORKS
from detlab.checks.recipe.settings import Settings
from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.errors import InputError
from detlab.run import Run

Recipe = Run | Settings | Mapping[str, Any] | str | PathLike[str]
"""What says how a run was set up: a run, the path of one or of a file, a mapping, or settings themselves."""

RULE_COLUMNS: Final[dict[str, Any]] = {
    "code": pl.String,
    "setting": pl.String,
    "state": pl.String,
    "says": pl.String,
    "where": pl.String,
}
"""Columns of the table of a recipe's check: one row a rule, with its state: ``holds``, ``broken``,
``not checked`` or ``does not apply``."""

_SWITCHES: Final = frozenset({"args.deterministic_mode", "torch.deterministic"})
"""What turns deterministic algorithms on: of a recipe that speaks of none of them nothing can be said."""

_MORE: Final[dict[str, Any]] = {"setting": pl.String, "otherwise": pl.String, "sources": pl.List(pl.String)}


def check_recipe(
    source: Recipe | None = None, *, model: Any = None, framework: str | None = None
) -> CheckResult:
    """Hold every rule of ``docs/rules.md`` against a recipe.

    Parameters
    ----------
    source
        A run or its path; a configuration in YAML, JSON or TOML; a launch script, which is read and never
        run; a dump of an environment; or a mapping. None reads this process: call it inside training, once
        the model is built.
    model
        Of this process: the model, so that flags that did not reach its modules are seen.
    framework
        ``megatron-lm``, ``megatron-bridge``, ``nemo``, ``torchtitan`` or ``torch``, where the source does not
        tell, as an environment does not.

    Returns
    -------
    Findings with the code of the rule, the setting (``setting``), what it leads to (``otherwise``) and all
    sources (``sources``); what holds in ``verified``; and in ``not_checked`` each rule that the source says
    too little for. A recipe is invalid where its framework is not known, or where it does not say whether
    deterministic algorithms are on. ``table`` has every rule with the columns of `RULE_COLUMNS`. A warning
    or a note fails no check.

    Raises
    ------
    InputError
        The source cannot be read, or is of no known kind; or no framework is called so.
    """
    settings = settings_of(source, model=model)
    return judged(settings if framework is None else replace(settings, framework=_known(framework)))


def _known(framework: str) -> str:
    if framework not in FRAMEWORKS:
        raise InputError(f"no rules are written for '{framework}'.", f"give one of {', '.join(FRAMEWORKS)}")
    return framework


def settings_of(source: Recipe | None, *, model: Any = None) -> Settings:
    """Read the settings of a source, or of this process."""
    if isinstance(source, Settings):
        return source
    if source is None:
        from detlab.checks.recipe.live import live_settings

        return live_settings(model=model)
    from detlab.checks.recipe.sources import read_settings

    return read_settings(source)


def judged(settings: Settings) -> CheckResult:
    """Hold every rule against settings."""
    outcomes = [judge(rule, settings) for rule in RULES]
    broken = [each for each in outcomes if each.state == "broken"]
    return CheckResult(
        check="recipe",
        subjects=(settings.label,),
        findings=findings_frame([_finding(each) for each in broken], _MORE),
        verified=tuple(
            Verified(each.rule.code, each.says, each.where) for each in outcomes if each.state == "holds"
        ),
        not_checked=tuple(
            NotChecked(each.rule.code, each.says) for each in outcomes if each.state == "not checked"
        ),
        problems=(*problems_of(settings), *_undecided(outcomes, settings)),
        table=pl.DataFrame([_row(each) for each in outcomes], RULE_COLUMNS),
    )


def _finding(outcome: Outcome) -> dict[str, Any]:
    rule = outcome.rule
    first = rule.sources[0]
    return {
        "code": rule.code,
        "severity": rule.severity,
        "found": outcome.says,
        "expected": "" if isinstance(rule.accepts, Before) else rule.accepts.spoken,
        "where": outcome.where,
        "why": rule.why,
        "next": rule.fix,
        "source": f"{first.title}, {first.url}",
        "setting": rule.settings[0],
        "otherwise": rule.otherwise,
        "sources": [f"{source.title}, {source.url}" for source in rule.sources],
    }


def _row(outcome: Outcome) -> dict[str, str]:
    rule = outcome.rule
    return {
        "code": rule.code,
        "setting": ", ".join(rule.settings),
        "state": outcome.state,
        "says": outcome.says,
        "where": outcome.where,
    }


def problems_of(settings: Settings) -> tuple[Problem, ...]:
    """Give what could not be read; the place of each begins with the label, which is said once."""
    start = f"{settings.label}: "
    return tuple(Problem(settings.label, problem.removeprefix(start)) for problem in settings.problems)


def _undecided(outcomes: Sequence[Outcome], settings: Settings) -> Iterator[Problem]:
    """Say what keeps a recipe from passing: rules of nobody knows which framework, or of its main switch."""
    if not settings.framework:
        what = "the source does not name its framework, so that the rules of one were not checked"
        yield Problem(settings.label, f"{what}; give framework=… (--framework)")
    elif not any(
        each.rule.settings[0] in _SWITCHES and each.state in ("holds", "broken") for each in outcomes
    ):
        what = "the source does not say whether deterministic algorithms are on"
        yield Problem(settings.label, f"{what}; give the arguments or the recorded run too")

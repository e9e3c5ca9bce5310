"""``compare_recipes``: were two runs set up alike, and does what differs matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from detlab.catalog.entry import github
from detlab.checks.recipe.check import Recipe, problems_of, settings_of
from detlab.checks.recipe.differences import Difference, difference, is_unsure, weight
from detlab.checks.recipe.judge import named
from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.topics import SEVERITY, TOPICS, topic_of
from detlab.checks.result import CheckResult, NotChecked, Verified, findings_frame
from detlab.text import plural

DIFFERENCE_COLUMNS: Final[dict[str, Any]] = {
    "setting": pl.String,
    "topic": pl.String,
    "group": pl.String,
    "a": pl.String,
    "b": pl.String,
}
"""Columns of the table of differences: the setting, what it is about, what the difference is worth, and
what each run says."""

_MAX_NAMED: Final = 6
_CROSS_ALLOCATION: Final = github("NVIDIA/Megatron-LM#1881")


def compare_recipes(a: Recipe, b: Recipe) -> CheckResult:
    """List what two runs do not share, by what it means for a comparison of their bits.

    Parameters
    ----------
    a, b
        Two recipes, each of any kind that `check_recipe` reads.

    Returns
    -------
    One finding a setting that is not equal, with the setting, its group (``breaks the comparison``: an
    error; ``may explain a difference``: a warning; ``harmless``: a note) and both values (``setting``,
    ``group``, ``a``, ``b``). ``verified`` has each topic of which all that both say is equal, and
    ``not_checked`` what only one of them speaks of, or neither. ``table`` has all differences.

    Raises
    ------
    InputError
        A source cannot be read, or is of no known kind.
    """
    return compared(settings_of(a), settings_of(b))


def compared(a: Settings, b: Settings) -> CheckResult:
    """Compare the settings of two runs."""
    names = sorted(set(a.by_name) | set(b.by_name))
    one_sided = [name for name in names if not (_is_known(a, name) and _is_known(b, name))]
    common = [name for name in names if name not in set(one_sided)]
    found = [each for name in common if (each := difference(name, a, b)) is not None]
    found.sort(key=weight)
    differs = {each.setting for each in found}
    open_names = [
        name for name in common if name not in differs and (is_unsure(name, a) or is_unsure(name, b))
    ]
    return CheckResult(
        check="recipe",
        subjects=(a.label, b.label),
        findings=findings_frame(
            [*_frameworks(a, b), *map(_finding, found)],
            {"setting": pl.String, "group": pl.String, "a": pl.String, "b": pl.String},
        ),
        verified=tuple(_equal([name for name in common if name not in open_names], found)),
        not_checked=(*_as_written(open_names), *_unknown(names, one_sided, a)),
        problems=(*problems_of(a), *problems_of(b)),
        notes=tuple(_notes(found)),
        table=pl.DataFrame(
            [(each.setting, each.topic.name, each.group, each.a, each.b) for each in found],
            DIFFERENCE_COLUMNS,
            orient="row",
        ),
    )


def _is_known(settings: Settings, name: str) -> bool:
    return bool(settings.by_name.get(name)) or settings.unset_here(name)


def _frameworks(a: Settings, b: Settings) -> Iterator[dict[str, Any]]:
    """Say that two recipes are of two frameworks."""
    if a.framework and b.framework and a.framework != b.framework:
        yield {
            "component": "framework",
            "severity": "error",
            "found": f"{a.framework} in {a.label}, {b.framework} in {b.label}",
            "expected": "equal",
            "why": "two frameworks make other calls in another order",
            "next": "compare two runs of one framework",
            "setting": "",
            "group": "breaks the comparison",
            "a": a.framework,
            "b": b.framework,
        }


def _finding(each: Difference) -> dict[str, Any]:
    advice = {
        "breaks the comparison": "make it equal and run again before the bits are compared",
        "may explain a difference": "if the bits differ, make it equal and compare again",
        "harmless": "",
    }
    return {
        "component": each.topic.name,
        "severity": SEVERITY[each.group],
        "found": f"{named(each.setting)} is {each.a} and {each.b}",
        "expected": "" if each.group == "harmless" else "equal",
        "where": each.where,
        "why": each.topic.why,
        "next": advice[each.group],
        "setting": each.setting,
        "group": each.group,
        "a": each.a,
        "b": each.b,
    }


def _equal(common: Sequence[str], found: Sequence[Difference]) -> Iterator[Verified]:
    """Give the topics of which everything that both say is equal."""
    differs = {each.topic.name for each in found}
    counts = Counter(topic_of(name).name for name in common)
    for topic in TOPICS:
        number = counts[topic.name]
        if number and topic.name not in differs:
            yield Verified(topic.name, f"{number} {plural('setting', number)}, equal in both")


def _as_written(open_names: Sequence[str]) -> Iterator[NotChecked]:
    """Give the topics with settings that are equal as they are written, and hold what is not known."""
    for topic in TOPICS:
        of_topic = [named(name) for name in open_names if topic_of(name) is topic]
        if of_topic and topic.group != "harmless":
            yield NotChecked(
                topic.name,
                f"equal as written, with a variable or a branch that decides in the run: {_listed(of_topic)}",
            )


def _unknown(names: Sequence[str], one_sided: Sequence[str], a: Settings) -> Iterator[NotChecked]:
    """Give the topics that neither speaks of, and the settings that only one does."""
    spoken_of = {topic_of(name).name for name in names}
    for topic in TOPICS:
        if topic.required and topic.name not in spoken_of:
            yield NotChecked(topic.name, "neither says anything of it")
        alone = [name for name in one_sided if topic_of(name) is topic and topic.group != "harmless"]
        for side, other in (("first", "second"), ("second", "first")):
            of_side = [named(name) for name in alone if (name in a.by_name) == (side == "first")]
            if of_side:
                yield NotChecked(
                    topic.name, f"only the {side} says {_listed(of_side)}; the {other} does not say"
                )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _notes(found: Sequence[Difference]) -> Iterator[str]:
    counts = Counter(each.group for each in found)
    if found:
        yield "; ".join(f"{counts[group]} {group}" for group in SEVERITY if counts[group])
    telling = {each.topic.name for each in found if each.group != "harmless"}
    if telling == {"hosts and topology"}:
        names = ", ".join(named(each.setting) for each in found if each.topic.name in telling)
        yield (
            f"beside what is harmless only hosts and topology differ ({names}): a difference of these runs "
            f"is ENVIRONMENT, not run-to-run, until two on one topology differ ({_CROSS_ALLOCATION.url})"
        )

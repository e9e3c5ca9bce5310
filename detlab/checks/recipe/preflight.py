"""``compare_recipes``: were two runs set up alike, and does what differs matter."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.catalog.entry import github
from detlab.checks.recipe.check import Recipe, settings_of
from detlab.checks.recipe.judge import named
from detlab.checks.recipe.rules.requirements import written
from detlab.checks.recipe.settings import Setting, Settings, Value
from detlab.checks.recipe.topics import SEVERITY, TOPICS, Topic, topic_of
from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.text import plural, shorten

DIFFERENCE_COLUMNS: Final[dict[str, Any]] = {
    "setting": pl.String,
    "topic": pl.String,
    "group": pl.String,
    "a": pl.String,
    "b": pl.String,
}
"""Columns of the table of differences: the setting, what it is about, what the difference is worth, and
what each run says."""

_ABSENT: Final = "not set"
_NUMBERED: Final = ("args", "torch", "place")
"""Kinds of settings whose texts may be numbers: 1e-4 is 0.0001; a version 3.10 is not 3.1."""

_RANKS: Final = re.compile(r"rank [0-9][0-9, -]*$")
_MAX_NAMED: Final = 6
_CROSS_ALLOCATION: Final = github("NVIDIA/Megatron-LM#1881")


class Difference(NamedTuple):
    """One setting that two runs do not share.

    Attributes
    ----------
    setting
        Its name, see `detlab.checks.recipe.settings`.
    topic
        What it is about and what a difference is worth.
    a, b
        What each run says.
    where
        The places that say so.
    """

    setting: str
    topic: Topic
    a: str
    b: str
    where: str


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
    found = [each for name in common if (each := _difference(name, a, b)) is not None]
    found.sort(key=_weight)
    return CheckResult(
        check="recipe",
        subjects=(a.label, b.label),
        findings=findings_frame(
            [*_frameworks(a, b), *map(_finding, found)],
            {"setting": pl.String, "group": pl.String, "a": pl.String, "b": pl.String},
        ),
        verified=tuple(_equal(common, found)),
        not_checked=tuple(_unknown(names, one_sided, a)),
        problems=tuple(Problem(each.label, problem) for each in (a, b) for problem in each.problems),
        notes=tuple(_notes(found)),
        table=pl.DataFrame(
            [(each.setting, each.topic.name, each.topic.group, each.a, each.b) for each in found],
            DIFFERENCE_COLUMNS,
            orient="row",
        ),
    )


def _weight(difference: Difference) -> tuple[int, int, str]:
    """Order differences: the worst first, then by topic and name."""
    topic = difference.topic
    return list(SEVERITY).index(topic.group), TOPICS.index(topic), difference.setting


def _is_known(settings: Settings, name: str) -> bool:
    return bool(settings.by_name.get(name)) or settings.says_all_of(name)


def _difference(name: str, a: Settings, b: Settings) -> Difference | None:
    """Compare one setting: as sets of values, and rank by rank where ranks do not agree."""
    said_a, said_b = a.by_name.get(name, ()), b.by_name.get(name, ())
    if _as_compared(name, said_a) == _as_compared(name, said_b):
        return None
    where = ", ".join(dict.fromkeys(said[0].where for said in (said_a, said_b) if said and said[0].where))
    return Difference(name, topic_of(name), _shown(said_a), _shown(said_b), where)


def _as_compared(name: str, said: Sequence[Setting]) -> frozenset[tuple[str, str]]:
    values = {(_plain(name, each.value), _ranks(each)) for each in said} - {(_ABSENT, "")}
    if len({value for value, _ in values}) == 1:
        return frozenset((value, "") for value, _ in values)
    return frozenset(values)


def _plain(name: str, value: Value) -> str:
    """Write a value so that spellings of one number or flag are equal."""
    text = written(value)
    if value is None or (not text and not name.startswith("env.")):
        return _ABSENT
    if not name.startswith(_NUMBERED):
        return text
    if text.lower() in ("true", "false"):
        return text.lower()
    try:
        return repr(float(text))
    except ValueError:
        return text


def _ranks(setting: Setting) -> str:
    """Name the ranks that say it; nothing where all of them do, or where it is no matter of ranks."""
    return next((part for part in setting.where.split(": ") if _RANKS.match(part)), "")


def _shown(said: Sequence[Setting]) -> str:
    texts: dict[str, list[str]] = defaultdict(list)
    for each in said:
        texts[shorten(written(each.value)) or _ABSENT].append(_ranks(each))
    if len(texts) <= 1:
        return next(iter(texts), _ABSENT)
    return "; ".join(
        f"{text} ({', '.join(filter(None, ranks))})" if any(ranks) else text for text, ranks in texts.items()
    )


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


def _finding(difference: Difference) -> dict[str, Any]:
    topic = difference.topic
    advice = {
        "breaks the comparison": "make it equal and run again before the bits are compared",
        "may explain a difference": "if the bits differ, make it equal and compare again",
        "harmless": "",
    }
    return {
        "component": topic.name,
        "severity": SEVERITY[topic.group],
        "found": f"{named(difference.setting)} is {difference.a} and {difference.b}",
        "expected": "" if topic.group == "harmless" else "equal",
        "where": difference.where,
        "why": topic.why,
        "next": advice[topic.group],
        "setting": difference.setting,
        "group": topic.group,
        "a": difference.a,
        "b": difference.b,
    }


def _equal(common: Sequence[str], found: Sequence[Difference]) -> Iterator[Verified]:
    """Give the topics of which everything that both say is equal."""
    differs = {each.topic.name for each in found}
    counts = Counter(topic_of(name).name for name in common)
    for topic in TOPICS:
        number = counts[topic.name]
        if number and topic.name not in differs:
            yield Verified(topic.name, f"{number} {plural('setting', number)} of both are equal")


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
    counts = Counter(each.topic.group for each in found)
    if found:
        yield "; ".join(f"{counts[group]} {group}" for group in SEVERITY if counts[group])
    telling = {each.topic.name for each in found if each.topic.group != "harmless"}
    if telling == {"hosts and topology"}:
        names = ", ".join(named(each.setting) for each in found if each.topic.name in telling)
        yield (
            f"beside what is harmless only hosts and topology differ ({names}): a difference of these runs "
            f"is ENVIRONMENT, not run-to-run, until two on one topology differ ({_CROSS_ALLOCATION.url})"
        )

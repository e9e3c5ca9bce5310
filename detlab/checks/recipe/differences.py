"""Which settings two recipes do not share: one line a setting, with what each says and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from detlab.checks.recipe.said import NOT_SET, is_open, ranks_of, shown, written
from detlab.checks.recipe.settings import Setting, Settings, Value
from detlab.checks.recipe.topics import SEVERITY, TOPICS, Group, Topic, topic_of

NOT_SET_HERE: Final = "not set here"
"""What a launch script says of a variable that it leaves to whoever starts it."""

_EXPLAINS: Final[Group] = "may explain a difference"
_NUMBERED: Final = ("args.", "torch.", "place.")
"""Kinds of settings whose texts may be numbers: 1e-4 is 0.0001; a version 3.10 is not 3.1."""


class Difference(NamedTuple):
    """One setting that two runs do not share.

    Attributes
    ----------
    setting
        Its name, see `detlab.checks.recipe.settings`.
    topic
        What it is about.
    group
        What the difference is worth: as its topic says, but no more than ``may explain a difference`` where
        one side may have the same by default, from elsewhere, or by a variable of the shell.
    a, b
        What each run says.
    where
        The places that say so.
    """

    setting: str
    topic: Topic
    group: Group
    a: str
    b: str
    where: str


def difference(name: str, a: Settings, b: Settings) -> Difference | None:
    """Compare one setting: as sets of values, and rank by rank where ranks do not agree."""
    said_a, said_b = a.by_name.get(name, ()), b.by_name.get(name, ())
    if as_compared(name, said_a) == as_compared(name, said_b):
        return None
    text_a = shown(said_a) if said_a or a.says_all_of(name) else NOT_SET_HERE
    text_b = shown(said_b) if said_b or b.says_all_of(name) else NOT_SET_HERE
    places = dict.fromkeys(said[0].where for said in (said_a, said_b) if said and said[0].where)
    topic = topic_of(name)
    texts = {text_a, text_b}
    is_guessed = (
        NOT_SET_HERE in texts or texts == {"false", NOT_SET} or is_unsure(name, a) != is_unsure(name, b)
    )
    group = _EXPLAINS if is_guessed and topic.group != "harmless" else topic.group
    return Difference(name, topic, group, text_a, text_b, ", ".join(places))


def is_unsure(name: str, settings: Settings) -> bool:
    """Say whether a variable or a branch of the script decides what a setting is."""
    return any(map(is_open, settings.by_name.get(name, ()))) or bool(settings.condition(name))


def weight(each: Difference) -> tuple[int, int, str]:
    """Order differences: the worst first, then by topic and name."""
    return list(SEVERITY).index(each.group), TOPICS.index(each.topic), each.setting


def as_compared(name: str, said: Sequence[Setting]) -> frozenset[tuple[str, str]]:
    """Give what is said of a setting so that equal values are equal, with ranks where they do not agree."""
    values = {(_plain(name, each.value), ranks_of(each)) for each in said}
    if len({value for value, _ in values}) == 1:
        values = {(value, "") for value, _ in values}
    return frozenset(values - {(NOT_SET, "")})


def _plain(name: str, value: Value) -> str:
    """Write a value so that spellings of one number or flag are equal."""
    text = written(value)
    if value is None or (not text and not name.startswith("env.")):
        return NOT_SET
    if not name.startswith(_NUMBERED):
        return text
    if text.lower() in ("true", "false"):
        return repr(float(text.lower() == "true"))  # a flag may be written as 1 or 0
    try:
        return repr(float(text))
    except ValueError:
        return text

"""How one value of a setting is written, which ranks say it, and several values in one line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from detlab.checks.recipe.settings import Setting, Value
from detlab.text import shorten

NOT_SET: Final = "not set"

_RANKS: Final = re.compile(r"ranks? [0-9][0-9, -]*$")
_OPEN: Final = re.compile(r"\$\{|\$\(|\$[A-Za-z_]|`|\$\$")
"""What a shell or a launcher would have put something else for."""

_MAX_TEXT: Final = 200
_MAX_VALUES: Final = 6


def written(value: Value) -> str:
    """Write a value as a shell would: flags as true and false, what is missing as nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value).strip()


def is_open(setting: Setting) -> bool:
    """Say whether a value holds a variable or a command, so that it is not known what it is in the run."""
    return isinstance(setting.value, str) and _OPEN.search(setting.value) is not None


def ranks_of(setting: Setting) -> str:
    """Name the ranks that say it; nothing where all of them do, or where it is no matter of ranks."""
    return next((part for part in setting.where.split(": ") if _RANKS.match(part)), "")


def shown(said: Sequence[Setting]) -> str:
    """Give what is said of a setting for people: its value, or its values with their ranks.

    Long texts are cut in their middle, and of many values the first are given.
    """
    texts: dict[str, list[str]] = defaultdict(list)
    for each in said:
        text = NOT_SET if each.value is None else shorten(written(each.value), _MAX_TEXT) or "empty"
        texts[text].append(ranks_of(each))
    if len(texts) <= 1:
        return next(iter(texts), NOT_SET)
    parts = [
        f"{text} ({', '.join(filter(None, ranks))})" if any(ranks) else text
        for text, ranks in list(texts.items())[:_MAX_VALUES]
    ]
    more = len(texts) - _MAX_VALUES
    return "; ".join([*parts, *([f"and {more} more values"] if more > 0 else [])])

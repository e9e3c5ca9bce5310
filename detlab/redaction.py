"""What must not leave a house with a text: how paths and names of machines are found in it, and taken out.

Text is taken apart and cut in many places, so what is to be taken out is in force for all of them at once:
`redacting` says what, and whatever cuts a text or makes it safe to show asks `redacted` first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

PATH: Final = re.compile(
    r"(?:file://|(?<![\w/.<]))~?(?:/[\w.+@~-]+){2,}/?"
    r"|(?<![\w/.<~])~\w+(?:/[\w.+@~-]+)+/?"
    r"|(?<!\w)[A-Za-z]:\\[^\s'\"<>(),;]+"
    r"|(?<![\w\\])\\\\[\w.$-]+\\[^\s'\"<>(),;]+"
    r"|(?<![\w.%])(?:%2F(?:[\w.+~-]|%40|%23|%25)+){2,}"
)
"""An absolute path of two parts or more, also as it is written inside a site (``/`` as ``%2F``).

A site such as ``1/0/backward/…`` is none: it begins with a number.
"""

_HOMES: Final = {"home", "users", "u"}
_SEPARATORS: Final = re.compile(r"[/\\]|%2F")


def replace_paths(text: str, replacement: Callable[[str], str]) -> str:
    """Put something else in the place of every absolute path in a text."""
    return PATH.sub(lambda match: replacement(match[0]), text)


def last_part(path: str) -> str:
    """Give the name of a file or folder without the way to it; empty for the home of a user."""
    parts = [part for part in _SEPARATORS.split(path.removeprefix("file://")) if part]
    is_home = len(parts) == 2 and parts[0].lower() in _HOMES
    is_user = len(parts) == 1 and path.startswith("~")
    return parts[-1] if parts and not is_home and not is_user else ""


def whole_word(name: str) -> re.Pattern[str]:
    """Give the expression that finds a name where it is no part of a longer word, in either case."""
    return re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])", re.IGNORECASE)


_in_force: ContextVar[Callable[[str], str] | None] = ContextVar("redactor", default=None)


def redacted(text: str) -> str:
    """Give a text without what the redactor in force takes out; without one, as it is."""
    redactor = _in_force.get()
    return redactor(text) if redactor else text


@contextmanager
def redacting(redactor: Callable[[str], str] | None) -> Iterator[None]:
    """Let a redactor be in force."""
    token = _in_force.set(redactor)
    try:
        yield
    finally:
        _in_force.reset(token)

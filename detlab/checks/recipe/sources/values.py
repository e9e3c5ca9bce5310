"""What a setting's value is: text of shells and scripts as flags and numbers, and no secrets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Final

from detlab.checks.recipe.settings import Value

_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
"""No leading zeros and no underscores: those are parts of names and dates."""

_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")

_WORDS: Final[dict[str, Value]] = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    "null": None,
    "None": None,
    "~": None,
}

_SECRET_VARIABLE: Final = re.compile(
    r"(?i)(?:^|_)(?:TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|API_?KEY|ACCESS_KEY(?:_ID)?|CREDENTIALS?|PRIVATE_KEY"
    r"|AUTH|COOKIE|SESSION_ID|KEY)(?:_|$)"
)
_SECRET_ARGUMENT: Final = re.compile(
    r"(?i)(?:^|[._])(?:secret|passw(?:or)?d|api_?key|access_key|private_key|(?:hf|auth|access|wandb)_token)"
    r"(?:$|[._])"
)
_SECRET_INSIDE: Final = re.compile(
    r"\b([A-Z0-9_]*(?:API_KEY|_TOKEN|SECRET|SECRET_KEY|ACCESS_KEY|PASSWORD)=)\S+"
)
"""A secret that is assigned inside of a text, such as a command that is exported."""
_LOGIN: Final = re.compile(r"(?<=://)[^/@:\s]{1,200}:[^/@\s]{1,200}(?=@)")

HIDDEN: Final = "(hidden)"
"""Stands for a value that looks like a secret; it is never kept."""


def literal(text: str) -> Value:
    """Read a word of a command line, or an unquoted one of a YAML file: flags, numbers, None, else the word.

    Words of YAML 1.1 that YAML 1.2 and shells take for words stay words: ``off``, ``4096:8``, ``0o17``,
    ``2024-01-01``. A number is one as Python and argparse read it: ``1e-5`` and ``.01`` too.
    """
    word = text.strip()
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    number = float(word) if _FLOAT.fullmatch(word) else math.inf
    return number if math.isfinite(number) else text


def joined(values: Iterable[Value]) -> Value:
    """Write the items of a list as one value, joined by commas; a single one stays what it is."""
    items = list(values)
    return items[0] if len(items) == 1 else ",".join(map(as_text, items))


def as_text(value: Value) -> str:
    """Write a value as a process would be given it in its environment."""
    return str(value) if isinstance(value, str) else json.dumps(value)


def without_secrets(name: str, value: Value) -> Value:
    """Give the value of a setting, or `HIDDEN` where its name says that it is a secret."""
    kind, _, rest = name.partition(".")
    pattern = _SECRET_VARIABLE if kind == "env" else _SECRET_ARGUMENT
    if value not in (None, "") and not isinstance(value, bool) and pattern.search(rest):
        return HIDDEN
    if not isinstance(value, str):
        return value
    return _SECRET_INSIDE.sub(rf"\1{HIDDEN}", _LOGIN.sub(HIDDEN, value))

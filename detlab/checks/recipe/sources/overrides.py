"""Overrides of a configuration, one a line or word: ``model.deterministic_mode=true``, ``++trainer.x=1``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from detlab.checks.recipe.settings import Settings, Value
from detlab.checks.recipe.sources import names
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import decoded
from detlab.checks.recipe.sources.tree import framework_of, variable_of
from detlab.checks.recipe.sources.values import literal

OVERRIDE: Final = re.compile(r"[+]{0,2}([A-Za-z_][\w-]*(?:[./][\w@-]+)*)=(.*)", re.DOTALL)
"""One override as Hydra and OmegaConf write it; ``+`` and ``++`` add the key."""

_REMOVED: Final = re.compile(r"~([A-Za-z_][\w-]*(?:\.[\w@-]+)*)(?:=.*)?")


def recognise(path: Path, content: bytes) -> bool:
    """Say whether every line is an override, and one of them has a dotted name."""
    lines = [line.strip() for line in decoded(content).split("\n")]
    said = [line for line in lines if line and not line.startswith("#")]
    known = [OVERRIDE.fullmatch(line) or _REMOVED.fullmatch(line) for line in said]
    return bool(said) and all(known) and any("." in each[1] for each in known if each)


def read(path: Path, content: bytes) -> Settings:
    """Read a file of overrides; what they leave alone stands in a configuration elsewhere."""
    found = Found(path.name)
    numbered = list(enumerate(decoded(content, found).split("\n"), 1))
    pairs = {each[1]: each[2] for _, line in numbered if (each := OVERRIDE.fullmatch(line.strip()))}
    framework = framework_of(pairs)
    for number, line in numbered:
        say_override(line.strip(), found, framework, f"line {number}")
    found.partly.add("args")
    return found.finish(path.name, framework)


def say_override(word: str, found: Found, framework: str, where: str) -> bool:
    """Say what one override sets; false where the word is none."""
    removed, given = _REMOVED.fullmatch(word), OVERRIDE.fullmatch(word)
    if removed:
        found.say(names.field(removed[1].split("."), framework), None, where)
    elif given:
        dotted = given[1].replace("/", ".")
        variable = variable_of(dotted)
        if variable:
            found.say_variable(variable, given[2].strip("\"'"), where)
        else:
            found.say(names.field(dotted.split("."), framework), _value(given[2]), where)
    return bool(removed or given)


def _value(text: str) -> Value:
    """Read the value of an override: quotes make text of it, a list is its items joined by commas."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return ",".join(item.strip().strip("\"'") for item in text[1:-1].split(","))
    return literal(text)

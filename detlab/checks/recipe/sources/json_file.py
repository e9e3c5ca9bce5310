"""JSON: configurations, settings by their own names, and what container runtimes say of a container."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import decoded
from detlab.checks.recipe.sources.tree import tree_settings
from detlab.errors import InputError

_START: Final = re.compile(rb"\{|\[\s*[\[{\"\]]")


def recognise(path: Path, content: bytes) -> bool:
    """Say whether a file begins as JSON."""
    return bool(_START.match(content.removeprefix(codecs.BOM_UTF8).lstrip()))


def read(path: Path, content: bytes) -> Settings:
    """Read the settings of a JSON file."""
    found = Found(path.name)
    tree = parse(decoded(content, found), found)
    container = container_of(tree)
    return tree_settings(container or tree, found, path.name)


def parse(text: str, found: Found) -> Any:
    """Read JSON; a key that stands twice is a problem, and NaN and infinities are text.

    Raises
    ------
    InputError
        It is no JSON.
    """

    def pairs(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        tree = dict(items)
        if len(tree) < len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            found.miss(twice, "the key stands more than once in one object; the last one is taken")
        return tree

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=lambda word: str(float(word)))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{found.at(f'line {error.lineno}, column {error.colno}')}: it is no JSON: {error.msg}.",
            "give JSON that a JSON reader accepts",
        ) from None
    except (RecursionError, ValueError):
        raise InputError(
            f"{found.place} is nested deeper, or has longer numbers, than any configuration.",
            "give the configuration of one run",
        ) from None


def container_of(tree: Any) -> dict[str, Any] | None:
    """Take the environment and the image out of what a container runtime says of a container.

    Known are ``docker inspect`` and its kin (``Config.Env``, ``Env``) and a runtime bundle (``process.env``).
    """
    first = tree[0] if isinstance(tree, list) and len(tree) == 1 else tree
    if not isinstance(first, Mapping):
        return None
    config, process = first.get("Config"), first.get("process")
    holder = config if isinstance(config, Mapping) else first
    listed = holder.get("Env")
    if not isinstance(listed, list) and isinstance(process, Mapping):
        listed = process.get("env")
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return None
    pairs = (each.partition("=") for each in listed)
    image = holder.get("Image")
    version = {"version": {"container": image}} if isinstance(image, str) and image else {}
    return {"env": {name: value for name, equals, value in pairs if equals}, **version}

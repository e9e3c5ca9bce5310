"""TOML: torchtitan's job configurations and others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import decoded
from detlab.checks.recipe.sources.tree import tree_settings
from detlab.errors import InputError

_TABLE: Final = re.compile(rb"^\[\[?[A-Za-z0-9_.\"' -]+\]\]?[ \t]*(?:#.*)?\r?$", re.MULTILINE)
_PAIR: Final = re.compile(rb"^[A-Za-z0-9_.-]+[ \t]+=[ \t]+\S", re.MULTILINE)


def recognise(path: Path, content: bytes) -> bool:
    """Say whether a file has tables and pairs as TOML has."""
    return bool(_TABLE.search(content) and _PAIR.search(content)) and not content.startswith(b"#!")


def read(path: Path, content: bytes) -> Settings:
    """Read the settings of a TOML file."""
    found = Found(path.name)
    return tree_settings(parse(decoded(content, found), found), found, path.name)


def parse(text: str, found: Found) -> dict[str, Any]:
    """Read TOML.

    Raises
    ------
    InputError
        It is no TOML; a key that stands twice is none.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{found.place} is no TOML: {error}.", "give TOML that a TOML reader accepts"
        ) from None
    except RecursionError:
        raise InputError(
            f"{found.place} is nested deeper than any configuration.", "give the configuration of one run"
        ) from None

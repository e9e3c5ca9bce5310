"""The scripts that browsers get: modules joined into one, since neither a widget nor a file imports any."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

MAP_PARTS: Final = (
    "map_basics.js",
    "map_colours.js",
    "map_cells.js",
    "map_over.js",
    "map_frame.js",
    "map_words.js",
    "map_controls.js",
    "map_screen.js",
    "map_cursor.js",
    "map_hand.js",
    "map.js",
)
"""Modules of the divergence map, each after those it imports from; the last one exports ``render``."""

_IMPORT: Final = re.compile(r"^import\b[^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const)\b)", re.MULTILINE)


def read_static(name: str) -> str:
    """Read a file that browsers get."""
    return files("detlab.views").joinpath("static", name).read_text("utf-8")


def joined(names: Sequence[str]) -> str:
    """Write modules as one, without what they import from each other; a default export stays."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", read_static(name))) for name in names)


@cache
def map_script() -> str:
    """Give the divergence map as one module: its default export is ``{render}``."""
    return joined(MAP_PARTS)

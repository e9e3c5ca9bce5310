"""The one script of a page: the map as the notebook has it, and what answers it without a kernel."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from functools import cache
from typing import Final

from detlab.views.scripts import joined, map_script

PARTS: Final = ("offline_cells.js", "offline_calls.js", "offline_source.js", "offline.js")
"""Modules that answer the map, each after those it imports from."""

_COMMENT: Final = re.compile(r"^[ \t]*(?://.*|/\*\*[\s\S]*?\*/)\n", re.MULTILINE)
"""A comment on lines of its own; a page need not carry what the sources say."""

_DRAWS: Final = re.compile(r"^export default (?=\{)", re.MULTILINE)


@cache
def offline_code() -> str:
    """Give the modules that answer the map as one script: a page opened from its file can import none."""
    return joined(PARTS)


@cache
def page_script() -> str:
    """Give the script of the page: the map's own code, what answers it, and the start."""
    drawn, count = _DRAWS.subn("return ", map_script())
    assert count == 1, "map.js has one default export"
    script = f"const map = (() => {{\n{drawn}}})();\n{offline_code()}\nstart(map.render);\n"
    return f"// The sources, with comments: detlab/views/static\n{_COMMENT.sub('', script)}"


def csp_hash(script: str) -> str:
    """Name a script so that a content security policy lets it run, and no other."""
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"

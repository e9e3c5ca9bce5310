"""A log of Megatron-LM, which prints every argument when it begins: ``name ........ value``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.sources import names
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import decoded
from detlab.checks.recipe.sources.values import literal
from detlab.errors import InputError

_BEGIN: Final = re.compile(rb"-{4,} arguments -{4,}")
_END: Final = re.compile(r"-{4,} end of arguments -{4,}")
_ARGUMENT: Final = re.compile(r"(?:^|[\s\]:])([A-Za-z_]\w*) \.{3,} ?(.*)$")


def recognise(path: Path, content: bytes) -> bool:
    """Say whether a log has the arguments in its beginning."""
    return bool(_BEGIN.search(content))


def read(path: Path, content: bytes) -> Settings:
    """Read the arguments that Megatron-LM printed; where it printed them again, the last ones are taken."""
    found = Found(path.name)
    lines = decoded(content).split("\n")
    starts = [number for number, line in enumerate(lines) if _BEGIN.search(line.encode("utf-8", "replace"))]
    if not starts:
        raise InputError(
            f"{path} has no arguments of Megatron-LM.", "give the log of the first rank, from its beginning"
        )
    for number, line in enumerate(lines[starts[-1] + 1 :], starts[-1] + 2):
        if _END.search(line):
            found.kinds.add("args")
            break
        argument = _ARGUMENT.search(line)
        if argument:
            where = f"line {number}"
            found.say(names.field([argument[1]], ""), _printed(argument[2].strip()), where)
    else:
        found.miss(f"line {starts[-1] + 1}", "the arguments that begin here do not end")
    found.partly.add("args")
    return found.finish(path.name, "megatron-lm")


def _printed(text: str) -> str | int | float | bool | None:
    """Read a value as Python prints it; a list is its items joined by commas."""
    if text.startswith("[") and text.endswith("]"):
        return ",".join(item.strip().strip("\"'") for item in text[1:-1].split(","))
    return literal(text)

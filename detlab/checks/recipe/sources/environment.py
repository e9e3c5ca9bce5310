"""Dumps of an environment: ``env``, ``env -0``, ``printenv``, ``export -p``, /proc/PID/environ, env files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import decoded
from detlab.errors import InputError

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_LINE: Final = re.compile(rf"({_NAME})=(.*)")
_ANY_NAME: Final = re.compile(r"[^\s=\"'$`;|&]+=")
"""A name as an environment can hold it: bash puts ``%%`` behind the names of functions."""
_DECLARED: Final = re.compile(rf"declare -[a-z]*x[a-z]* {_NAME}")
_CODE: Final = re.compile(
    r"\s*(?:export|unset|source|if|then|for|while|case|function|exec|eval|set|srun|sbatch|mpirun|torchrun|python[0-9.]*"
    r"|bash|sh|docker|cd|echo|\.)\s"
)
"""How a line of a script begins that is no assignment."""


class Variable(NamedTuple):
    """One variable of a dump and the line that it begins on; 0 where there are no lines."""

    name: str
    value: str
    line: int


def recognise(path: Path, content: bytes) -> bool:
    """Say whether a file is nothing but variables."""
    if b"\0" in content:
        return bool(re.match(rb"[^\0=\s]+=", content)) and not _is_wide(content)
    lines = [line for line in decoded(content).split("\n") if line.strip() and not line.startswith("#")]
    if not lines:
        return False
    if _DECLARED.match(lines[0]):
        return True
    is_code = any(_CODE.match(line) for line in lines)
    return (path.suffix.lower() == ".env" or bool(_LINE.match(lines[0]))) and not is_code


def _is_wide(content: bytes) -> bool:
    """Say whether zeros are halves of characters, and end no entries."""
    return content.startswith((b"\xff\xfe", b"\xfe\xff")) or content[1:2] == b"\0"


def read(path: Path, content: bytes) -> Settings:
    """Read a dump of an environment.

    An environment with a PATH is that of a process and is whole: what is not in it is unset. Without one it
    is a part of one, such as an env file or the lines that somebody picked.
    """
    found = Found(path.name)
    variables = list(_entries(content, found))
    if not variables:
        raise InputError(f"{path} holds no variable.", "give what env or env -0 prints")
    for name, value, line in variables:
        found.say_variable(name, value, f"line {line}" if line else name)
    found.partly.add("env")
    if any(each.name == "PATH" for each in variables):
        found.kinds.add("env")
    return found.finish(path.name, "")


def _entries(content: bytes, found: Found) -> Iterator[Variable]:
    if b"\0" in content and not _is_wide(content):
        for entry in content.split(b"\0"):
            name, equals, value = entry.decode("utf-8", "backslashreplace").partition("=")
            if equals and re.fullmatch(_NAME, name):
                yield Variable(name, value, 0)
        return
    text = decoded(content, found)
    yield from _declared(text) if _DECLARED.match(text.lstrip()) else _printed(text, found)


def _printed(text: str, found: Found) -> Iterator[Variable]:
    """Read what ``env`` prints; a line that begins no variable goes on with the value before it."""
    variable: Variable | None = None
    lines: list[str] = []
    is_function = False
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        start = _LINE.match(line)
        if start:
            if variable:
                yield variable._replace(value="\n".join(lines))
            variable, lines, is_function = Variable(start[1], "", number), [start[2]], False
        elif _ANY_NAME.match(line):
            is_function = True  # one of bash, whose body follows
        elif variable and not is_function and not line.startswith("#"):
            lines.append(line)
        elif variable is None and line.strip() and not line.startswith("#"):
            found.miss(f"line {number}", "it is no variable")
    if variable:
        yield variable._replace(value="\n".join(lines).rstrip("\n"))


def _declared(text: str) -> Iterator[Variable]:
    """Read what ``export -p`` prints: one quoted assignment a line, whose value may hold line ends."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        for word in lexer:
            start = re.match(rf"({_NAME})=(.*)", word, re.DOTALL)
            if start:
                yield Variable(start[1], start[2], max(1, lexer.lineno - word.count("\n") - 1))
    except ValueError:
        return  # a quote that the end of the file cut

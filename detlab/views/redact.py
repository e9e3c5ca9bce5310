"""Take the names of machines and the ways to files out of everything that a page says.

A page is written while a `Redactor` is in force (`detlab.redaction.redacting`): the functions that make text
safe or cut it ask for it, so that no part of a page can forget to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.redaction import last_part, replace_paths
from detlab.run import Run

KINDS: Final = frozenset({"hosts", "paths"})
"""What can be taken out."""

_HOST_ENTRY: Final = re.compile(
    r"host|node_?name|node_?list|master_addr|node_?(?:ip)?addr|rdzv_endpoint|fqdn", re.IGNORECASE
)
_ONE_HOST: Final = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
_RANGES: Final = re.compile(r"([^\[]*)\[([\d,-]+)\]([^\[]*)")
_MAX_RANGE: Final = 10_000
_NO_HOST: Final = frozenset({"host", "localhost", "none", "true", "false", ""})
_WHOLE_PATH: Final = re.compile(r"(?:file://|~)?/[^:;,=\n]+|[A-Za-z]:\\[^;,=\n]+")
_TELLS_PATH: Final = re.compile(r"[/~\\]")


def kinds_of(redact: bool | str | Iterable[str]) -> frozenset[str]:
    """Read what is to be taken out: True for all that can be, a name, or several.

    Raises
    ------
    InputError
        A name is none of `KINDS`.
    """
    if isinstance(redact, bool):
        return KINDS if redact else frozenset()
    asked = frozenset([redact] if isinstance(redact, str) else redact)
    if asked - KINDS:
        raise InputError(
            f"{min(asked - KINDS)!r} cannot be taken out of a report.",
            f"redact is True or any of {', '.join(sorted(KINDS))}",
        )
    return asked


class Redactor:
    """Writes ``host 1`` and ``PATH/name`` for the names of hosts and for absolute paths, the same throughout.

    Parameters
    ----------
    cmp
        The comparison whose runs name the hosts (in recipes and manifests) and the paths.
    kinds
        Some of `KINDS`.
    more
        Paths beside those of the runs, however short or oddly named.
    """

    def __init__(self, cmp: Comparison, kinds: frozenset[str], more: Iterable[str] = ()) -> None:
        self._hosts = _number_hosts(cmp) if "hosts" in kinds else {}
        self._host = _any_of(self._hosts)
        self._takes_paths = "paths" in kinds
        self._path = _any_of([*_known_paths(cmp), *more]) if self._takes_paths else None

    def __call__(self, text: str) -> str:
        """Give the text without them; a second time changes nothing."""
        if self._takes_paths:
            if self._path:
                text = self._path.sub(lambda match: _named(match[0]), text)
            text = replace_paths(text, _named)
        if self._host:
            text = self._host.sub(lambda match: self._hosts[match[0].lower()], text)
        return text


def _named(path: str) -> str:
    name = last_part(path)
    slash = "%2F" if path.startswith("%2F") else "/"  # inside a site
    return f"PATH{slash}{name}" if name else "PATH"


def _any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """Find any of some names, the longest first, where it is no part of a longer word or number."""
    found = sorted({name for name in names if name}, key=lambda name: (-len(name), name))
    if not found:
        return None
    either = "|".join(map(re.escape, found))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])", re.IGNORECASE)


def _number_hosts(cmp: Comparison) -> dict[str, str]:
    """Count the hosts as they come, run a first; a full name and its first part are one host."""
    numbers: dict[str, str] = {}
    for name in (name for run in (cmp.a, cmp.b) for name in _hosts(run)):
        short = name.partition(".")[0] if not name.replace(".", "").isdigit() else name
        number = numbers.get(short) or numbers.get(name) or f"host {len(set(numbers.values())) + 1}"
        numbers[name] = numbers[short] = number
    return numbers


def _hosts(run: Run) -> Iterator[str]:
    for name, value in _entries(run):
        if isinstance(value, str) and _tells_host(name):
            yield from _usable(value)
    yield from (name for host in run.manifest.racks for name in _usable(host))


@cache
def _tells_host(entry: str) -> bool:
    return _HOST_ENTRY.search(entry) is not None


def _usable(value: str) -> Iterator[str]:
    for name in _names_in(value):
        if name.lower() not in _NO_HOST and not name.isdigit():
            yield name.lower()


def _names_in(value: str) -> Iterator[str]:
    """Take hosts apart: a list of them, ``tcp://a:29500``, and ``n[07-09,12]`` as Slurm writes many."""
    for part in map(str.strip, _ONE_HOST.findall(value)):
        name = re.sub(r"^\w+://|:\d+$", "", part)
        yield name
        if ranges := _RANGES.fullmatch(name):
            before, numbers, after = ranges.groups()
            yield from (
                f"{before}{number}{after}" for each in numbers.split(",") for number in _counted(each)
            )


def _counted(numbers: str) -> Iterator[str]:
    """Write every number of ``07-09``, as wide as the first."""
    first, _, last = numbers.partition("-")
    if first.isdecimal() and (last.isdecimal() or not last):
        start, stop = int(first), int(last or first) + 1
        yield from (f"{n:0{len(first)}}" for n in range(start, min(stop, start + _MAX_RANGE)))


def _known_paths(cmp: Comparison) -> Iterator[str]:
    """List the paths that runs name as a whole: no expression knows where one with a space in it ends."""
    for run in (cmp.a, cmp.b):
        yield from (
            (run.source.rstrip("/\\"),) if _TELLS_PATH.search(run.source) and len(run.source) > 1 else ()
        )
        yield from (
            value.rstrip("/\\")
            for _, value in _entries(run)
            if isinstance(value, str) and _WHOLE_PATH.fullmatch(value) and not re.search(r"\s[/-]", value)
        )


def _entries(run: Run) -> Iterator[tuple[str, object]]:
    """List every entry of the manifest and of the recipes of a run, by its own name."""
    yield from _leaves({"recorder": run.manifest.recorder})
    seen: list[Mapping[str, object]] = []
    for trace in run.ranks:
        recipe = trace.header.recipe
        if not any(
            recipe is other or recipe == other for other in seen[-1:]
        ):  # most ranks repeat the last one
            seen.append(recipe)
            yield from _leaves(recipe)


def _leaves(content: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(value, str(key))
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from _leaves(value, name)
    else:
        yield name, content

"""Lines of a log, each with its place and with what it says of the process that wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from detlab.readers.choices.frame import Process, Uses

_TAG: Final = re.compile(r"\[(?:rank|default|RANK )\s?(\d+)\]:?|^\s*(\d+): ")
"""What `torchrun --tee`, launchers and ``srun --label`` put before a line."""

_IN_PATH: Final = re.compile(r"(?:^|[^a-z])rank[_.-]?(\d+)(?![0-9])", re.IGNORECASE)
_TORCHRUN: Final = re.compile(r"(?:^|/)(\d+)/(?:stdout|stderr)\.log(?:\.gz)?$")
"""Where ``torchrun --log-dir`` writes: ``attempt_0/3/stdout.log``, by local rank."""


class Line(NamedTuple):
    """One line of a log.

    Attributes
    ----------
    text
        The line.
    number
        Its number in the file, from 1.
    file
        The name of the file as it is shown.
    tag
        What a launcher put before it, such as ``[rank3]:``; "" where nothing does.
    rank
        The rank that the tag or the name of the file says; None where nothing does.
    whole
        Whether it ends with the end of a line; one that does not may have been cut.
    """

    text: str
    number: int
    file: str
    tag: str
    rank: int | None
    whole: bool = True

    @property
    def where(self) -> str:
        """The place for people."""
        return f"{self.file}:{self.number}"

    @property
    def writer(self) -> Process:
        """Who wrote it, for what prints no process id: the rank, else the file."""
        return Process(self.rank, self.file if self.rank is None else f"rank {self.rank}")


def line_of(text: str, number: int, file: str, in_name: int | None, *, whole: bool = True) -> Line:
    """Make a line of its text, and of the rank that the name of its file says."""
    text = text.rstrip("\r\n")
    found = _TAG.search(text, 0, 60)
    if found is None:
        return Line(text, number, file, "", in_name, whole)
    rank = int((found[1] or found[2])[:9])
    return Line(text, number, file, found[0].strip(), rank, whole)


def rank_in_path(path: str) -> int | None:
    """Give the rank that the path of a file names, the innermost first; None where it names none.

    Parameters
    ----------
    path
        Relative to what was given, with forward slashes, as in ``rank3/lt.log``, ``lt_rank3.log`` or
        ``3/stdout.log``.
    """
    found = [*_IN_PATH.findall(path), *_TORCHRUN.findall(path)]
    return int(found[-1][:9]) if found else None


class LineReader(Protocol):
    """What takes the lines of a log that have one of its markers."""

    @property
    def markers(self) -> Sequence[str]:
        """Texts of which a line must have one."""

    def take(self, line: Line) -> None:
        """Take the next line."""

    def end(self) -> None:
        """Say that the file has ended; what was begun is not finished any more."""


@dataclass
class Gathered:
    """Where readers put what they find in one run.

    Attributes
    ----------
    uses
        The choices.
    damaged
        Number of things that could not be read by (file, what), with the line of the first.
    counts
        How many lines of a kind were met that are no choices.
    """

    uses: Uses = field(default_factory=Uses)
    damaged: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def damage(self, line: Line, what: str) -> None:
        """Count something that is cut or mixed up."""
        num, first = self.damaged.get((line.file, what), (0, line.number))
        self.damaged[line.file, what] = num + 1, first

    def count(self, what: str) -> None:
        """Count a line that is no choice."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def problems(self) -> list[tuple[str, str]]:
        """Give (where, what) for all that could not be read."""
        return [
            (f"{file}:{first}", f"{what}{f' ({num:,} times, this is the first)' if num > 1 else ''}")
            for (file, what), (num, first) in sorted(self.damaged.items())
        ]


MakeReader = Callable[[Gathered], LineReader]

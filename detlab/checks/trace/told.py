"""What one invariant gives: a breach, that it holds, or why it was not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from detlab.checks.trace.survey import Flagged, RankSurvey
from detlab.run import Run, spans
from detlab.store import Selection
from detlab.text import plural


class Breach(NamedTuple):
    """One way in which an invariant does not hold.

    Attributes
    ----------
    found
        What was found in its place.
    ranks
        Global ranks on which it was found.
    num
        How many calls, numbers, ranks or steps are meant.
    where
        The first place.
    expected
        What should be there, where that is more than the invariant says.
    severity
        How much it weighs, where that is not what the invariant says.
    then
        What to do, where that is not what the invariant says.
    """

    found: str
    ranks: Sequence[int] = ()
    num: int = 1
    where: str = ""
    expected: str = ""
    severity: str = ""
    then: str = ""


class Holds(NamedTuple):
    """An invariant holds, to this extent."""

    says: str
    evidence: str = ""


class Skipped(NamedTuple):
    """A part of an invariant was not looked at."""

    what: str
    why: str


Told = Iterator[Breach | Holds | Skipped]


@dataclass(frozen=True)
class Subject:
    """A run as the invariants look at it.

    Attributes
    ----------
    run
        The run.
    surveys
        What its ranks say, by global rank.
    expect_ranks, expect_steps
        What the caller expects; they take all where nothing is expected.
    """

    run: Run
    surveys: tuple[RankSurvey, ...]
    expect_ranks: Selection
    expect_steps: Selection

    @property
    def readable(self) -> list[RankSurvey]:
        """The ranks whose events could be read."""
        return [each for each in self.surveys if not each.damage]

    @property
    def recorder(self) -> Mapping[str, object]:
        """What the manifest says of the recorder; the manifest is a file, and may hold anything."""
        stated: object = self.run.manifest.recorder
        return stated if isinstance(stated, Mapping) else {}

    @property
    def format(self) -> str:
        """The format that another tracer wrote, or ""."""
        return str(self.recorder.get("format", ""))


def on_ranks(ranks: Sequence[int]) -> str:
    """Write ``on ranks 0-3``."""
    return f"on {plural('rank', len(ranks))} {spans(sorted(ranks))}"


def flagged(subject: Subject, name: str) -> tuple[list[int], int, str]:
    """Add up calls of which something is true: the ranks, their number and the first."""
    found = [(each.rank, getattr(each, name)) for each in subject.readable]
    return added_up([(rank, its) for rank, its in found if its.num])


def added_up(found: Sequence[tuple[int, Flagged]]) -> tuple[list[int], int, str]:
    """Give the ranks, the number of calls over them and the first call."""
    first = f"rank {found[0][0]}: {found[0][1].first}" if found else ""
    return [rank for rank, _ in found], sum(its.num for _, its in found), first

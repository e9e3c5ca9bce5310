"""What each member of a communicator gave to one call, and what that says of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from detlab.comparison.call.recorded import recorded_at
from detlab.comparison.call.sides import fold_statement
from detlab.comparison.communication import Collective, GroupJudge
from detlab.comparison.places import site_at
from detlab.comparison.ranks import RankComparison
from detlab.comparison.reasons import REASONS
from detlab.comparison.verdicts import ONE_SIDED
from detlab.ops import Dependence
from detlab.schema import Side, Verdict

MAX_MEMBERS: Final = 16
"""So many members of a communicator are listed; of a larger one the group's judgement is not made again."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the communicator.

    Attributes
    ----------
    rank
        Its global rank.
    coordinate
        Its place; empty where it was not compared.
    verdict
        The verdict of its call; empty where the call was not found there.
    gives
        ``equal``, ``differs`` or ``unknown``: what it put in, by its own record; ``only in a`` or ``only in
        b`` where one run makes the call there, ``not recorded`` where it was not found, and ``nothing`` where
        the output does not depend on it: all but the source of a broadcast or of a message.
    site
        The site of its call; empty where it was not found.
    """

    rank: int
    coordinate: str
    verdict: str
    gives: str
    site: str


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a communicator at one call.

    Attributes
    ----------
    depends_on
        What the output depends on, such as ``every member`` or ``the source``.
    num_members
        How many there are; 0 where they are not known.
    listed
        The first of them, in the order of the group.
    because
        Ranks that explain the verdict: whose input differs, or whose call is missing.
    reason
        Why the group judges as it does; empty where the call's own record decides.
    is_judged
        Whether the group's judgement was made; not where it has too many members, or one run lacks the call.
    """

    depends_on: str
    num_members: int
    listed: tuple[Member, ...]
    because: tuple[int, ...]
    reason: str
    is_judged: bool

    def to_json(self) -> dict[str, Any]:
        """Give the members as JSON has it."""
        return asdict(self)


def members_of(
    ranks: Sequence[RankComparison], judge: GroupJudge, rank: RankComparison, position: int
) -> Members:
    """Ask the members of a communicator about one call of a collective or a message."""
    alone = next(each for each in judge.ranks if each.rank == rank.rank)
    call = judge.call(alone, position)
    members = _contributors(call)
    by_rank = {each.rank: each for each in ranks}
    listed = tuple(_member(judge, call, by_rank, number) for number in members[:MAX_MEMBERS])
    is_judged = len(members) <= MAX_MEMBERS and rank.verdicts[position] not in ONE_SIDED
    judged = judge.judge(alone, position) if is_judged else None
    if judged and judged.verdict != rank.verdicts[position]:
        judged = None  # it was set aside, or judged by something else
    reason = REASONS[judged.reason].why if judged and judged.reason else ""
    because = tuple(number for number in judged.because if number != rank.rank) if judged else ()
    return Members(call.dependence.value, len(members), listed, because, reason, is_judged)


def _contributors(call: Collective) -> tuple[int, ...]:
    """Give who takes part: the group, or the two ends of a message."""
    if call.key[:1] == (-1,):
        return tuple(number for number in call.key[1:3] if number >= 0)
    return call.members


def _member(judge: GroupJudge, call: Collective, ranks: dict[int, RankComparison], number: int) -> Member:
    rank, at = ranks.get(number), judge.position_on(call, number)
    if rank is None or at is None:
        place = "" if rank is None else str(rank.coordinate)
        return Member(number, place, "", "not recorded", "")
    verdict = Verdict(int(rank.verdicts[at])).name.lower()
    gives = _gives(rank, at) if _source(call) in (None, number) else "nothing"
    return Member(number, str(rank.coordinate), verdict, gives, str(site_at(rank, at)))


def _source(call: Collective) -> int | None:
    """Give the one rank whose input is all that the output depends on; None where it is not one alone."""
    if call.dependence is Dependence.SEND:
        return call.key[1] if call.key[1] >= 0 else None
    return call.root if call.dependence is Dependence.SOURCE else None


def _gives(rank: RankComparison, at: int) -> str:
    """Say what the record of one member says of its input, whatever the group says of its output."""
    if rank.verdicts[at] in ONE_SIDED:
        return f"only in {'a' if rank.verdicts[at] == Verdict.ONLY_A else 'b'}"
    same, _, _ = fold_statement(Side.INPUT, *recorded_at(rank, at, with_tensors=False))
    return {True: "equal", False: "differs", None: "unknown"}[same]

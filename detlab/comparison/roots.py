"""Where differences begin: every origin, and what entered a rank without a recorded cause."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.schema import Callee, Flag, Kind, Phase, Verdict


class Reason(NamedTuple):
    """Why a call is a root: the class of its finding and the sentence that explains it."""

    finding_class: str
    why: str


REASONS: Final = {
    "kernel": Reason(
        "kernel",
        "every recorded input of the call (tensors, scalars, generator) has equal bits in both runs, and its "
        "output has not",
    ),
    "collective": Reason(
        "collective",
        "the inputs of every contributor have equal bits in both runs, and the output has not: algorithm, "
        "topology or order of the reduction",
    ),
    "seeded": Reason(
        "rng", "a random op gives other numbers; the state of its generator was not recorded or is equal"
    ),
    "no_inputs": Reason("data", "the call takes no tensors, so what it gives comes from outside the model"),
    "open": Reason(
        "unknown", "its recorded inputs are equal, but an input of the call was not recorded or it is a view"
    ),
    "no_evidence": Reason(
        "unknown", "its output differs and its inputs were not recorded: this call, or anything before it"
    ),
    "one_side": Reason("structure", "only one run makes this call: the programs took different paths"),
    "uninitialised": Reason("state", "it reads memory that no recorded call has written"),
    "generator": Reason("rng", "the state of the random generator differs before the first random op"),
    "data": Reason("data", "its inputs differ before anything was computed: other samples or another order"),
    "upstream": Reason(
        "upstream",
        "its inputs differ and no recorded call before it on this rank does: the difference was there before "
        "the first recorded call (parameters, buffers, scalars, data), or an unrecorded call made it",
    ),
}
"""Every reason a root can have; rules (a) to (e) of the order of judgement."""

_FACTS: Final = ("kind", "flags", "n_in", "phase", "callee")


@dataclass(frozen=True, slots=True)
class Roots:
    """Roots of one rank that share reason, callee and phase.

    Attributes
    ----------
    rank, positions
        Where they are, ascending.
    """

    rank: RankComparison
    reason: str
    callee: Callee
    phase: Phase
    positions: NDArray[np.intp]


def find_roots(ranks: Sequence[RankComparison], explained: Mapping[int, Collection[int]]) -> list[Roots]:
    """List every origin, and each rank's first divergence where nothing explains it.

    Parameters
    ----------
    ranks
        The compared ranks, with communication judged by groups.
    explained
        For each rank the positions of calls whose difference came from another rank.
    """
    found: list[Roots] = []
    for rank in ranks:
        found += _grouped(rank, rank.counted(Verdict.ORIGIN), _origin_reason)
        entry = rank.divergent()[:1]
        is_root = len(entry) and rank.verdicts[entry[0]] != Verdict.ORIGIN
        if is_root and int(entry[0]) not in explained.get(rank.rank, ()):
            found += _grouped(rank, entry, _entry_reason)
    return found


def _origin_reason(_: Verdict, event: Mapping[str, int]) -> str:
    if event["kind"] == Kind.COLLECTIVE:
        return "collective"
    if event["flags"] & Flag.SEEDED:
        return "seeded"
    return "kernel" if event["n_in"] else "no_inputs"


def _entry_reason(verdict: Verdict, event: Mapping[str, int]) -> str:
    if verdict in (Verdict.ONLY_A, Verdict.ONLY_B):
        return "one_side"
    if verdict == Verdict.UNKNOWN:
        return "open" if event["flags"] & (Flag.OPEN_INPUTS | Flag.VIEW) else "no_evidence"
    if event["flags"] & Flag.FRESH_MEMORY:
        return "uninitialised"
    if event["flags"] & Flag.SEEDED:
        return "generator"
    return "data" if event["phase"] == Phase.DATA else "upstream"


def _grouped(rank: RankComparison, positions: NDArray[np.intp], reason_of: Any) -> Iterator[Roots]:
    """Give the positions by callee, phase and kind; calls alike in these share their reason."""
    if not len(positions):
        return
    facts = rank.events(positions, _FACTS)
    in_a = rank.rows(positions)[0] >= 0
    keys = np.stack([*(facts[name].astype(np.int64) for name in _FACTS), in_a, rank.verdicts[positions]])
    kinds, member = np.unique(keys, axis=1, return_inverse=True)
    for number, (*values, from_a, verdict) in enumerate(kinds.T.tolist()):
        event = dict(zip(_FACTS, values, strict=True))
        callee = (rank.a if from_a else rank.b).names.callees[event["callee"]]
        reason = reason_of(Verdict(verdict), event)
        yield Roots(rank, reason, callee, Phase(event["phase"]), positions[member == number])

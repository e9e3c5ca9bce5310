"""Roots after a rank's first divergent step: what cannot have come with the differences before it.

By then parameters, activations and gradients carry differences, so a differing input says little. Four
things still do: calls of one run only where no number from Python differs that could have taken another
branch, numbers from Python that no differing host read can have given, integer inputs such as token ids
that no recorded call made, and a generator that no differing random op has drawn from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.comparison.tensors import differing, tensors_of
from detlab.comparison.verdicts import INPUTS_DIFFER, ONE_SIDED
from detlab.schema import Flag, Kind, Phase, Side


def later_roots(rank: RankComparison, first_step: int) -> dict[int, str]:
    """Give the roots of the steps after the first divergent one, with their reasons.

    Parameters
    ----------
    rank
        A rank that diverges.
    first_step
        The least step in which it does.
    """
    found: dict[int, str] = {}
    steps = np.unique(np.concatenate([np.unique(trace.index["step"]) for trace in (rank.a, rank.b)]))
    takes, gives = (_of_metas(rank, side) for side in ("inputs", "outputs"))
    before = _Step.of(rank, rank.differing_in(first_step, first_step), takes, gives)
    has_read, has_drawn = bool(before.reads.any()), bool(before.draws.any())
    known = set() if has_read else set(_other_numbers(rank, before).values())
    for step in steps[steps > first_step].tolist():
        differs = rank.differing_in(step, step)
        here = _Step.of(rank, differs[rank.is_counted(differs)], takes, gives)
        if not has_read:
            found |= dict.fromkeys(_one_sided(rank, here), "one_side")
            numbers = _other_numbers(rank, here)
            found |= {position: "scalar" for position, callee in numbers.items() if callee not in known}
            known |= set(numbers.values())
        found |= _entering(rank, here, before, has_drawn)
        has_read, has_drawn = has_read or bool(here.reads.any()), has_drawn or bool(here.draws.any())
        before = here
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """The differing calls of one step: which take or give integers, are given numbers, read or draw."""

    positions: NDArray[np.intp]
    metas: NDArray[np.uint32]
    takes: NDArray[np.bool_]
    gives: NDArray[np.bool_]
    reads: NDArray[np.bool_]
    draws: NDArray[np.bool_]
    numbers: NDArray[np.bool_]

    @classmethod
    def of(
        cls, rank: RankComparison, positions: NDArray[np.intp], takes: Sequence[int], gives: Sequence[int]
    ) -> _Step:
        """Read what is needed of the calls, once; the metas that take and give integers are known."""
        facts = rank.events(positions, ("kind", "flags", "meta", "phase"))
        paired = ~np.isin(rank.verdicts[positions], ONE_SIDED)
        draws = (facts["flags"] & np.uint16(Flag.SEEDED)) != 0
        metas, outer = facts["meta"], np.isin(facts["phase"], (Phase.DATA, Phase.FORWARD))
        reads = paired & (facts["kind"] == Kind.HOST_READ)
        numbers = (facts["flags"] & np.uint16(Flag.HOST_SCALAR)) != 0
        return cls(
            positions, metas, outer & np.isin(metas, takes), np.isin(metas, gives), reads, draws, numbers
        )

    def meta_at(self, position: int) -> int:
        """Give the id of the meta of one of the calls."""
        return int(self.metas[np.searchsorted(self.positions, position)])


def _one_sided(rank: RankComparison, here: _Step) -> Iterator[int]:
    chosen = here.positions[np.isin(rank.verdicts[here.positions], ONE_SIDED)]
    reads = here.positions[here.reads]
    if len(chosen) and not (reads < chosen[0]).any():
        yield from chosen.tolist()


def _other_numbers(rank: RankComparison, here: _Step) -> dict[int, int]:
    """Find calls that get other numbers from Python before any differing host read: position and callee.

    Only calls flagged for their numbers are looked at, so that most details are never read.
    """
    given = here.positions[here.numbers & np.isin(rank.verdicts[here.positions], INPUTS_DIFFER)]
    reads = here.positions[here.reads]
    given = given[given < reads[0]] if len(reads) else given
    changes = differing(tensors_of(rank, given), Side.SCALARS)
    chosen = np.unique(changes["position"][changes["index"] == 0]).astype(np.intp)  # 1: what a call gives
    return dict(zip(chosen.tolist(), rank.events(chosen, ("callee",))["callee"].tolist(), strict=True))


def _entering(rank: RankComparison, here: _Step, before: _Step, has_drawn: bool) -> dict[int, str]:
    """Find integer inputs and generator states that differ and that no differing call gave."""
    takers = here.positions[here.draws | here.takes]
    takers = takers[np.isin(rank.verdicts[takers], INPUTS_DIFFER)]
    if not len(takers):
        return {}
    changes = differing(tensors_of(rank, takers), Side.INPUT, Side.GENERATOR)
    drawn = changes["position"][changes["side"] == Side.GENERATOR]
    found = {int(position): "generator" for position in drawn[:1] if not has_drawn}
    made = _made(rank, before) | _made(rank, here)
    for change in changes[changes["side"] == Side.INPUT]:
        position, index = int(change["position"]), int(change["index"])
        inputs = rank.a.names.metas[here.meta_at(position)].inputs
        if index < len(inputs) and inputs[index].is_integer and int(change["digest_a"]) not in made:
            found[position] = "data"
    return found


def _of_metas(rank: RankComparison, side: str) -> list[int]:
    """Give the ids of the metas of run a with an integer tensor on one side."""
    metas = enumerate(rank.a.names.metas)
    return [n for n, meta in metas if any(t.is_integer for t in getattr(meta, side))]


def _made(rank: RankComparison, step: _Step) -> set[int]:
    """Give the digests of the differing integer tensors that recorded calls gave."""
    tensors = tensors_of(rank, step.positions[step.gives])
    return set(differing(tensors, Side.OUTPUT)["digest_a"].tolist())

"""What a call that looks like an origin, or hides one, must be by what is known of ops.

An op that works elementwise, or makes a constant, gives the same bits for the same bits on sound hardware:
where it seems not to, something that was not recorded stands behind it, and its verdict is unknown. Fresh
memory is no origin, and neither is a snapshot of what an earlier call gave. A list op judged as a whole can
hide a lane that is one, and two calls in another order that share what they write to or draw from are the
cause of what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.communication import Judgement
from detlab.comparison.lineage import follow, given_before
from detlab.comparison.ranks import RankComparison, read_rows
from detlab.comparison.tensors import differing, tensors_of
from detlab.ops import base_name, is_constant, is_deterministic, is_lane_wise, makes_fresh_memory
from detlab.schema import Flag, Kind, Mask, Meta, Side, Verdict

_MAX_ORDER: Final = 1_000
"""Receivers of a first divergent step among which swapped calls are looked for."""


def set_fresh_memory_aside(rank: RankComparison) -> RankComparison:
    """Set aside what ``empty`` and its like hold; whoever reads it is judged for itself."""
    step = rank.first_step()
    if step is None:
        return rank
    odd = np.union1d(rank.counted(Verdict.ORIGIN), rank.differing_in(step, step))
    odd = odd[rank.is_counted(odd)]
    return rank.with_masks(odd[rank.has_op(odd, makes_fresh_memory)], Mask.SET_ASIDE | Mask.FRESH_MEMORY)


def judge_contradictions(rank: RankComparison) -> dict[int, Judgement]:
    """Judge calls by what their ops can do; a call that is not there keeps its verdict."""
    step = rank.first_step()
    if step is None:
        return {}
    here = rank.differing_in(step, step)
    here = here[rank.is_counted(here)]
    receivers = here[rank.verdicts[here] == Verdict.RECEIVER]
    found = {position: Judgement(Verdict.ORIGIN, "kernel") for position in _hidden_lanes(rank, receivers)}
    for first, *others in swapped(rank, receivers):
        found |= dict.fromkeys(others, Judgement(Verdict.RECEIVER, "order"))
        found[first] = Judgement(Verdict.ORIGIN, "order")
    origins = rank.counted(Verdict.ORIGIN)
    calls = origins[rank.events(origins, ("kind",))["kind"] != Kind.COLLECTIVE]
    found |= {position: Judgement(Verdict.UNKNOWN, "in_flight") for position in _in_flight(rank, calls, step)}
    found |= dict.fromkeys(_snapshots_of_results(rank, calls), Judgement(Verdict.RECEIVER))
    sound = calls[rank.has_op(calls, lambda op: is_deterministic(op) or is_constant(op))]
    return found | {int(position): Judgement(Verdict.UNKNOWN) for position in sound}


def _snapshots_of_results(rank: RankComparison, origins: NDArray[np.intp]) -> list[int]:
    """Find states that differ as they are held because a call of their step, or of the one before, did."""
    facts = rank.events(origins, ("kind", "n_in", "step"))
    is_held = (facts["kind"] == Kind.STATE) & (facts["n_in"] == 0)
    held, steps, found = origins[is_held], facts["step"][is_held], []
    recorded = np.unique(np.concatenate([rank.a.index["step"], rank.b.index["step"]]))
    for step in np.unique(steps).tolist():
        before = int(max(recorded[recorded < step], default=step))
        near = rank.differing_in(before, step)
        found += given_before(rank, near, held[steps == step]).tolist()
    return found


def judge_exchanges(rank: RankComparison) -> tuple[RankComparison, dict[int, Judgement]]:
    """Judge calls of one callee that the runs make in another order, and that share nothing, to match.

    They stand at each other's place, where they look like receivers. Every step can have them again, so that
    this goes on for as long as nothing else differs.
    """
    found: dict[int, Judgement] = {}
    while (step := rank.first_step()) is not None:
        positions = _plainly_exchanged(rank, step)
        found |= dict.fromkeys(positions, Judgement(Verdict.MATCH, "exchanged"))
        rank = rank.with_verdicts(dict.fromkeys(positions, Verdict.MATCH))
        if not positions:
            break
    return rank, found


def _plainly_exchanged(rank: RankComparison, step: int) -> list[int]:
    """Find receivers that give each other's results for each other's inputs, and have no cause or effect."""
    here = rank.differing_in(step, step)
    here = here[rank.is_counted(here) & (rank.verdicts[here] == Verdict.RECEIVER)]
    facts = rank.events(here, ("kind", "flags", "callee", "phase", "microbatch"))
    plain = (facts["kind"] == Kind.OP) & ((facts["flags"] & np.uint16(Flag.SEEDED)) == 0)
    keys = [facts[name][plain].tolist() for name in ("callee", "phase", "microbatch")]
    here = here[plain]
    mine, theirs = (
        list(zip(*keys, *(c.tolist() for c in read_rows(trace, rows, _CONTENT).values()), strict=True))
        for trace, rows in zip((rank.a, rank.b), rank.rows(here), strict=True)
    )
    both = set(mine) & set(theirs)
    pairs = [each for each in zip(mine, theirs, here.tolist(), strict=True) if both.issuperset(each[:2])]
    rings = _rings(pairs) if len(pairs) <= _MAX_ORDER else []
    found = sorted(position for ring in rings for position in ring)
    return found if found and _stands_alone(rank, step, np.array(found, np.intp)) else []


_CONTENT: Final = ("in_digest", "out_digest")


def _stands_alone(rank: RankComparison, step: int, positions: NDArray[np.intp]) -> bool:
    """Say whether some differing calls share nothing, and neither come from nor lead to other ones."""
    lineage = follow(rank, step, step)
    inside = np.isin(lineage.changes["position"], positions)
    from_inside = np.isin(lineage.sources, positions)
    mixed = (from_inside & ~inside) | (inside & ~from_inside & (lineage.sources >= 0))
    return not mixed.any() and not swapped(rank, positions)


def _hidden_lanes(rank: RankComparison, receivers: NDArray[np.intp]) -> list[int]:
    """Find list ops with a lane whose inputs are equal and whose output differs."""
    lists = receivers[rank.has_op(receivers, is_lane_wise)]
    facts = rank.events(lists, ("meta", "n_in", "n_out"))
    tensors = tensors_of(rank, lists)
    found = []
    for position, meta, n_in, n_out in zip(
        lists.tolist(), *(c.tolist() for c in facts.values()), strict=True
    ):
        own = tensors[tensors["position"] == position]
        lanes = num_lanes(rank.a.names.metas[meta], n_in, n_out)
        if lanes > 1 and _has_origin_lane(own, lanes):
            found.append(position)
    return found


def num_lanes(meta: Meta, num_inputs: int, num_outputs: int) -> int:
    """Give the number of lanes: as recorded, or one an output where the inputs are as many lists; else 0."""
    recorded = dict(meta.attributes).get("lanes")
    if recorded is not None:
        return int(recorded)
    return num_outputs if num_outputs and num_inputs % num_outputs == 0 else 0


def _has_origin_lane(tensors: NDArray[np.void], lanes: int) -> bool:
    if len(differing(tensors, Side.SCALARS)):  # a learning rate reaches every lane
        return False
    inputs, outputs = (differing(tensors, side)["index"] % lanes for side in (Side.INPUT, Side.OUTPUT))
    return bool(np.setdiff1d(outputs, inputs).size)


def swapped(rank: RankComparison, receivers: NDArray[np.intp]) -> list[list[int]]:
    """Find calls that the runs make in another order and that share what they change, in the order of run a.

    Such calls cross in the order of the runs, or stand at one place with each other's inputs.
    """
    receivers = receivers[:_MAX_ORDER]
    tensors = tensors_of(rank, receivers)
    pairs = {*_crossing(rank, receivers), *_exchanged(rank, receivers, tensors)}
    return _connected(sorted((p, q) for p, q in pairs if _share_state(rank, tensors, p, q)))


def _connected(pairs: Sequence[tuple[Any, Any]]) -> list[list[Any]]:
    """Join the pairs that have a call in common."""
    sets: list[set[int]] = []
    for pair in pairs:
        apart = [each for each in sets if each.isdisjoint(pair)]
        sets = [*apart, set(pair).union(*(each for each in sets if not each.isdisjoint(pair)))]
    return [sorted(each) for each in sets]


def num_exchanged(rank: RankComparison, judged: Mapping[int, Judgement]) -> int:
    """Count the pairs found to be in another order that do not cross in the order of the runs."""
    first = [p for p, each in judged.items() if each == Judgement(Verdict.ORIGIN, "order")]
    plain = sum(each == Judgement(Verdict.MATCH, "exchanged") for each in judged.values())
    return plain // 2 + sum(bool((np.diff(rank.rows(np.array([p, p + 1]))[1]) > 0).all()) for p in first)


def _crossing(rank: RankComparison, positions: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Give pairs of calls that are neighbours in one run and that the other makes in the other order."""
    in_b = np.argsort(rank.rows(positions)[1], kind="stable")
    place_in_b = np.argsort(in_b)
    of_a = np.flatnonzero(np.diff(place_in_b) < 0)
    of_b = np.flatnonzero(np.diff(in_b) < 0)
    firsts, seconds = np.concatenate([of_a, in_b[of_b + 1]]), np.concatenate([of_a + 1, in_b[of_b]])
    return list(zip(positions[firsts].tolist(), positions[seconds].tolist(), strict=True))


def _exchanged(
    rank: RankComparison, positions: NDArray[np.intp], tensors: NDArray[np.void]
) -> list[tuple[int, int]]:
    """Give pairs of calls of one op that take each other's inputs, two of them or several in a ring."""
    callees = dict(
        zip(positions.tolist(), rank.events(positions, ("callee",))["callee"].tolist(), strict=True)
    )
    waiting: dict[tuple[str, int, int, int, int], list[int]] = {}
    taken: dict[tuple[str, int, int], list[tuple[int, int, int]]] = {}
    pairs = []
    for row in differing(tensors[tensors["in_both"]], Side.INPUT, Side.GENERATOR):
        op = rank.a.names.callees[callees[int(row["position"])]].op
        place = op, int(row["side"]), int(row["index"])
        mine, theirs = int(row["digest_a"]), int(row["digest_b"])
        partners = waiting.get((*place, theirs, mine))
        if partners:
            pairs.append((partners.pop(), int(row["position"])))
        else:
            waiting.setdefault((*place, mine, theirs), []).append(int(row["position"]))
        taken.setdefault(place, []).append((mine, theirs, int(row["position"])))
    return pairs + [pair for changes in taken.values() for pair in _rotated(changes)]


def _rotated(changes: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Give neighbours among calls that take the same inputs in both runs, each call another one of them."""
    rings = _rings(changes) if len(changes) <= _MAX_ORDER else []
    return [pair for ring in rings for pair in pairwise(ring)]


def _rings(changes: Sequence[tuple[Any, Any, int]]) -> list[list[int]]:
    """Give the calls that have the same things in both runs, each call another one of them: set by set."""
    rings = []
    for words in _connected([(mine, theirs) for mine, theirs, _ in changes]):
        ring = [each for each in changes if each[0] in words]
        if sorted(mine for mine, _, _ in ring) == sorted(theirs for _, theirs, _ in ring):
            rings.append([position for _, _, position in ring])
    return rings


def _share_state(rank: RankComparison, tensors: NDArray[np.void], p: int, q: int) -> bool:
    """Say whether two calls draw from a generator, or write to bytes that both touch."""
    flags = rank.events(np.array([p, q]), ("flags",))["flags"]
    if bool(((flags & np.uint16(Flag.SEEDED)) != 0).all()):
        return True
    one, other = (tensors[(tensors["position"] == at) & (tensors["side"] == Side.OUTPUT)] for at in (p, q))
    return overlaps(one, other) and overlaps(one, other, of_run="_b")


def overlaps(one: NDArray[np.void], other: NDArray[np.void], of_run: str = "") -> bool:
    """Say whether any tensors of two sets share bytes in one of the runs, as far as was recorded."""
    storage, start, stop = (f"{name}{of_run}" for name in ("storage", "start", "stop"))
    for tensor in one[one[storage] != 0]:
        same = other[other[storage] == tensor[storage]]
        if ((same[start] < tensor[stop]) & (same[stop] > tensor[start])).any():
            return True
    return False


def _in_flight(rank: RankComparison, origins: NDArray[np.intp], step: int) -> list[int]:
    """Find origins that read what a collective gives which nobody had waited for."""
    origins = origins[np.isin(origins, rank.differing_in(step, step))]
    pending = _not_waited_for(rank, step) if len(origins) else np.empty(0, np.intp)
    if not len(pending):
        return []
    taken, given = (_one_side(rank, at, side) for at, side in ((origins, Side.INPUT), (pending, Side.OUTPUT)))
    waits = _one_side(rank, _of_step(rank, step, lambda block: _is_wait(rank, block["callee"])), Side.INPUT)
    found = []
    for position in origins.tolist():
        open_given = given[given["position"] < position]
        waited = waits[waits["position"] < position]
        still_open = [row for row in open_given if not _is_waited_for(row, waited)]
        reads = taken[taken["position"] == position]
        if still_open and overlaps(reads, np.array(still_open, open_given.dtype)):
            found.append(position)
    return found


def _is_waited_for(given: np.void, waits: NDArray[np.void]) -> bool:
    later = waits[waits["position"] > given["position"]]
    return overlaps(np.array([given], waits.dtype), later)


def _one_side(rank: RankComparison, positions: NDArray[np.intp], side: Side) -> NDArray[np.void]:
    tensors = tensors_of(rank, positions)
    chosen: NDArray[np.void] = tensors[tensors["side"] == side]
    return chosen


def _is_wait(rank: RankComparison, callees: NDArray[Any]) -> NDArray[np.bool_]:
    names = rank.a.names.callees
    waits = [n for n in np.unique(callees).tolist() if base_name(names[n].op) == "wait_tensor"]
    return np.isin(callees, waits)


def _not_waited_for(rank: RankComparison, step: int) -> NDArray[np.intp]:
    """Give the positions of the collectives of a step whose completion was not seen."""
    return _of_step(rank, step, lambda block: (block["flags"] & np.uint16(Flag.NOT_WAITED_FOR)) != 0)


def _of_step(
    rank: RankComparison, step: int, holds: Callable[[dict[str, NDArray[Any]]], NDArray[np.bool_]]
) -> NDArray[np.intp]:
    """Give the positions of the calls of run a in one step, matching or not, of which something holds."""
    starts, parts = rank.a.starts, [np.empty(0, np.int64)]
    for record in np.flatnonzero(rank.a.index["step"] == step):
        first = int(starts[record])
        block = rank.a.columns(first, int(starts[record + 1]), ["flags", "callee"])
        parts.append(first + np.flatnonzero(holds(block)))
    rows = np.concatenate(parts)
    return np.sort(rank.positions_of(rows)) if len(rows) else np.empty(0, np.intp)

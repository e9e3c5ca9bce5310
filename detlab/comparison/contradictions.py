"""Verdicts that contradict what an op is: they are explained, never reported as causes.

An op that works elementwise gives the same bits for the same bits on sound hardware. Where it seems not
to, something that was not recorded stands behind it, so its verdict is unknown. The other way round a
list op judged as a whole hides a lane that is an origin, so it is judged lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.comparison.tensors import differing, tensors_of
from detlab.ops import is_deterministic, is_lane_wise
from detlab.schema import Kind, Meta, Side, Verdict


def judge_contradictions(rank: RankComparison) -> RankComparison:
    """Judge list ops lane by lane, then turn origins of ops that cannot be one into unknowns."""
    rank = rank.with_verdicts(_hidden_lanes(rank))
    origins = rank.counted(Verdict.ORIGIN)
    if not len(origins):
        return rank
    facts = rank.events(origins, ("callee", "kind"))
    sound = _of_callees(rank, facts["callee"], is_deterministic) & (facts["kind"] != Kind.COLLECTIVE)
    return rank.with_verdicts({int(position): Verdict.UNKNOWN for position in origins[sound]})


def _of_callees(
    rank: RankComparison, callees: NDArray[np.uint32], holds: Callable[[str], bool]
) -> NDArray[np.bool_]:
    """Ask a question about ops for many events, once for each callee."""
    known, member = np.unique(callees, return_inverse=True)
    answers = [holds(rank.a.names.callees[int(callee)].op) for callee in known]
    return np.array(answers, bool)[member]


def _hidden_lanes(rank: RankComparison) -> dict[int, Verdict]:
    """Find list ops with a lane whose inputs are equal and whose output differs.

    Only in the first step that diverges: afterwards differences reach nearly every lane.
    """
    step = rank.first_step()
    if step is None:
        return {}
    receivers = rank.differing_in(step, step)
    receivers = receivers[rank.verdicts[receivers] == Verdict.RECEIVER]
    facts = rank.events(receivers, ("callee", "meta", "n_in", "n_out"))
    lists = (facts["n_out"] > 1) & _of_callees(rank, facts["callee"], is_lane_wise)
    tensors = tensors_of(rank, receivers[lists])
    found = {}
    for at in np.flatnonzero(lists):
        meta = rank.a.names.metas[int(facts["meta"][at])]
        num_lanes = _num_lanes(meta, int(facts["n_in"][at]), int(facts["n_out"][at]))
        own = tensors[tensors["position"] == receivers[at]]
        if num_lanes and _has_origin_lane(own, num_lanes):
            found[int(receivers[at])] = Verdict.ORIGIN
    return found


def _num_lanes(meta: Meta, num_inputs: int, num_outputs: int) -> int:
    """Give the number of lanes: as recorded, or one an output where the inputs are as many lists; else 0."""
    recorded = dict(meta.attributes).get("lanes")
    if recorded is not None:
        return int(recorded)
    return num_outputs if num_inputs % num_outputs == 0 else 0


def _has_origin_lane(tensors: NDArray[np.void], num_lanes: int) -> bool:
    if len(differing(tensors, Side.SCALARS)):  # a learning rate reaches every lane
        return False
    inputs, outputs = (differing(tensors, side)["index"] % num_lanes for side in (Side.INPUT, Side.OUTPUT))
    return bool(np.setdiff1d(outputs, inputs).size)

"""Check one run against itself: the forward against its own recomputation, no second run needed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.comparison.align import Calls, align, ambiguous
from detlab.comparison.step_events import StepEvents
from detlab.comparison.verdicts import MetaFacts, judge
from detlab.errors import NotComparable
from detlab.ops import is_deterministic, is_seeded, is_view
from detlab.readers import as_run
from detlab.run import Run
from detlab.schema import Evidence, Flag, Kind, Mask, Phase, Verdict

RECOMPUTE_COLUMNS: Final[dict[str, Any]] = {
    "rank": pl.Int64,
    "coordinate": pl.String,
    "step": pl.Int64,
    "microbatch": pl.Int64,
    "scope": pl.String,
    "op": pl.String,
    "verdict": pl.String,
    "class": pl.String,
    "evidence": pl.String,
    "forward": pl.String,
    "again": pl.String,
    "why": pl.String,
}
"""Columns of `find_recompute_differences`."""

_LATER: Final = (Phase.BACKWARD, Phase.UNSPECIFIED)

Rows = NDArray[np.intp]


def find_recompute_differences(run: Run | str | PathLike[str]) -> pl.DataFrame:
    """Compare the calls of the forward with their own recomputation in the backward of the same step.

    Equal inputs and other outputs inside one run are a race or a missing seed that no environment and no
    second run is needed to show. Recomputed calls are those of the phase ``recompute``; a trace without
    that phase shows them as calls of the backward with the op, the inputs and the scope of a forward
    call, or the end of its scope.

    Parameters
    ----------
    run
        A run that recomputes activations, recorded with inputs, or a path that `detlab.load_run` can read.

    Returns
    -------
    One row per call that was made again and differs, by rank and in the rank's order: ``rank``,
    ``coordinate``, ``step``, ``microbatch``, ``scope``, ``op``, ``verdict`` (origin, receiver, absorbed,
    changed or unknown, by the site rule), ``class`` (kernel, rng, data or unknown for an origin, unknown for
    an unknown, else null), ``evidence`` (the least of both calls), ``forward`` and ``again`` (their sites),
    ``why``. No row: every call that was made again gave the same bits.

    Raises
    ------
    NotComparable
        No call of the run was made again.
    TraceError
        The run cannot be read.
    """
    return compare_recompute(as_run(run)).differing


class Recomputed(NamedTuple):
    """What a run recomputed.

    Attributes
    ----------
    differing
        The frame of `find_recompute_differences`.
    num_equal
        Calls whose outputs have the same bits both times, by rank and by what that rests on.
    num_unseen
        Calls that were made again and of which it is not known whether they differ: one of both has no
        evidence of its outputs, or was set aside.
    """

    differing: pl.DataFrame
    num_equal: Mapping[tuple[int, Evidence], int]
    num_unseen: int


def compare_recompute(run: Run) -> Recomputed:
    """Compare a run with its own recomputation; say what was equal as well.

    Raises
    ------
    NotComparable
        No call of the run was made again.
    """
    if not run.ranks:
        raise NotComparable(f"{run.label} has step metrics and no trace.", "give the folder of a trace")
    rows: list[dict[str, Any]] = []
    num_equal: Counter[tuple[int, Evidence]] = Counter()
    num_unseen = 0
    for trace in run.ranks:
        for step in trace.steps:
            calls = _StepCalls(trace, step)
            pairs = _pair(calls)
            judged = _judge(calls, pairs)
            rows += _differing(calls, pairs, judged)
            equal = _equal_evidence(calls, pairs, judged)
            num_unseen += int((equal == Evidence.NONE).sum())
            for level, num in Counter(equal[equal > Evidence.NONE].tolist()).items():
                num_equal[trace.header.rank, Evidence(level)] += num
    if not rows and not num_equal and not num_unseen:
        raise NotComparable(
            f"{run.label} makes no call of its forward again.",
            "record a run with activation recomputation, with inputs=True",
        )
    return Recomputed(pl.DataFrame(rows, RECOMPUTE_COLUMNS), num_equal, num_unseen)


class _StepCalls(StepEvents):
    """The calls of one step on one rank, ready to be paired with each other."""

    @cached_property
    def ops(self) -> NDArray[np.uint64]:
        """A number per op, so that one op under two scopes has the same."""
        numbers: dict[str, int] = {}
        table = [numbers.setdefault(callee.op, len(numbers)) for callee in self.trace.names.callees]
        ops: NDArray[np.uint64] = np.array(table, np.uint64)[self["callee"]]
        return ops

    def aligned(self, rows: Rows) -> Calls:
        """Give some calls as the alignment takes them."""
        ops = self.ops[rows]
        inputs, outputs = self["in_digest"][rows], self["out_digest"][rows]
        metas = self.trace.names.meta_hashes[self["meta"][rows]]
        return Calls(ops, inputs, outputs, metas, ops)

    def by_scope(self, rows: Rows) -> dict[str, Rows]:
        """Group calls by their scope."""
        groups: dict[int, list[int]] = defaultdict(list)
        for row, callee in zip(rows.tolist(), self["callee"][rows].tolist(), strict=True):
            groups[callee].append(row)
        merged: dict[str, list[int]] = defaultdict(list)
        for callee, found in groups.items():
            merged[self.trace.names.callees[callee].scope] += found
        return {scope: np.sort(np.array(found, np.intp)) for scope, found in merged.items()}


class _Pairs(NamedTuple):
    """Rows of forward calls, of the same calls made again, and whether another pairing fits as well."""

    forward: Rows
    again: Rows
    doubtful: NDArray[np.bool_]


def _pair(calls: _StepCalls) -> _Pairs:
    """Pair the calls of each microbatch's forward with the same calls made again."""
    found = [_no_pairs()]
    microbatch, phase = calls["microbatch"], calls["phase"]
    for number in np.unique(microbatch).tolist():
        forward = calls.by_scope(np.flatnonzero((microbatch == number) & (phase == Phase.FORWARD)))
        again = np.flatnonzero((microbatch == number) & (phase == Phase.RECOMPUTE))
        if len(again):
            found += _pair_scopes(calls, forward, calls.by_scope(again))
        else:
            later = np.flatnonzero((microbatch == number) & np.isin(phase, _LATER))
            found.append(_pair_by_inputs(calls, forward, later[_computes(calls, later)]))
    return _joined(found)


def _no_pairs() -> _Pairs:
    return _Pairs(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0, bool))


def _joined(parts: Sequence[_Pairs]) -> _Pairs:
    return _Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _pair_scopes(
    calls: _StepCalls, forward: Mapping[str, Rows], again: Mapping[str, Rows]
) -> Iterator[_Pairs]:
    """Align scope by scope: layers are recomputed in another order, the calls inside one are not."""
    for scope, rows in again.items():
        homes = [scope] if scope in forward else [name for name in forward if _is_end(scope, name)]
        if len(homes) == 1:
            yield _pair_in_order(calls, forward[homes[0]], rows)
        else:
            yield _pair_by_inputs(calls, {name: forward[name] for name in homes}, rows)


def _is_end(short: str, scope: str) -> bool:
    """Say whether a scope is another without its beginning."""
    return short == scope or (bool(short) and scope.endswith("." + short))


def _pair_in_order(calls: _StepCalls, forward: Rows, again: Rows) -> _Pairs:
    sides = calls.aligned(forward), calls.aligned(again)
    pairs = align(*sides)
    doubtful = ambiguous(*sides, pairs)
    both = (pairs[0] >= 0) & (pairs[1] >= 0)
    return _Pairs(forward[pairs[0][both]], again[pairs[1][both]], doubtful[both])


def _pair_by_inputs(calls: _StepCalls, forward: Mapping[str, Rows], again: Rows) -> _Pairs:
    """Pair calls of one op with equal inputs whose scopes agree; a call with a twin takes an equal one."""
    digests, outputs = calls["in_digest"], calls["out_digest"]
    homes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rows in forward.values():
        for row in rows.tolist():
            homes[int(calls.ops[row]), int(digests[row])].append(row)
    found: list[tuple[int, int, bool]] = []
    for row in again.tolist():
        alike = homes.get((int(calls.ops[row]), int(digests[row])), ())
        twins = [each for each in alike if _is_end(calls.scope(row), calls.scope(each))]
        equal = [each for each in twins if outputs[each] == outputs[row]]
        if twins:
            found.append(((equal or twins)[0], row, len(twins) > 1))
    table = np.array(found, np.int64).reshape(-1, 3)
    return _Pairs(table[:, 0], table[:, 1], table[:, 2] != 0)


def _computes(calls: _StepCalls, rows: Rows) -> NDArray[np.bool_]:
    """Say which calls of a backward can be a recomputation that shows something.

    A view says nothing, a collective depends on others, and a call without inputs is like any other.
    """
    plain = (calls["kind"][rows] == Kind.OP) & (calls["n_in"][rows] > 0)
    viewed = (calls["flags"][rows] & np.uint16(Flag.VIEW)) != 0
    known = calls["evidence"][rows] >> 4 != 0
    by_name = np.array([is_view(calls.op(row)) for row in rows.tolist()], bool)
    computes: NDArray[np.bool_] = plain & known & ~viewed & ~by_name
    return computes


_Judged = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Verdicts and masks."""


def _judge(calls: _StepCalls, pairs: _Pairs) -> _Judged:
    first = {name: column[pairs.forward] for name, column in calls.columns.items()}
    second = {name: column[pairs.again] for name, column in calls.columns.items()}
    names = calls.trace.names
    verdicts, masks = judge(first, second, MetaFacts(names, names))
    verdicts[pairs.doubtful & (verdicts == Verdict.ORIGIN)] = Verdict.UNKNOWN
    return verdicts, masks


def _differing(calls: _StepCalls, pairs: _Pairs, judged: _Judged) -> Iterator[dict[str, Any]]:
    verdicts, masks = judged
    shown = np.flatnonzero((verdicts != Verdict.MATCH) & ((masks & Mask.SET_ASIDE) == 0))
    for at in shown[np.argsort(pairs.again[shown], kind="stable")].tolist():
        yield _row(calls, int(pairs.forward[at]), int(pairs.again[at]), Verdict(int(verdicts[at])))


def _equal_evidence(calls: _StepCalls, pairs: _Pairs, judged: _Judged) -> NDArray[np.uint8]:
    """Give what the equality of each pair that does not differ rests on; 0 where it rests on nothing."""
    verdicts, masks = judged
    outputs = calls["evidence"] & 15
    least = np.minimum(outputs[pairs.forward], outputs[pairs.again]).astype(np.uint8)
    least[(masks & Mask.SET_ASIDE) != 0] = Evidence.NONE
    kept: NDArray[np.uint8] = least[(verdicts == Verdict.MATCH) | ((masks & Mask.SET_ASIDE) != 0)]
    return kept


def _row(calls: _StepCalls, forward: int, again: int, verdict: Verdict) -> dict[str, Any]:
    site = calls.site(forward)
    header = calls.trace.header
    levels = calls["evidence"][[forward, again]]
    finding_class, why = _explain(calls, forward, verdict)
    return {
        "rank": header.rank,
        "coordinate": str(header.coordinate),
        "step": site.step,
        "microbatch": site.microbatch,
        "scope": site.callee.scope,
        "op": site.callee.op,
        "verdict": verdict.name.lower(),
        "class": finding_class,
        "evidence": Evidence(int(np.minimum(levels >> 4, levels & 15).min())).name.lower(),
        "forward": str(site),
        "again": str(calls.site(again)),
        "why": why,
    }


_WHY: Final = {
    Verdict.ABSORBED: "its inputs differ and its outputs do not",
    Verdict.RECEIVER: "its inputs differ already: untested, not exonerated",
    Verdict.CHANGED: "its inputs differ, and its outputs have another shape or type",
    Verdict.UNKNOWN: "its inputs are open or have no evidence, or another call fits it as well",
}


def _explain(calls: _StepCalls, row: int, verdict: Verdict) -> tuple[str | None, str]:
    """Name the class of a difference and say why."""
    if verdict != Verdict.ORIGIN:
        return ("unknown" if verdict == Verdict.UNKNOWN else None), _WHY[verdict]
    op, flags = calls.op(row), int(calls["flags"][row])
    holds = {
        "communicates": calls["kind"][row] == Kind.COLLECTIVE,
        "random": is_seeded(op) or flags & Flag.SEEDED,
        "no_inputs": not calls["n_in"][row],
        "contradiction": is_deterministic(op),
        "weak": flags & Flag.WEAK_INPUT,
        "kernel": True,
    }
    return _ORIGINS[next(reason for reason, does_hold in holds.items() if does_hold)]


_ORIGINS: Final = {
    "communicates": ("unknown", "it communicates: what the other members gave may differ"),
    "random": ("rng", "it draws from a generator whose state was not restored, or not recorded"),
    "no_inputs": ("data", "it has no inputs"),
    "contradiction": (
        "unknown",
        "the op gives one result for the same bits: a write after it was hashed, or hardware",
    ),
    "weak": ("unknown", "its inputs look equal by a weak digest: the difference is first visible here"),
    "kernel": ("kernel", "equal inputs gave other outputs inside one run"),
}
"""Class of a call with equal inputs and other outputs, and why; the first that holds is taken."""

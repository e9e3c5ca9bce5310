"""One pass over the events of a rank: what its invariants are judged from, and no event is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.errors import TraceError
from detlab.ops import Dependence, base_name, dependence
from detlab.schema import Evidence, Flag, Kind, Phase, Site
from detlab.store import RankTrace

Columns = Mapping[str, NDArray[Any]]

_COLUMNS: Final = (
    "seq",
    "step",
    "microbatch",
    "phase",
    "kind",
    "callee",
    "call",
    "meta",
    "n_in",
    "n_out",
    "evidence",
    "flags",
)
_MAX_LISTED: Final = 100


class Communicator(NamedTuple):
    """A communicator as one run names it."""

    label: str
    members: tuple[int, ...]


class Message(NamedTuple):
    """Where messages of one step go."""

    step: int
    source: int
    target: int


@dataclass
class Flagged:
    """Calls of which something is true: how many, and the first."""

    num: int = 0
    first: str = ""


@dataclass
class RankSurvey:
    """What one rank's events say of their own order and evidence.

    Attributes
    ----------
    trace
        The rank.
    damage
        Why its events cannot be read; then nothing else is filled.
    num_events, num_computing
        Calls, and those of them that compute something new.
    repeated, gaps
        Sequence numbers that stand twice; runs of missing ones as (first, last, the same step around it).
    turns
        Steps after which an earlier one follows, as (step, following).
    microbatches
        By step the microbatches that were met.
    twins
        Calls whose site stands there before.
    collectives
        By step and communicator the ops in the order in which they began.
    sent, received
        How many messages of each step went out and came in here.
    memberless
        Collectives of communicators whose members are not known.
    pending, early
        Collectives without a result; calls that were hashed too early, by flag.
    takes_inputs
        Whether any call lists an input.
    no_output, no_input, open_input
        Computing calls without evidence of a side, or with inputs that are not recorded.
    weak_input, weak_output
        Calls with a digest that is blind to much.
    algorithms
        Calls with outputs by digest algorithm.
    levels
        Calls by what equality of their outputs proves.
    """

    trace: RankTrace
    damage: str = ""
    num_events: int = 0
    num_computing: int = 0
    repeated: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int, bool]] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
    microbatches: dict[int, frozenset[int]] = field(default_factory=dict)
    twins: Flagged = field(default_factory=Flagged)
    collectives: dict[tuple[int, Communicator], tuple[str, ...]] = field(default_factory=dict)
    sent: Counter[Message] = field(default_factory=Counter)
    received: Counter[Message] = field(default_factory=Counter)
    memberless: Counter[str] = field(default_factory=Counter)
    pending: Flagged = field(default_factory=Flagged)
    early: dict[str, Flagged] = field(default_factory=dict)
    takes_inputs: bool = False
    no_output: Flagged = field(default_factory=Flagged)
    no_input: Flagged = field(default_factory=Flagged)
    open_input: Flagged = field(default_factory=Flagged)
    weak_input: Flagged = field(default_factory=Flagged)
    weak_output: Flagged = field(default_factory=Flagged)
    algorithms: Counter[str] = field(default_factory=Counter)
    levels: Counter[Evidence] = field(default_factory=Counter)

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.trace.header.rank

    @property
    def whole_steps(self) -> list[int]:
        """The steps that end inside the trace: of one that was cut the last is not known to."""
        steps = [step for step in self.trace.steps if step >= 0]
        return steps if self.trace.complete else steps[:-1]


def survey(trace: RankTrace) -> RankSurvey:
    """Look at every event of a rank once."""
    found = RankSurvey(trace)
    try:
        columns = trace.columns(0, trace.num_events, _COLUMNS)
        _order(found, columns)
        _sites(found, columns)
        _collectives(found, columns)
        _evidence(found, columns)
    except (TraceError, IndexError) as error:
        return RankSurvey(trace, getattr(error, "finding", "") or "its events use names that are not there")
    return found


def _order(found: RankSurvey, columns: Columns) -> None:
    order = np.argsort(columns["seq"], kind="stable")
    seqs, steps = columns["seq"][order].astype(np.int64), columns["step"][order]
    found.num_events = len(seqs)
    apart = np.diff(seqs)
    found.repeated = seqs[1:][apart == 0][:_MAX_LISTED].tolist()
    for at in np.flatnonzero(apart > 1).tolist():
        found.gaps.append((int(seqs[at]) + 1, int(seqs[at + 1]) - 1, bool(steps[at] == steps[at + 1])))
    counted = steps[steps >= 0]
    back = np.flatnonzero(np.diff(counted) < 0)[:_MAX_LISTED]
    found.turns = [(int(counted[at]), int(counted[at + 1])) for at in back.tolist()]
    numbered = columns["microbatch"] >= 0
    pairs = np.unique(columns["step"][numbered].astype(np.int64) << 16 | columns["microbatch"][numbered])
    for step in np.unique(pairs >> 16).tolist():
        found.microbatches[step] = frozenset((pairs[pairs >> 16 == step] & 0xFFFF).tolist())


def _sites(found: RankSurvey, columns: Columns) -> None:
    """Find the calls whose site an earlier row has; two whole numbers sort faster than five columns."""
    segment = columns["step"].astype(np.int64) << 24 | (columns["microbatch"].astype(np.int64) + 1 << 8)
    segment |= columns["phase"]
    call = columns["callee"].astype(np.uint64) << np.uint64(32) | columns["call"]
    order = np.lexsort((call, segment))  # stable, so that of twins the first row stays the first
    same = (np.diff(segment[order]) == 0) & (np.diff(call[order]) == 0)
    again = np.zeros(len(order), bool)
    again[order[1:][same]] = True
    found.twins = _flagged(found, columns, again)


def _collectives(found: RankSurvey, columns: Columns) -> None:
    rows = np.flatnonzero(columns["kind"] == Kind.COLLECTIVE)
    ops: dict[tuple[int, Communicator], list[str]] = {}
    for row in rows[np.argsort(columns["seq"][rows], kind="stable")].tolist():
        callee, step = found.trace.names.callees[int(columns["callee"][row])], int(columns["step"][row])
        needs = dependence(callee.op)
        if needs == Dependence.SEND or base_name(callee.op).removeprefix("i").startswith("send"):
            _count_message(found, columns, row, needs)
            continue
        members = tuple(found.trace.header.groups.get(callee.group, ()))
        if members:
            communicator = Communicator(callee.group, tuple(sorted(members)))
            ops.setdefault((step, communicator), []).append(base_name(callee.op))
        else:
            found.memberless[callee.group] += 1
    found.collectives = {key: tuple(called) for key, called in ops.items()}


def _count_message(found: RankSurvey, columns: Columns, row: int, needs: Dependence) -> None:
    attributes = dict(found.trace.names.metas[int(columns["meta"][row])].attributes)
    step, is_received = int(columns["step"][row]), needs == Dependence.SEND
    peer = attributes.get("src" if is_received else "dst", "")
    if not peer.isdecimal():
        found.memberless["messages"] += 1
    elif is_received:
        found.received[Message(step, int(peer), found.rank)] += 1
    else:
        found.sent[Message(step, found.rank, int(peer))] += 1


_EARLY: Final = {
    Flag.NOT_WAITED_FOR: "collectives hashed before completion",
    Flag.COPY_IN_FLIGHT: "copies in flight",
    Flag.POINTERS: "arrays of addresses",
}


def _evidence(found: RankSurvey, columns: Columns) -> None:
    flags, outputs, inputs = columns["flags"], columns["evidence"] & 15, columns["evidence"] >> 4
    collective = columns["kind"] == Kind.COLLECTIVE
    pending = collective & _has(flags, Flag.NOT_WAITED_FOR) & (outputs == 0)
    found.pending = _flagged(found, columns, pending)
    for flag, name in _EARLY.items():
        found.early[name] = _flagged(found, columns, _has(flags, flag) & ~pending)
    gives = (columns["n_out"] > 0) & ~_has(flags, Flag.VIEW) & ~pending
    computing = gives & ~_has(flags, Flag.FRESH_MEMORY)
    known = outputs > Evidence.STRUCTURE  # a shape says nothing of the bits
    found.num_computing = int(computing.sum())
    found.no_output = _flagged(found, columns, computing & ~known)
    takes = computing & (columns["kind"] != Kind.STATE)
    found.no_input = _flagged(found, columns, takes & (columns["n_in"] > 0) & (inputs <= Evidence.STRUCTURE))
    found.takes_inputs = bool((columns["n_in"] > 0).any())
    found.open_input = _flagged(found, columns, takes & _has(flags, Flag.OPEN_INPUTS))
    found.weak_input = _flagged(found, columns, _has(flags, Flag.WEAK_INPUT))
    found.weak_output = _flagged(found, columns, _has(flags, Flag.WEAK_OUTPUT))
    for level, num in Counter(outputs[computing & known].tolist()).items():
        found.levels[Evidence(level)] += num
    for meta, num in Counter(columns["meta"][computing & known].tolist()).items():
        found.algorithms[found.trace.names.metas[meta].algorithm] += num


def _has(flags: NDArray[Any], flag: Flag) -> NDArray[np.bool_]:
    has: NDArray[np.bool_] = (flags & np.uint16(flag)) != 0
    return has


def _flagged(found: RankSurvey, columns: Columns, rows: NDArray[np.bool_]) -> Flagged:
    """Count some calls and name the first; sites are the recorded ones, for people to look up."""
    at = np.flatnonzero(rows)
    return Flagged(len(at), str(_site(found.trace, columns, int(at[0])))) if len(at) else Flagged()


def _site(trace: RankTrace, columns: Columns, row: int) -> Site:
    step, microbatch, phase, callee, call = (
        int(columns[name][row]) for name in ("step", "microbatch", "phase", "callee", "call")
    )
    return Site(step, microbatch, Phase(phase), trace.names.callees[callee], call)

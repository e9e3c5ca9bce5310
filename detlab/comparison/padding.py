"""Differences in bytes that nothing reads, such as the rows beyond the last token of a padded buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.communication import Judgement
from detlab.comparison.lineage import Lineage, follow
from detlab.comparison.ranks import RankComparison, read_rows
from detlab.comparison.tensors import differing, tensors_of
from detlab.ops import is_view, makes_fresh_memory, takes_host_scalar
from detlab.schema import Flag, Kind, Mask, Phase, Side, Verdict
from detlab.store import RankTrace

_AT_ONCE: Final = 10_000
"""Calls among which readers are looked for at a time; most are found among the first."""

_SHORT_LIVED: Final = (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)
"""Parts of a step whose results end with it; an optimizer's results are read in the next."""


@dataclass(frozen=True, slots=True)
class _Buffer:
    """An origin whose output is viewed without its difference.

    Attributes
    ----------
    origin, views, others
        Where it is, its views that do not differ, and what else takes it in its step.
    lineage
        That of its step.
    """

    origin: int
    views: NDArray[np.intp]
    others: NDArray[np.intp]
    lineage: Lineage


def judge_padding(rank: RankComparison) -> tuple[RankComparison, dict[int, Judgement]]:
    """Set aside origins whose differing bytes nothing reads, and judge calls that may read such bytes.

    An origin of the first divergent step is set aside when every recorded call that takes its output is a
    view of other bytes of it: a view whose input differs and whose output does not. A call that computes
    and absorbs the difference proves nothing of the kind: it may have rounded it away. Calls of later steps
    and snapshots of states are readers too, and so is a call that may take what was not recorded.

    Whether a call that takes the whole buffer uses its last rows was not recorded, so that it may have
    received the difference or be an origin itself: its verdict is unknown. A view of less than half of the
    buffer says nothing of what the rest is for.
    """
    step = rank.first_step()
    buffers = [] if step is None else list(_viewed_buffers(rank, step))
    unread = _unread(rank, buffers)
    judged = rank.with_masks(unread, Mask.SET_ASIDE | Mask.PADDING)
    if len(unread) and (then := judged.first_step()) != step:
        buffers = [] if then is None else list(_viewed_buffers(judged, then))
    return judged, _padded_inputs(judged, buffers)


def _viewed_buffers(rank: RankComparison, step: int) -> Iterator[_Buffer]:
    """Give the origins of a step whose output is viewed without its difference."""
    here = rank.differing_in(step, step)
    absorbed = here[rank.verdicts[here] == Verdict.ABSORBED]
    views = absorbed[rank.has_op(absorbed, is_view)]
    origins = here[rank.verdicts[here] == Verdict.ORIGIN]
    if not len(views) or not len(origins):
        return
    lineage = follow(rank, step, step)
    facts = rank.events(origins, ("kind", "phase"))
    lives = np.isin(facts["phase"], _SHORT_LIVED) & (facts["kind"] != Kind.COLLECTIVE)
    for origin in origins[lives].tolist():
        readers = np.unique(lineage.changes["position"][lineage.sources == origin])
        is_blind = np.isin(readers, views)
        if is_blind.any():
            yield _Buffer(origin, readers[is_blind], readers[~is_blind], lineage)


def _padded_inputs(rank: RankComparison, buffers: Sequence[_Buffer]) -> dict[int, Judgement]:
    """Judge calls that take a whole buffer of which only the rows beyond a view of its beginning differ."""
    found: dict[int, Judgement] = {}
    for each in buffers:
        if rank.has_op(each.others, is_view).any():  # the rest is read on, as a part of its own
            continue
        others = each.others[rank.events(each.others, ("kind",))["kind"] == Kind.OP]
        if len(others) and _holds_the_beginning(rank, each.origin, each.views):
            receivers = others[rank.verdicts[others] == Verdict.RECEIVER].tolist()
            alone = [at for at in receivers if all(s == each.origin for _, s, _ in each.lineage.of(at))]
            found |= dict.fromkeys(alone, Judgement(Verdict.UNKNOWN, "padding"))
    return found


def _holds_the_beginning(rank: RankComparison, origin: int, views: NDArray[np.intp]) -> bool:
    """Say whether a view holds the first bytes of a buffer, and more than half of it."""
    tensors = tensors_of(rank, np.union1d(views, origin))
    outputs = tensors[tensors["side"] == Side.OUTPUT]
    buffers, seen = outputs[outputs["position"] == origin], outputs[outputs["position"] != origin]
    for buffer in buffers[buffers["storage"] != 0]:
        first = (seen["storage"] == buffer["storage"]) & (seen["start"] == buffer["start"])
        if (first & (2 * seen["stop"] > buffer["start"] + buffer["stop"])).any():
            return True
    return False


def _unread(rank: RankComparison, buffers: Sequence[_Buffer]) -> NDArray[np.intp]:
    """Give the origins whose difference nothing can have read, in their step or later, and their views."""
    waiting = [each.origin for each in buffers if not len(each.others)]
    first = int(np.searchsorted(rank.differing, min(waiting, default=len(rank.verdicts))))
    readers = _Readers(rank)
    for start in range(first, len(rank.differing), _AT_ONCE):
        some = readers.of(rank.differing[start : start + _AT_ONCE])
        waiting = [origin for origin in waiting if not readers.any_takes(origin, *some)]
        if not waiting:
            break
    made = differing(tensors_of(rank, np.array(waiting, np.intp)), Side.OUTPUT)
    views = [views["position"][_has_digest(views, made)] for views in readers.blind]
    return np.unique(np.concatenate([np.array(waiting, np.intp), *views])).astype(np.intp)


@dataclass(slots=True)
class _Readers:
    """The search for calls that can have taken the difference of a buffer; in doubt they have.

    Attributes
    ----------
    given
        Digests of the differing tensors that recorded calls gave so far, as both runs have them.
    blind
        What views take that do not differ themselves.
    gone
        Row after which other bytes stand where an output of an origin was, by its row, start and run.
    """

    rank: RankComparison
    given: set[int] = field(default_factory=set)
    blind: list[NDArray[np.void]] = field(default_factory=list)
    gone: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def of(self, positions: NDArray[np.intp]) -> tuple[NDArray[np.void], NDArray[np.intp]]:
        """Give the differing tensors that some calls take or hold, and the calls that may take others."""
        rank = self.rank
        blind = (rank.verdicts[positions] == Verdict.ABSORBED) & rank.has_op(positions, is_view)
        facts = rank.events(positions, ("kind", "phase"))
        holds = (facts["kind"] == Kind.STATE) | (facts["phase"] == Phase.STATE)
        tensors = tensors_of(rank, positions)
        taken = differing(tensors, Side.INPUT)
        outputs = differing(tensors, Side.OUTPUT)
        held = outputs[np.isin(outputs["position"], positions[holds])]
        self.given.update(outputs["digest_a"].tolist(), outputs["digest_b"].tolist())
        of_view = np.isin(taken["position"], positions[blind])
        self.blind.append(taken[of_view])
        return np.concatenate([taken[~of_view], held]), positions[~blind & _is_open(rank, positions)]

    def any_takes(self, origin: int, taken: NDArray[np.void], unseen: NDArray[np.intp]) -> bool:
        """Say whether any call after an origin takes its difference, or can have taken it."""
        if (unseen > origin).any():
            return True
        made = differing(tensors_of(self.rank, np.array([origin])), Side.OUTPUT)
        taken = taken[taken["position"] > origin]
        if _has_digest(taken, made).any() or self._has_no_place(taken, made):
            return True
        for in_b in (False, True):
            reads = _places(self.rank, taken, in_b)
            if any(self._overlaps(each, reads, in_b) for each in _places(self.rank, made, in_b)):
                return True
        return False

    def _has_no_place(self, taken: NDArray[np.void], made: NDArray[np.void]) -> bool:
        """Say whether a tensor differs whose bytes are not known and that no recorded call gave."""
        placeless = taken["in_both"] & ((taken["storage"] == 0) | (made["storage"] == 0).any())
        placeless &= taken["side"] == Side.INPUT
        return any(digest not in self.given for digest in taken["digest_a"][placeless].tolist())

    def _overlaps(self, made: np.void, taken: NDArray[np.void], in_b: bool) -> bool:
        """Say whether a tensor that is taken holds bytes of a buffer that nobody has written since."""
        key = int(made["row"]), int(made["start"]), in_b
        near = _sharing(taken, made)
        near = near[near["row"] <= self.gone.get(key, np.iinfo(np.int64).max)]
        if not len(near):
            return False
        writes = _writes(self.rank.b if in_b else self.rank.a, made, int(near["row"].max()))
        whole = writes["row"][(writes["start"] <= made["start"]) & (writes["stop"] >= made["stop"])]
        if len(whole):  # memory is used again and again
            self.gone[key] = int(whole.min())
        return any(not _is_overwritten(read, made, writes) for read in near)


def _is_overwritten(read: np.void, made: np.void, writes: NDArray[np.void]) -> bool:
    """Say whether the bytes of a buffer that a tensor holds were written before it is read."""
    first, last = max(read["start"], made["start"]), min(read["stop"], made["stop"])
    covers = (writes["start"] <= first) & (writes["stop"] >= last)
    return bool((covers & (writes["row"] < read["row"])).any())


def _has_digest(taken: NDArray[np.void], made: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell the tensors that are an output by their digest, or hold it in a bucket by an XOR digest."""
    same = np.isin(taken["digest_a"], made["digest_a"]) & (taken["digest_a"] != 0)
    same |= np.isin(taken["digest_b"], made["digest_b"]) & (taken["digest_b"] != 0)
    changed, change = (each["digest_a"] ^ each["digest_b"] for each in (taken, made))
    found: NDArray[np.bool_] = same | (taken["in_both"] & np.isin(changed, change))
    return found


def _is_open(rank: RankComparison, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Say which calls may take tensors that were not recorded, in either run."""
    found = np.zeros(len(positions), bool)
    for trace, rows in zip((rank.a, rank.b), rank.rows(positions), strict=True):
        events = read_rows(trace, rows[rows >= 0], ("evidence", "flags"))
        flagged = (events["flags"] & np.uint16(Flag.OPEN_INPUTS)) != 0
        flagged &= ~rank.has_op(positions[rows >= 0], takes_host_scalar)  # open to a number, not a tensor
        found[rows >= 0] |= flagged | (events["evidence"] >> 4 == 0)
    is_fresh: NDArray[np.bool_] = rank.has_op(positions, makes_fresh_memory)
    return found & ~is_fresh


_PLACE_DTYPE: Final = np.dtype([("row", "<i8"), ("storage", "<u8"), ("start", "<u8"), ("stop", "<u8")])


def _places(rank: RankComparison, tensors: NDArray[np.void], in_b: bool) -> NDArray[np.void]:
    """Give the rows and bytes of tensors in one run, where they are known."""
    found = np.zeros(len(tensors), _PLACE_DTYPE)
    found["row"] = rank.rows(tensors["position"].astype(np.intp))[in_b]
    for name in ("storage", "start", "stop"):
        found[name] = tensors[f"{name}{'_b' * in_b}"]
    known: NDArray[np.void] = found[found["storage"] != 0]
    return known


def _sharing(places: NDArray[np.void], made: np.void) -> NDArray[np.void]:
    here = (places["storage"] == made["storage"]) & (places["row"] > made["row"])
    here &= (places["start"] < made["stop"]) & (places["stop"] > made["start"])
    found: NDArray[np.void] = places[here]
    return found


def _writes(trace: RankTrace, made: np.void, last: int) -> NDArray[np.void]:
    """Give the writes to bytes of a buffer after it was made, up to some row."""
    bounds, found = trace.batch_starts(), [np.empty(0, _PLACE_DTYPE)]
    first, stop = np.searchsorted(bounds, [made["row"], last], side="right").tolist()
    for number in range(first - 1, min(stop, len(trace.details))):
        seqs = trace.events.read(number, ["seq"])["seq"]
        order = np.argsort(seqs, kind="stable")
        details = trace.details.read(number, ("seq", "side", "storage", "start", "stop"))
        chosen = (details["side"] == Side.OUTPUT) & (details["storage"] == made["storage"])
        part = np.empty(int(chosen.sum()), _PLACE_DTYPE)
        at = np.searchsorted(seqs[order], details["seq"][chosen])
        part["row"] = bounds[number] + order[np.minimum(at, len(order) - 1)]
        for name in ("storage", "start", "stop"):
            part[name] = details[name][chosen]
        found.append(part[np.isin(part["row"], _writers(trace, number))])
    return _sharing(np.concatenate(found), made)


def _writers(trace: RankTrace, number: int) -> NDArray[np.int64]:
    """Give the rows of a batch whose outputs are written: not those of views, snapshots and fresh memory."""
    first = int(trace.batch_starts()[number])
    events = trace.events.read(number, ("callee", "kind", "flags"))
    known, member = np.unique(events["callee"], return_inverse=True)
    ops = [trace.names.callees[int(callee)].op for callee in known]
    idle = np.array([is_view(op) or makes_fresh_memory(op) for op in ops])[member]
    idle |= (events["flags"] & np.uint16(Flag.VIEW)) != 0
    idle |= ~np.isin(events["kind"], (Kind.OP, Kind.COLLECTIVE, Kind.OPTIMIZER))
    return first + np.flatnonzero(~idle)

"""What a rank holds that others may hold as well: results of collectives, states, and parameters.

A parameter is told from data by what is done to its memory: an op of the forward reads it before anything
in that step has written it, and an optimizer writes into it in place. A temporary whose memory is used
again fails the one or the other, so no name and no shape is needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from detlab.comparison.step_events import StepEvents
from detlab.ops import Dependence, base_name, dependence, is_view
from detlab.schema import Evidence, Flag, Kind, Phase, Side, Site, TensorMeta
from detlab.store import RankTrace

Key = tuple[Hashable, ...]
Range = tuple[int, int, int]
"""Storage, first byte and one past the last."""


class Held(NamedTuple):
    """One tensor, or all tensors of one event, as a rank held them at one moment.

    Attributes
    ----------
    digest
        Their bits.
    form
        What has to be equal for the bits to be comparable: shapes, dtypes, digest algorithm.
    site
        The event that shows them.
    order
        Order of that event on the rank.
    evidence
        What equality of the digest proves.
    is_large
        Whether it holds more than one floating-point number: flags and counters are equal by chance.
    """

    digest: int
    form: Hashable
    site: Site
    order: int
    evidence: Evidence
    is_large: bool


_UNSURE: Final = Flag.FRESH_MEMORY | Flag.NOT_WAITED_FOR | Flag.POINTERS | Flag.COPY_IN_FLIGHT
_REPLICATED: Final = (Dependence.EVERY_MEMBER, Dependence.PIECES, Dependence.SOURCE)
_COLLECTIVES: Final = ("allreduce", "all_reduce", "allgather", "_allgather", "all_gather", "broadcast")
_AFTER_REDUCTION: Final = (Phase.OPTIMIZER, Phase.STATE)


def _outputs(events: StepEvents, row: int) -> Held | None:
    """Give what an event put out, or None where that is not known or not to be trusted."""
    evidence = Evidence(int(events["evidence"][row]) & 15)
    if evidence < Evidence.SCREEN or events["flags"][row] & np.uint16(_UNSURE) or not events["n_out"][row]:
        return None
    meta = events.meta(row)
    form = (tuple(tensor[:2] for tensor in meta.outputs), meta.algorithm)
    order, is_large = int(events["seq"][row]), any(map(_is_large, meta.outputs))
    return Held(int(events["out_digest"][row]), form, events.site(row), order, evidence, is_large)


def _is_large(tensor: TensorMeta) -> bool:
    return "float" in tensor.dtype and math.prod(tensor.shape) > 1


def collectives(events: StepEvents) -> dict[tuple[int, ...], list[Held | None]]:
    """Give the results of collectives that every member has alike, by members, in the order of calls.

    A call whose result no one has to share, or that cannot be trusted, leaves None in its place.
    """
    found: dict[tuple[int, ...], list[Held | None]] = defaultdict(list)
    rows = np.flatnonzero(events["kind"] == Kind.COLLECTIVE)
    for row in rows[np.argsort(events["seq"][rows], kind="stable")].tolist():
        callee = events.trace.names.callees[int(events["callee"][row])]
        members = tuple(sorted(events.trace.header.groups.get(callee.group, ())))
        shared = base_name(callee.op).startswith(_COLLECTIVES) and dependence(callee.op) in _REPLICATED
        found[members].append(_outputs(events, row) if shared else None)
    return found


def states(events: StepEvents) -> dict[Key, Held]:
    """Give what the optimizer and state snapshots show, by phase, callee and call.

    In the reduction of gradients only snapshots count: its ops work on partial sums as well.
    """
    phase, kind = events["phase"], events["kind"]
    late = np.isin(phase, _AFTER_REDUCTION) & (kind != Kind.COLLECTIVE)
    snapshot = (kind == Kind.STATE) & (phase == Phase.GRAD_REDUCE)
    found: dict[Key, Held] = {}
    for row in np.flatnonzero(late | snapshot).tolist():
        held = _outputs(events, row)
        if held is not None:
            site = held.site
            found["state", site.phase, site.microbatch, site.callee, site.call] = held
    return found


def parameters(trace: RankTrace) -> dict[int, dict[Key, Held]]:
    """Give the parameters that the forward reads, step by step.

    Returns
    -------
    By step, then by the callee, call and position of the first read in the step.
    """
    reads: dict[int, dict[Range, tuple[Key, Held]]] = {}
    updated: dict[int, set[tuple[int, int]]] = defaultdict(set)
    made: set[int] = set()
    for step in trace.steps:
        events = StepEvents(trace, step)
        tensors = list(_tensors(events))
        reads[step] = dict(_first_reads(events, tensors))
        for storage, start, stop in _updates(events, tensors, made):
            updated[storage].add((start, stop))
    return {
        step: {key: held for place, (key, held) in found.items() if _overlaps(updated, place)}
        for step, found in reads.items()
    }


def _overlaps(ranges: Mapping[int, Collection[tuple[int, int]]], place: Range) -> bool:
    storage, start, stop = place
    return any(first < stop and start < last for first, last in ranges.get(storage, ()))


class _Tensor(NamedTuple):
    """One tensor with memory that an event reads or writes."""

    row: int
    side: Side
    position: int
    digest: int
    place: Range


_DETAILS: Final = ("seq", "side", "index", "digest", "storage", "start", "stop")
_WITH_MEMORY: Final = (Phase.DATA, Phase.FORWARD, Phase.OPTIMIZER)


def _tensors(events: StepEvents) -> Iterator[_Tensor]:
    """Give the tensors of data, forward and optimizer, in the order of events."""
    trace = events.trace
    rows = np.flatnonzero(np.isin(events["phase"], _WITH_MEMORY))
    rows = rows[np.argsort(events["seq"][rows], kind="stable")]
    seqs = events["seq"][rows]
    for number in np.unique(trace.index["batch"][trace.index["step"] == events.step]).tolist():
        if number >= len(trace.details):
            return
        details = trace.details.read(number, _DETAILS)
        known = (details["stop"] > details["start"]) & (details["storage"] != 0)
        chosen = np.flatnonzero(known & np.isin(details["seq"], seqs))
        at = np.searchsorted(seqs, details["seq"][chosen])
        order = np.lexsort((details["index"][chosen], details["side"][chosen], at))
        columns = (details[name][chosen[order]].tolist() for name in _DETAILS[1:])
        for row, side, index, digest, storage, start, stop in zip(
            rows[at[order]].tolist(), *columns, strict=True
        ):
            yield _Tensor(row, Side(side), index, digest, (storage, start, stop))


def _first_reads(events: StepEvents, tensors: Sequence[_Tensor]) -> Iterator[tuple[Range, tuple[Key, Held]]]:
    """Give the first read of each piece of memory that nothing in this step has written before."""
    written: dict[int, list[tuple[int, int]]] = defaultdict(list)
    seen: set[Range] = set()
    for tensor in tensors:
        phase = events["phase"][tensor.row]
        if phase == Phase.OPTIMIZER:
            continue
        if tensor.side == Side.OUTPUT and not _is_view(events, tensor.row):
            written[tensor.place[0]].append(tensor.place[1:])
        elif tensor.side == Side.INPUT and phase == Phase.FORWARD and tensor.place not in seen:
            seen.add(tensor.place)
            held = _read(events, tensor)
            if held is not None and not _overlaps(written, tensor.place):
                yield tensor.place, (("parameter", held.site.callee, held.site.call, tensor.position), held)


def _read(events: StepEvents, tensor: _Tensor) -> Held | None:
    """Give a tensor as an op inside a module reads it; None where that cannot be trusted."""
    site, evidence = events.site(tensor.row), Evidence(int(events["evidence"][tensor.row]) >> 4)
    if (
        not site.callee.scope
        or evidence < Evidence.SCREEN
        or events["flags"][tensor.row] & np.uint16(_UNSURE)
    ):
        return None
    meta = events.meta(tensor.row)
    mine = meta.inputs[tensor.position : tensor.position + 1]
    order, is_large = int(events["seq"][tensor.row]), any(map(_is_large, mine))
    return Held(tensor.digest, (mine, meta.algorithm), site, order, evidence, is_large)


def _is_view(events: StepEvents, row: int) -> bool:
    return bool(events["flags"][row] & np.uint16(Flag.VIEW)) or is_view(events.op(row))


def _updates(events: StepEvents, tensors: Sequence[_Tensor], made: set[int]) -> Iterator[Range]:
    """Give the memory that the optimizer writes into in place and that was never made inside it.

    ``made`` holds the storages made inside it, now and in the steps before: temporaries, and state that it
    makes when it needs it. The storage of a parameter is never one of them.
    """
    for tensor in tensors:
        if tensor.side != Side.OUTPUT or events["phase"][tensor.row] != Phase.OPTIMIZER:
            continue
        if _is_view(events, tensor.row):
            continue
        if not base_name(events.op(tensor.row)).endswith("_"):
            made.add(tensor.place[0])
        elif tensor.place[0] not in made:
            yield tensor.place

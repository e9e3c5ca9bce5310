"""Turn calls into packed rows and hand them to the trace writer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch

from detlab.digest import ALGORITHM
from detlab.record.geometry import Geometry
from detlab.record.scopes import Where
from detlab.record.sides import Fingerprint
from detlab.schema import (
    DETAIL_DTYPE,
    EVENT_DTYPE,
    Callee,
    Evidence,
    Kind,
    Meta,
    Site,
    pack_evidence,
)
from detlab.store import TraceWriter

_EVENT: Final = struct.Struct("<IihBBIIIQQHHBH")
assert _EVENT.size == EVENT_DTYPE.itemsize
_ROWS_AT_ONCE: Final = 8192

Attributes = tuple[tuple[str, str], ...]


class Call:
    """A call that has begun: its identity and its inputs, until its outputs are known."""

    __slots__ = (
        "attributes",
        "call_site",
        "callee",
        "flags",
        "inputs",
        "kind",
        "num_pieces",
        "outputs",
        "seq",
        "site_call",
        "step",
        "where",
    )

    def __init__(self, seq: int, step: int, where: Where, kind: Kind, callee: int, site_call: int) -> None:
        self.seq, self.step, self.where, self.kind = seq, step, where, kind
        self.callee, self.site_call = callee, site_call
        self.attributes: Attributes = ()
        self.call_site = ""
        self.flags = 0
        self.inputs = Fingerprint()
        self.outputs: Sequence[torch.Tensor] = ()
        self.num_pieces = 1


class EventLog:
    """Count calls, intern names and pack rows for one rank.

    Parameters
    ----------
    open_writer
        Creates the files; called at the first event, or before that by `open`.
    """

    def __init__(self, open_writer: Callable[[], TraceWriter]) -> None:
        self._open_writer = open_writer
        self._seq = 0
        self._step = -1
        self._counts: dict[tuple[int, int, int], int] = {}
        self._callees: dict[tuple[str, str, str], int] = {}
        self._metas: dict[tuple[Any, ...], int] = {}
        self._rows: list[bytes] = []
        self._details: list[bytes] = []

    @cached_property
    def _writer(self) -> TraceWriter:
        return self._open_writer()

    def open(self) -> None:
        """Create the files now; a trace is there even when nothing is recorded."""
        assert self._writer

    @property
    def step(self) -> int:
        """The step that calls belong to now."""
        return self._step

    def begin_step(self, step: int) -> None:
        """Start counting calls anew for this step."""
        self._step = step
        self._counts.clear()

    def begin(self, where: Where, op: str, kind: Kind, group: str = "") -> Call:
        """Give a call its place in the order and its identity."""
        name = (where.scope, op, group)
        callee = self._callees.get(name)
        if callee is None:
            callee = self._callees[name] = self._writer.names.callee_id(Callee(*name))
        key = (callee, where.microbatch, where.phase)
        site_call = self._counts.get(key, 0)
        self._counts[key] = site_call + 1
        self._seq += 1
        return Call(self._seq - 1, self._step, where, kind, callee, site_call)

    def withdraw(self, call: Call) -> None:
        """Take back the call that was begun last."""
        where = call.where
        self._counts[call.callee, where.microbatch, where.phase] -= 1

    def site(self, call: Call) -> Site:
        """Give the run-independent identity of a call."""
        callee = self._writer.names.callees[call.callee]
        return Site(call.step, call.where.microbatch, call.where.phase, callee, call.site_call)

    def emit(self, call: Call, inputs: Evidence, output: Fingerprint, outputs: Evidence) -> None:
        """Write the row of a completed call, with the given evidence for either side."""
        given, where = call.inputs, call.where
        self._rows.append(
            _EVENT.pack(
                call.seq,
                call.step,
                where.microbatch,
                where.phase,
                call.kind,
                call.callee,
                call.site_call,
                self._meta(call, given.geometries, output.geometries),
                given.digest() if inputs else 0,
                output.digest() if outputs else 0,
                len(given.geometries),
                len(output.geometries),
                pack_evidence(inputs, outputs),
                call.flags | given.flags | output.flags,
            )
        )
        self._details += given.rows
        self._details += output.rows
        if len(self._rows) >= _ROWS_AT_ONCE:
            self.hand_over()

    def _meta(self, call: Call, inputs: list[Geometry], outputs: list[Geometry]) -> int:
        key = (tuple(inputs), tuple(outputs), call.attributes, call.call_site)
        found = self._metas.get(key)
        if found is None:
            given, gave = (tuple(item.meta for item in side) for side in (inputs, outputs))
            meta = Meta(given, gave, ALGORITHM, call.attributes, call.call_site)
            found = self._metas[key] = self._writer.names.meta_id(meta)
        return found

    def hand_over(self) -> None:
        """Give all packed rows to the writer."""
        events = np.frombuffer(b"".join(self._rows), EVENT_DTYPE)
        details = np.frombuffer(b"".join(self._details), DETAIL_DTYPE)
        self._rows.clear()
        self._details.clear()
        self._writer.append(events, details)

    def flush(self) -> None:
        """Make all that was emitted readable by others."""
        self.hand_over()
        self._writer.flush()

    def add_groups(self, groups: Mapping[str, tuple[int, ...]]) -> None:
        """Register communicators met while recording."""
        for label, members in groups.items():
            self._writer.add_group(label, members)

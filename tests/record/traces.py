"""Record a piece of code and read its events back, one object each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detlab.record import Recorder
from detlab.schema import DETAIL_DTYPE, EVENT_DTYPE, Callee, Evidence, Flag, Kind, Meta, Phase, Site
from detlab.store import open_rank


@dataclass(frozen=True)
class Event:
    """One event with its names resolved."""

    seq: int
    site: Site
    kind: Kind
    meta: Meta
    in_digest: int
    out_digest: int
    inputs: Evidence
    outputs: Evidence
    num_in: int
    num_out: int
    flags: Flag
    details: np.ndarray

    @property
    def op(self) -> str:
        return self.site.callee.op

    @property
    def scope(self) -> str:
        return self.site.callee.scope

    @property
    def phase(self) -> Phase:
        return self.site.phase

    @property
    def values(self) -> tuple[int, int]:
        return self.in_digest, self.out_digest


def record(work: Callable[[Recorder], object], **options: Any) -> list[Event]:
    """Run ``work`` inside a recorder and give its events, in order of completion."""
    with tempfile.TemporaryDirectory() as folder:
        with Recorder(folder, **options) as rec:
            work(rec)
        return read_events(folder)


def read_events(folder: str | Path, rank: int = 0) -> list[Event]:
    """Read the events of one rank of a run."""
    trace = open_rank(Path(folder), rank)
    assert not trace.problems
    columns = trace.columns(0, trace.num_events, EVENT_DTYPE.names or ())
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*map(np.ndarray.tolist, columns.values()), strict=True)
    ]
    details = _details(trace)
    return [_event(row, trace.names, details[details["seq"] == row["seq"]]) for row in rows]


def _details(trace: Any) -> np.ndarray:
    """Give the detail rows of all events as one array."""
    batches = [trace.details.read(number, DETAIL_DTYPE.names) for number in range(len(trace.details))]
    rows = np.empty(sum(len(batch["seq"]) for batch in batches), DETAIL_DTYPE)
    for name in DETAIL_DTYPE.names or ():
        rows[name] = np.concatenate([batch[name] for batch in batches]) if batches else []
    return rows


def _event(row: dict[str, int], names: Any, details: np.ndarray) -> Event:
    callee: Callee = names.callees[row["callee"]]
    return Event(
        seq=row["seq"],
        site=Site(row["step"], row["microbatch"], Phase(row["phase"]), callee, row["call"]),
        kind=Kind(row["kind"]),
        meta=names.metas[row["meta"]],
        in_digest=row["in_digest"],
        out_digest=row["out_digest"],
        inputs=Evidence(row["evidence"] >> 4),
        outputs=Evidence(row["evidence"] & 15),
        num_in=row["n_in"],
        num_out=row["n_out"],
        flags=Flag(row["flags"]),
        details=details,
    )


def named(events: list[Event], op: str) -> list[Event]:
    """Give the events of one op."""
    return [event for event in events if event.op == op]


def only(events: list[Event], op: str) -> Event:
    """Give the one event of an op."""
    (event,) = named(events, op)
    return event


def different(a: list[Event], b: list[Event]) -> list[Event]:
    """Give the events of ``a`` whose digests are not those of ``b``; both have the same sites in order."""
    assert [event.site for event in a] == [event.site for event in b]
    return [x for x, y in zip(a, b, strict=True) if x.values != y.values]

"""Small synthetic runs in the neutral notation of tests: a list of calls per rank, with one planted thing.

A call's digests are given as short words ("x", "y"), so that a test reads as the story that it tells:

>>> run = make_run({0: [Call("aten.mm.default", inputs=["w", "x"], outputs=["y"])]})
>>> run
Run('synthetic': 1 of 1 ranks, steps 1, 1 events)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from detlab.digest import ALGORITHM, fold, signature
from detlab.readers.metrics.assemble import FileContent, assemble
from detlab.readers.metrics.frame import (
    exact_metrics,
    join_metrics,
    missing_metrics,
    printed_metrics,
    recorded_metrics,
)
from detlab.readers.metrics.log import MESSAGE_SCHEMA
from detlab.run import Run
from detlab.schema import (
    DETAIL_DTYPE,
    EVENT_DTYPE,
    Callee,
    Coordinate,
    Evidence,
    Kind,
    Meta,
    Phase,
    Side,
    TensorMeta,
    pack_evidence,
)
from detlab.store import (
    Manifest,
    NameTables,
    RankHeader,
    RankTrace,
    TraceWriter,
    memory_trace,
    write_manifest,
)

Groups = Mapping[str, Sequence[int]]
"""Members of each communicator by label."""


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """One event of a synthetic run; words stand for the bits of tensors.

    Attributes
    ----------
    op, scope, group
        What was called and where.
    inputs, outputs
        One word per tensor: equal words are equal bits. None: a tensor without evidence.
    scalars, results
        Scalar arguments, folded into the inputs; numbers that the call gives, as `.item()` does.
    generator
        A word for the state of the generator that a random op draws from; it is an input.
    stats
        For a word that stands for a tensor: absmax, sum, number of NaN and of Inf; folded beside a digest
        whose evidence is a screen at most.
    places
        For a word: name of its storage, first byte and one past its last; an empty name for a trace
        that records no storages.
    shape, dtype
        Of every tensor of the call.
    shapes, dtypes, strides
        For a word: another shape or dtype than that of the call, or strides other than row-major.
    """

    op: str
    scope: str = ""
    inputs: Sequence[str | None] = ()
    outputs: Sequence[str | None] = ()
    scalars: Sequence[object] = ()
    results: Sequence[object] = ()
    generator: str = ""
    step: int = 1
    microbatch: int = 0
    phase: Phase = Phase.FORWARD
    kind: Kind = Kind.OP
    group: str = ""
    flags: int = 0
    evidence: Evidence = Evidence.EXACT
    shape: tuple[int, ...] = (4,)
    dtype: str = "float32"
    algorithm: str = ALGORITHM
    attributes: Mapping[str, str] = field(default_factory=dict)
    stats: Mapping[str, tuple[float, float, int, int]] = field(default_factory=dict)
    places: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        told = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if self._tells(each)]
        return f"Call({', '.join(told)})"

    def _tells(self, part: Field[Any]) -> bool:
        usual = part.default_factory() if part.default_factory is not MISSING else part.default
        return bool(getattr(self, part.name) != usual)

    def tensor(self, word: str | None) -> TensorMeta:
        """Give what is known of a tensor of this call beside its bits."""
        name = word or ""
        shape = self.shapes.get(name, self.shape)
        return TensorMeta(self.dtypes.get(name, self.dtype), shape, self.strides.get(name, _row_major(shape)))


def word_digest(word: str) -> int:
    """Give the digest that stands for the bits named by a word."""
    return int(xxh3_64_intdigest(word.encode()))


def make_run(
    calls: Mapping[int, Sequence[Call]],
    *,
    label: str = "synthetic",
    coordinates: Mapping[int, Coordinate] | None = None,
    groups: Groups | Mapping[int, Groups] | None = None,
    recipes: Mapping[int, Mapping[str, object]] | None = None,
    layout: Mapping[str, int] | None = None,
    world_size: int | None = None,
) -> Run:
    """Make a run in memory from a list of calls per global rank.

    Parameters
    ----------
    calls
        For each rank its calls in the order of completion.
    coordinates
        Place of each rank; by default rank *r* is at ``dp=r``.
    groups
        For each communicator label its members, the same on every rank that belongs to it; or such a
        mapping per rank, where one label names other members on other ranks.
    recipes
        For each rank the arguments, environment and versions as seen there.
    layout, world_size
        What the manifest says; by default one data-parallel axis over the ranks given.
    """
    manifest = Manifest(label, world_size or len(calls), dict(layout or {"dp": len(calls)}))
    ranks = []
    for rank, rows in sorted(calls.items()):
        place = coordinates[rank] if coordinates else Coordinate(dp=rank)
        header = RankHeader(
            rank, place, _groups_of(rank, groups or {}), (recipes or {}).get(rank, {}), ALGORITHM
        )
        names = NameTables()
        events, details = make_rows(rows, names)
        ranks.append(memory_trace(header, names, events, details))
    return Run(label, "memory", manifest, tuple(ranks), recorded_metrics([]))


Number = str | float | np.float32 | None
"""A printed number, one of 64 bits, one of 32 bits, or one that is absent."""
Curves = Mapping[str, Mapping[int, Number]]
"""For each metric its number at each step."""


def make_metrics_run(
    curves: Curves | Sequence[Curves],
    *,
    label: str = "synthetic",
    recorder: Mapping[str, object] | None = None,
) -> Run:
    """Make a run of step metrics alone.

    Parameters
    ----------
    curves
        The metrics; several, in the order of time, for a run with restarts.
    label, recorder
        What the manifest says.
    """
    segments = [curves] if isinstance(curves, Mapping) else curves
    parts = [
        _metric(step, name, number).with_columns(segment=pl.lit(segment, pl.UInt16), source=source)
        for segment, each in enumerate(segments)
        for source in [pl.lit("memory", pl.Categorical)]
        for name, numbers in each.items()
        for step, number in numbers.items()
    ]
    files = [
        FileContent("memory", "synthetic", "made", join_metrics(parts), pl.DataFrame(schema=MESSAGE_SCHEMA))
    ]
    metrics, log = assemble(files)
    manifest = Manifest(label, 0, recorder=recorder or {})
    return Run(label, "memory", manifest, (), metrics, problems=log.conflicts, log=log)


def _metric(step: int, name: str, number: Number) -> pl.DataFrame:
    row = {"step": step, "name": name}
    if number is None:
        return missing_metrics(pl.DataFrame([row | {"state": "absent", "note": None}]))
    if isinstance(number, str):
        return printed_metrics(pl.DataFrame([row | {"text": number}]))
    width = 32 if isinstance(number, np.float32) else 64
    return exact_metrics(pl.DataFrame([row | {"value": float(number)}]), width=width)


def _groups_of(rank: int, groups: Mapping[Any, Any]) -> dict[str, tuple[int, ...]]:
    own: Groups = groups.get(rank, groups)
    return {label: tuple(members) for label, members in own.items() if rank in members}


def make_rows(calls: Sequence[Call], names: NameTables) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Turn calls into event rows and detail rows, interning their names."""
    events = np.zeros(len(calls), EVENT_DTYPE)
    details: list[tuple[object, ...]] = []
    seen: dict[tuple[object, ...], int] = {}
    for seq, (row, call) in enumerate(zip(events, calls, strict=True)):
        callee = names.callee_id(Callee(call.scope, call.op, call.group))
        key = (call.step, call.microbatch, call.phase, callee)
        row["callee"], row["meta"] = callee, names.meta_id(_meta(call))
        row["seq"], row["call"] = seq, seen.get(key, 0)
        row["step"], row["microbatch"] = call.step, call.microbatch
        row["phase"], row["kind"], row["flags"] = call.phase, call.kind, call.flags
        row["n_in"], row["n_out"] = len(call.inputs), len(call.outputs)
        row["in_digest"] = _fold(call, call.inputs, call.scalars, call.generator)
        row["out_digest"] = _fold(call, call.outputs, call.results)
        given = [*call.outputs, *map(repr, call.results)] or [None]
        row["evidence"] = pack_evidence(_level(call, call.inputs), _level(call, given))
        seen[key] = int(row["call"]) + 1
        details += _detail_rows(seq, call)
    rows = np.array(details, DETAIL_DTYPE) if details else np.empty(0, DETAIL_DTYPE)
    return events, rows


def _meta(call: Call) -> Meta:
    inputs, outputs = (tuple(map(call.tensor, words)) for words in (call.inputs, call.outputs))
    return Meta(inputs, outputs, call.algorithm, tuple(sorted(call.attributes.items())))


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))


def _fold(
    call: Call, words: Sequence[str | None], scalars: Sequence[object] = (), generator: str = ""
) -> int:
    tensors = [(word_digest(word), _signature(call, word)) for word in words if word is not None]
    if generator:
        tensors.append((word_digest(generator), b"generator;"))
    return fold(tensors, scalars)


def _signature(call: Call, word: str) -> bytes:
    """Write what is folded beside a digest: dtype and shape, and what a weak digest does not see."""
    sign = signature(*call.tensor(word)[:2])
    is_weak = call.evidence <= Evidence.SCREEN and word in call.stats
    return sign + repr(call.stats[word]).encode() if is_weak else sign


def _level(call: Call, words: Sequence[str | None]) -> Evidence:
    return Evidence.NONE if any(word is None for word in words) else call.evidence


def _detail_rows(seq: int, call: Call) -> list[tuple[object, ...]]:
    sides = ((Side.INPUT, call.inputs), (Side.OUTPUT, call.outputs))
    rows: list[tuple[object, ...]] = [
        (seq, side, index, word_digest(word), *_place(call, word), *_stats(call, word))
        for side, words in sides
        for index, word in enumerate(words)
        if word is not None
    ]
    for index, numbers in enumerate((call.scalars, call.results)):
        if numbers:
            rows.append((seq, Side.SCALARS, index, fold((), numbers), *_NOWHERE, *_NO_STATS))
    if call.generator:
        rows.append((seq, Side.GENERATOR, 0, word_digest(call.generator), *_NOWHERE, *_NO_STATS))
    return rows


_NOWHERE = (0, 0, 0)
_NO_STATS = (0, 0.0, 0.0, 0, 0)


def _place(call: Call, word: str) -> tuple[int, int, int]:
    """Give storage, first and last byte of a tensor: each word has a storage of its own unless told."""
    storage, start, stop = call.places.get(word, (word, 0, 4))
    return (word_digest("storage " + storage), start, stop) if storage else _NOWHERE


def _stats(call: Call, word: str) -> tuple[int, float, float, int, int]:
    return (1, *call.stats[word]) if word in call.stats else _NO_STATS


def save_run(run: Run, folder: str | PathLike[str], *, compress: bool = False) -> Path:
    """Write a synthetic run as the recorder would, and give the folder back."""
    folder = Path(folder)
    write_manifest(folder, run.manifest)
    for trace in run.ranks:
        writer = TraceWriter(folder, trace.header, compress=compress)
        for callee in trace.names.callees:
            writer.names.callee_id(callee)
        for meta in trace.names.metas:
            writer.names.meta_id(meta)
        writer.append(_rows(trace, EVENT_DTYPE), _rows(trace, DETAIL_DTYPE))
        writer.close()
    return folder


def _rows(trace: RankTrace, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    batches = trace.events if dtype is EVENT_DTYPE else trace.details
    parts = [np.empty(0, dtype)]
    for number in range(len(batches)):
        columns = batches.read(number, dtype.names or ())
        part = np.empty(len(columns["seq"]), dtype)
        for name in dtype.names or ():
            part[name] = columns[name]
        parts.append(part)
    return np.concatenate(parts)

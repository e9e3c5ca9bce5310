"""Megatron-LM's rank-local traces (schema 1): a ``rank_000000.jsonl`` a rank, a tensor or scalar a record.

A record holds no inputs, so nothing here can be an origin; what it proves follows from its mode:

==========  ==========  ===========================================================================
mode        evidence    digest
==========  ==========  ===========================================================================
full        exact       64 of the 256 bits of a SHA-256 over all bytes
sampled     partial     the same over evenly spaced elements
summary     statistic   smallest and largest element; mean and norm as far as no order changes them
metadata    structure   dtype and shape
event       exact       the JSON text of its fields
==========  ==========  ===========================================================================

The records do not say where in the parallel layout a rank stands, so rank *n* stands at ``dp=n``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from detlab.digest import fold, scalar_text
from detlab.errors import TraceError
from detlab.progress import Told, reading_files
from detlab.readers.json_lines import BadRecord, Record, first_record, head, walk
from detlab.readers.metrics.frame import recorded_metrics
from detlab.readers.rows import Event, Rows, Stats, Tensor, integer, number, order_free, shape, text
from detlab.run import Run
from detlab.schema import Callee, Coordinate, Evidence, Flag, Kind, Phase, TensorMeta
from detlab.store import Manifest, RankHeader, RankTrace, Subset

_SCHEMA_VERSION: Final = 1
_MARK: Final = b'"occurrence"'
_FILE_NAME: Final = re.compile(r"rank_([0-9]+)\.jsonl")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PHASES: Final = {phase.name.lower(): phase for phase in Phase}
_NONFINITE: Final = {"nan": Flag.NAN, "+inf": Flag.INF, "-inf": Flag.INF}
_LONGEST_NAME: Final = 512

_PLACELESS: Final = "coordinates are not in the records: rank n stands at dp=n"


def matches(path: Path) -> bool:
    """Say whether this is a rank's file of this format, or a folder of them."""
    files = path.glob("rank_*.jsonl") if path.is_dir() else [path] if path.suffix == ".jsonl" else []
    return any(_MARK in head(file) for file in files)


def load(path: Path, label: str, subset: Subset) -> Run:
    """Load the ranks asked for as far as they are whole; what is missing becomes a problem of the run.

    Raises
    ------
    InputError
        No rank is asked for.
    TraceError
        A file has a name that is no rank's, two files are of one rank, or no record can be used.
    """
    files = files_in(path)
    chosen, left_out = subset.choose_ranks(list(files), path)
    readers = [_RankReader(rank, files[rank], subset) for rank in chosen]
    with reading_files([files[rank] for rank in chosen], "rank") as counted:
        problems = [reader.read(told) for reader, (_, told) in zip(readers, counted, strict=True)]
    if not any(len(reader.rows) or reader.left_out_steps for reader in readers):
        raise TraceError(f"{path} holds no record that can be used: {problems[0]}", "copy the files again")
    metrics = [row for reader in readers for row in reader.metrics]
    return Run(
        label=label or path.name,
        source=str(path),
        manifest=Manifest(
            label or path.name, len(files), recorder={"format": "rank-local JSONL", "note": _PLACELESS}
        ),
        ranks=tuple(map(_RankReader.trace, readers)),
        metrics=recorded_metrics(metrics),
        problems=tuple(filter(None, problems)),
        subset=subset,
        left_out_ranks=left_out,
        left_out_steps=tuple(sorted(set().union(*(reader.left_out_steps for reader in readers)))),
    )


def files_in(path: Path) -> dict[int, Path]:
    """Give the file of each rank; refuse names that leave it open which rank a file is of."""
    if path.is_file():
        return {_rank_of_file(path): path}
    found: dict[int, Path] = {}
    for file in sorted(path.glob("rank_*.jsonl")):
        name = _FILE_NAME.fullmatch(file.name)
        if name is None:
            raise TraceError(
                f"{file} is named like a rank and has no number.",
                "name it rank_000000.jsonl, or take it away",
            )
        twin = found.setdefault(int(name[1]), file)
        if twin is not file:
            raise TraceError(
                f"{file} and {twin.name} are both of rank {int(name[1])}.",
                "keep the files of one run in one folder, each once",
            )
    return dict(sorted(found.items()))


def _rank_of_file(path: Path) -> int:
    """Give the rank of a single file: by its name, or by its first record when the name is another."""
    name = _FILE_NAME.fullmatch(path.name)
    if name is not None:
        return int(name[1])
    try:
        return integer(first_record(path).get("rank"), "rank", 1 << 31)
    except BadRecord as damage:
        raise TraceError(f"{path}: line 1 {damage}.", "give the file of one rank") from damage


class _RankReader:
    """Takes the records of one rank in order, and keeps those of the steps that are asked for."""

    def __init__(self, rank: int, path: Path, subset: Subset) -> None:
        self._rank, self._path, self._steps = rank, path, subset.steps
        self._last_sequence = -1
        self._occurrences: dict[tuple[object, ...], int] = {}
        self._problem = ""
        self.rows = Rows()
        self.metrics: list[tuple[int, int, str, float]] = []
        self.left_out_steps: set[int] = set()

    def read(self, told: Told) -> str:
        """Read the file as far as it is whole, and say where it stops being so."""
        self._problem = walk(self._path, self._take, told=told)
        if not self._problem and not len(self.rows) and not self.left_out_steps:
            self._problem = f"{self._path.name}: holds no record"
        return self._problem

    def trace(self) -> RankTrace:
        """Give what was read as the trace of this rank."""
        header = RankHeader(self._rank, Coordinate(dp=self._rank))
        problems = (self._problem,) if self._problem else ()
        return self.rows.trace(header, problems, self._path.stat().st_size)

    def _take(self, record: Record) -> None:
        version = record.get("schema_version")
        if type(version) is not int or version != _SCHEMA_VERSION:
            raise BadRecord(f"has schema_version {version!r:.40}; this reader knows {_SCHEMA_VERSION}")
        if type(record.get("rank")) is not int or record["rank"] != self._rank:
            raise BadRecord(f"is of rank {record.get('rank')!r:.40}, and the file of rank {self._rank}")
        sequence = integer(record.get("sequence"), "sequence", 1 << 32)
        if sequence <= self._last_sequence:
            raise BadRecord(f"has sequence {sequence} after {self._last_sequence}")
        event = self._event(record, sequence)
        if event.step in self._steps:
            self.rows.add(event)
        else:
            self.left_out_steps.add(event.step)
        self._last_sequence = sequence

    def _event(self, record: Record, sequence: int) -> Event:
        kind, name, phase = (_label(record, key) for key in ("event", "name", "phase"))
        step, microbatch = _count(record, "iteration", 1 << 31), _count(record, "microbatch", 1 << 15)
        self._count_occurrence(record, (kind, name, step, microbatch, phase))
        event = Event(
            seq=sequence,
            step=step,
            microbatch=microbatch,
            phase=_PHASES.get(phase, Phase.UNSPECIFIED),
            kind=Kind.STATE,
            callee=Callee("", name),
            attributes=() if phase in _PHASES else (("phase", phase),),
        )
        if kind == "tensor":
            _fill_tensor(event, record)
        elif kind == "event":
            _fill_fields(event, _object(record, "fields"))
            self._add_metric(event, record["fields"].get("value"))
        else:
            raise BadRecord(f"has the unknown event type {kind!r:.40}")
        return event

    def _count_occurrence(self, record: Record, key: tuple[object, ...]) -> None:
        """Refuse a record that stands in the file twice: a writer numbers its records upwards."""
        occurrence = integer(record.get("occurrence"), "occurrence", 1 << 63)
        if occurrence <= self._occurrences.get(key, -1):
            raise BadRecord(f"repeats occurrence {occurrence} of {record['name']!r:.80}")
        self._occurrences[key] = occurrence

    def _add_metric(self, event: Event, value: object) -> None:
        """Keep a number of a whole step as a metric; one of a microbatch stays an event alone."""
        is_of_step = event.microbatch < 0 <= event.step and event.step in self._steps
        if is_of_step and isinstance(value, (int, float)):
            with suppress(OverflowError):  # an integer beyond every float is no metric
                self.metrics.append((event.step, self._rank, event.callee.op, float(value)))


def _label(record: Record, key: str) -> str:
    value = text(record.get(key), key)
    if not 0 < len(value) <= _LONGEST_NAME or any(ord(letter) < 32 for letter in value):
        raise BadRecord(f"has a {key} that is empty, too long, or holds control characters")
    return value


def _count(record: Record, key: str, limit: int) -> int:
    """Give an iteration or microbatch; -1 for null. A missing key is no null."""
    if key not in record:
        raise BadRecord(f"has no {key}")
    return -1 if record[key] is None else integer(record[key], key, limit)


def _object(record: Record, key: str) -> Record:
    found = record.get(key)
    if not isinstance(found, dict):
        raise BadRecord(f"has no {key}")
    return found


def _fill_fields(event: Event, fields: Record) -> None:
    """Make an event of plain values: their JSON text has every bit of them."""
    event.returned = (json.dumps(fields, sort_keys=True),)
    event.levels = Evidence.NONE, Evidence.EXACT
    event.algorithm = "json"
    event.flags |= _NONFINITE.get(str(fields.get("nonfinite")), Flag(0))


def _fill_tensor(event: Event, record: Record) -> None:
    found = _object(record, "tensor")
    mode = text(found.get("mode"), "mode")
    if mode not in _MODES:
        raise BadRecord(f"has the unknown mode {mode!r:.40}")
    for key, is_so in (("value_observed", mode != "metadata"), ("exact_value_certificate", mode == "full")):
        if found.get(key) is not is_so:
            raise BadRecord(f"has {key} {found.get(key)!r:.40}, against its mode {mode}")
    meta = _meta(found)
    if found.get("numel") != math.prod(meta.shape) or type(found.get("numel")) is not int:
        raise BadRecord(f"has numel {found.get('numel')!r:.40} and shape {meta.shape}")
    level, read = _MODES[mode]
    event.algorithm, tensor = read(found, meta)
    event.outputs, event.levels = (tensor,), (Evidence.NONE, level)
    event.attributes = tuple(sorted((*event.attributes, *_remarks(found, _object(record, "metadata")))))


def _meta(found: Record) -> TensorMeta:
    lengths = shape(found.get("shape"))
    strides = shape(found["stride"]) if "stride" in found else ()
    if strides and len(strides) != len(lengths):
        raise BadRecord(f"has {len(strides)} strides for {len(lengths)} dimensions")
    return TensorMeta(text(found.get("dtype"), "dtype"), lengths, strides)


def _remarks(found: Record, metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Give what the record says beside its tensor, for people."""
    remarks = [(text(key, "key"), json.dumps(value, sort_keys=True)) for key, value in metadata.items()]
    if found.get("layout") != "strided":
        remarks.append(("layout", str(found.get("layout"))))
    if found.get("all_finite", True) is not True:
        remarks.append(("all_finite", "false"))
    return remarks


def _full(found: Record, meta: TensorMeta) -> tuple[str, Tensor]:
    if found.get("captured_numel") != found["numel"]:
        raise BadRecord("claims all elements and did not capture them")
    return "sha256-full", Tensor(meta, _sha256(found))


def _sampled(found: Record, meta: TensorMeta) -> tuple[str, Tensor]:
    """Read a digest of some elements; which ones follows from their number, and another set is refused."""
    size, count = found["numel"], integer(found.get("captured_numel"), "captured_numel", found["numel"] + 1)
    if found.get("sample_indices") != _sample_places(size, count) or (size and not count):
        raise BadRecord("has sample_indices that are not evenly spaced over the tensor")
    return f"sha256-sampled:{count}", Tensor(meta, _sha256(found))


def _sample_places(size: int, count: int) -> Sequence[int]:
    return [place * (size - 1) // max(count - 1, 1) for place in range(count)]


def _sha256(found: Record) -> int:
    digits = text(found.get("sha256"), "sha256")
    if not _SHA256.fullmatch(digits):
        raise BadRecord(f"has sha256 {digits!r:.80}")
    return int(digits[:16], 16)


def _summary(found: Record, meta: TensorMeta) -> tuple[str, Tensor]:
    """Read statistics; absmax bounds what the order of additions can do to mean and norm."""
    summary = _object(found, "summary")
    names = ("minimum", "maximum", "mean", "l2_norm")
    given = {name: None if summary.get(name) is None else number(summary[name], name) for name in names}
    low, high, mean, norm = given.values()
    absmax = max(abs(low), abs(high)) if low is not None and high is not None else math.inf
    parts = [scalar_text((low, high, summary.get("all_finite") is True))]
    for value, bound in ((mean, absmax), (norm, absmax * math.sqrt(found["numel"]))):
        parts.append("none" if value is None else order_free(value, bound))
    stats = Stats() if mean is None else Stats(True, absmax, mean * found["numel"])
    return "summary", Tensor(meta, fold((), parts), b"", stats)


def _metadata(_: Record, meta: TensorMeta) -> tuple[str, Tensor]:
    return "metadata", Tensor(meta, 0)


_MODES: Final = {
    "full": (Evidence.EXACT, _full),
    "sampled": (Evidence.PARTIAL, _sampled),
    "summary": (Evidence.STATISTIC, _summary),
    "metadata": (Evidence.STRUCTURE, _metadata),
}
"""Evidence and reader of each mode."""

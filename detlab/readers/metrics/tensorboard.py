"""TensorBoard's event files: scalars of every kind of writer, with the bits that were written.

The messages are those of ``event.proto``, ``summary.proto`` and ``tensor.proto``, which have been stable
since 2016; only the fields that a scalar needs are read.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from detlab.errors import TraceError
from detlab.readers.metrics.files import FileFormat, FileNumbers, count_segments
from detlab.readers.metrics.frame import METRIC_SCHEMA, exact_metrics, join_metrics
from detlab.readers.metrics.protobuf import BYTES, FIXED32, FIXED64, VARINT, fields
from detlab.readers.metrics.tfrecord import Records, find_records

_WIDTHS: Final = {1: 32, 2: 64}
"""DT_FLOAT and DT_DOUBLE."""

_CONTENT, _VALUES = 4, {32: 5, 64: 6}
"""Fields of a tensor that hold its bytes: ``tensor_content``, ``float_val`` and ``double_val``."""

_SCALARS: Final = ("", "scalars")
"""Names of plugins whose values are scalars; a writer may name the plugin of a tag once, or never."""

_PER_SAMPLE: Final = " vs samples"
"""Megatron writes some metrics a second time with the number of samples in place of the step."""

_SHOWN: Final = 5
_TIME: Final = re.compile(r"tfevents\.(\d+)")

_SCALAR_SCHEMA: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "name": pl.String,
    "width": pl.UInt8,
    "bits": pl.UInt64,
}


class _Scalar(NamedTuple):
    step: int
    name: str
    width: int
    bits: int


def recognise(path: Path, head: bytes) -> str:
    """Look at the name, or for the event that every file begins with."""
    if "tfevents" in path.name:
        return "its name has tfevents in it"
    return "it begins with a TensorBoard event" if b"brain.Event:" in head[:64] else ""


def read(path: Path) -> FileNumbers:
    """Read the scalars of one event file.

    A segment begins where the steps of a tag go back. Records that are cut or do not fit their checksum are
    left out, and said.

    Raises
    ------
    TraceError
        The file has no whole record.
    """
    data = np.fromfile(path, np.uint8)
    records = find_records(data)
    if not len(records.starts):
        finding = records.problems[0] if records.problems else "byte 0: the file is empty"
        raise TraceError(f"{path}, {finding}.", "copy the file again, or leave it out")
    events = _Events(memoryview(data))  # type: ignore[arg-type]
    damage = [*records.problems, *events.read(records)]
    told = [f"{path.name}, {each}" for each in damage[:_SHOWN]]
    more = len(damage) - _SHOWN
    metrics = _metrics([each for each in events.scalars if not each.name.endswith(_PER_SAMPLE)])
    named = _TIME.search(path.name)
    started, ended = events.times() or ((float(named[1]),) * 2 if named else (None, None))
    problems = (*told, f"{path.name}: and {more} more damaged records") if more > 0 else tuple(told)
    return FileNumbers(metrics, problems, "; ".join(events.notes()), started, ended)


class _Events:
    """What the events of one file hold: tags stay known from one event to the next."""

    def __init__(self, data: memoryview) -> None:
        self.scalars: list[_Scalar] = []
        self._data = data
        self._times: list[float] = []
        self._plugins: dict[bytes, str] = {}
        self._unread: set[bytes] = set()

    def read(self, records: Records) -> list[str]:
        """Read all events; gives a sentence for each that is none."""
        problems = []
        for start, length in zip(records.starts.tolist(), records.lengths.tolist(), strict=True):
            try:
                self._event(start, start + length)
            except (IndexError, ValueError, struct.error):
                problems.append(f"byte {start}: a record is no TensorBoard event; it is left out")
        return problems

    def times(self) -> tuple[float, float] | None:
        """Give when the first and the last event were written, in seconds since 1970."""
        told = [time for time in self._times if time > 0]  # some converters write none
        return (told[0], max(told)) if told else None

    def notes(self) -> list[str]:
        """Say what was left out and is no damage."""
        notes = [] if self.scalars else ["it has no scalars"]
        tags = {each.name for each in self.scalars if each.name.endswith(_PER_SAMPLE)}
        if tags:
            notes.append(f"{len(tags)} tags that end with '{_PER_SAMPLE}' count no steps and are left out")
        if self._unread:
            names = ", ".join(sorted(tag.decode("utf-8", "replace") for tag in self._unread)[:_SHOWN])
            notes.append(f"scalars that are neither 32 nor 64 bits wide are left out: {names}")
        return notes

    def _event(self, start: int, end: int) -> None:
        step, summaries = 0, []
        for number, kind, at, to in fields(self._data, start, end):
            if number == 1 and kind == FIXED64:
                self._times.append(struct.unpack_from("<d", self._data, at)[0])
            elif number == 2 and kind == VARINT:
                step = at - (1 << 64) if at >> 63 else at
            elif number == 5 and kind == BYTES:
                summaries.append((at, to))
        for summary in summaries:
            for number, kind, at, to in fields(self._data, *summary):
                if number == 1 and kind == BYTES:
                    self._value(step, at, to)

    def _value(self, step: int, start: int, end: int) -> None:
        tag, simple, tensor = b"", None, None
        for number, kind, at, to in fields(self._data, start, end):
            if number == 1 and kind == BYTES:
                tag = bytes(self._data[at:to])
            elif number == 2 and kind == FIXED32:
                simple = at
            elif number == 8 and kind == BYTES:
                tensor = (at, to)
            elif number == 9 and kind == BYTES and tag not in self._plugins:
                self._plugins[tag] = _plugin(self._data, at, to)
        name = tag.decode("utf-8", "replace")
        if simple is not None:
            self.scalars.append(_Scalar(step, name, 32, _bits(self._data, simple, simple + 4)))
        elif tensor and self._plugins.get(tag, "") in _SCALARS:
            self._tensor(step, tag, *tensor)

    def _tensor(self, step: int, tag: bytes, start: int, end: int) -> None:
        """Take the one number of a tensor; a tensor of several, or of text, is no scalar."""
        width, places, is_scalar = 0, {}, True
        for number, kind, at, to in fields(self._data, start, end):
            if number == 1:
                width = _WIDTHS.get(at, 0)
            elif number == 2 and kind == BYTES:
                is_scalar = _has_one_value(self._data, at, to)
            elif kind != VARINT:
                places[number] = (at, to)
        at, to = places.get(_CONTENT) or places.get(_VALUES.get(width, 0)) or (0, 0)
        if not is_scalar:
            return
        if width and to - at == width // 8:
            bits = _bits(self._data, at, to)
            self.scalars.append(_Scalar(step, tag.decode("utf-8", "replace"), width, bits))
        elif self._plugins.get(tag) == "scalars":
            self._unread.add(tag)


def _bits(data: memoryview, start: int, end: int) -> int:
    return int.from_bytes(data[start:end], "little")


def _plugin(data: memoryview, start: int, end: int) -> str:
    """Give the name of the plugin in the metadata of a tag."""
    for number, kind, at, to in fields(data, start, end):
        if number == 1 and kind == BYTES:
            for inner, inner_kind, name_at, name_to in fields(data, at, to):
                if inner == 1 and inner_kind == BYTES:
                    return bytes(data[name_at:name_to]).decode("utf-8", "replace")
    return ""


def _has_one_value(data: memoryview, start: int, end: int) -> bool:
    """Say whether every dimension of a tensor's shape is 1, or there is none."""
    dims = [(at, to) for number, kind, at, to in fields(data, start, end) if number == 2 and kind == BYTES]
    sizes = [at for dim in dims for number, kind, at, _ in fields(data, *dim) if number == 1]
    return all(size == 1 for size in sizes) and len(sizes) == len(dims)


def _metrics(scalars: list[_Scalar]) -> pl.DataFrame:
    """Make metrics of scalars with the very bits that stand in the file, also those of a NaN."""
    rows = pl.DataFrame(scalars, _SCALAR_SCHEMA, orient="row").with_columns(at=pl.int_range(pl.len()))
    rows = rows.with_columns(segment=pl.Series(count_segments(rows), dtype=pl.UInt16))
    parts = [pl.DataFrame(schema=METRIC_SCHEMA)]
    order = [np.zeros(0, np.int64)]
    for width in (32, 64):
        own = rows.filter(pl.col("width") == width)
        bits = own["bits"].to_numpy()
        with np.errstate(invalid="ignore"):  # a signalling NaN
            values = (
                bits.astype(np.uint32).view(np.float32).astype(np.float64)
                if width == 32
                else bits.view(float)
            )
        metrics = exact_metrics(own.with_columns(value=pl.Series(values, dtype=pl.Float64)), width=width)
        parts.append(metrics.with_columns(bits=own["bits"]))
        order.append(own["at"].to_numpy())
    return join_metrics(parts)[np.argsort(np.concatenate(order), kind="stable")]


TENSORBOARD: Final = FileFormat("TensorBoard events", recognise, read)

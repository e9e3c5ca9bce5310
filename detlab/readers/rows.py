"""Turn the records of a foreign trace into event and detail rows.

Call numbers are counted anew here, whatever the file says of them. Rows are packed as they come, so that
a trace of gigabytes is never held as Python objects.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from detlab.digest import fold, scalar_text, signature
from detlab.readers.json_lines import BadRecord
from detlab.schema import (
    DETAIL_DTYPE,
    EVENT_DTYPE,
    Callee,
    Evidence,
    Flag,
    Kind,
    Meta,
    Phase,
    Side,
    TensorMeta,
    pack_evidence,
)
from detlab.store import NameTables, RankHeader, RankTrace, memory_trace

_EVENT: Final = struct.Struct("<IihBBIIIQQHHBH")
_DETAIL: Final = struct.Struct("<IBHQQQQBddQQ")
assert (_EVENT.size, _DETAIL.size) == (EVENT_DTYPE.itemsize, DETAIL_DTYPE.itemsize)

_MAX_TENSORS: Final = 0xFFFF
_MAX_ELEMENTS: Final = 1 << 48
_SUM_BITS: Final = 32
_DIGITS: Final = re.compile(r"[0-9]{1,3}")


class Stats(NamedTuple):
    """Numbers about one tensor, as a detail row has them; NaN and Inf are counted as one or none."""

    recorded: bool = False
    absmax: float = 0.0
    total: float = 0.0
    nans: int = 0
    infs: int = 0


class Tensor(NamedTuple):
    """One tensor of a record.

    Attributes
    ----------
    digest
        None: there is no evidence of its bits.
    beside
        What counts beside the digest, such as a recorded sum that can tell equal digests apart.
    is_weak
        Whether its digest is blind to much of what could have changed.
    """

    meta: TensorMeta
    digest: int | None
    beside: bytes = b""
    stats: Stats = Stats()
    is_weak: bool = False


@dataclass(slots=True)
class Event:
    """One call, before its names are interned.

    Attributes
    ----------
    returned
        Plain values that it gave, folded after the outputs.
    levels
        Evidence of inputs and outputs, where they have a digest.
    """

    seq: int
    step: int
    microbatch: int
    phase: Phase
    kind: Kind
    callee: Callee
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[Tensor] = ()
    returned: Sequence[object] = ()
    levels: tuple[Evidence, Evidence] = (Evidence.NONE, Evidence.NONE)
    flags: int = 0
    algorithm: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    call_site: str = ""


class Rows:
    """The rows of one rank, in the order in which events are added."""

    def __init__(self) -> None:
        self._names = NameTables()
        self._counts: dict[tuple[int, int, int, int], int] = {}
        self._events, self._details = bytearray(), bytearray()

    def __len__(self) -> int:
        return len(self._events) // _EVENT.size

    def add(self, event: Event) -> None:
        """Append one event; raise `BadRecord` when a row cannot hold it."""
        num_in, num_out = len(event.inputs), len(event.outputs)
        if max(num_in, num_out) > _MAX_TENSORS:
            raise BadRecord(f"lists {max(num_in, num_out):,} tensors, more than a row can hold")
        callee = self._names.callee_id(event.callee)
        self._events += _EVENT.pack(
            event.seq,
            event.step,
            event.microbatch,
            event.phase,
            event.kind,
            callee,
            self._next_call(event, callee),
            self._names.meta_id(_meta(event)),
            fold(_parts(event.inputs)),
            fold(_parts(event.outputs), event.returned),
            num_in,
            num_out,
            pack_evidence(*_evidence(event)),
            event.flags | _flags(event),
        )
        self._add_details(event)

    def _next_call(self, event: Event, callee: int) -> int:
        key = (event.step, event.microbatch, event.phase, callee)
        call = self._counts.get(key, 0)
        self._counts[key] = call + 1
        return call

    def _add_details(self, event: Event) -> None:
        for side, tensors in ((Side.INPUT, event.inputs), (Side.OUTPUT, event.outputs)):
            for index, tensor in enumerate(tensors):
                if tensor.digest is not None:
                    size = num_bytes(tensor.meta)
                    self._details += _DETAIL.pack(
                        event.seq, side, index, tensor.digest, 0, 0, size, *tensor.stats
                    )
        if event.returned:
            digest = fold((), event.returned)
            self._details += _DETAIL.pack(event.seq, Side.SCALARS, 1, digest, 0, 0, 0, *Stats())

    def trace(self, header: RankHeader, problems: tuple[str, ...] = (), num_bytes: int = 0) -> RankTrace:
        """Give all that was added as the trace of one rank, with the size of the file it was read from."""
        events = np.frombuffer(bytes(self._events), EVENT_DTYPE)
        details = np.frombuffer(bytes(self._details), DETAIL_DTYPE)
        return replace(memory_trace(header, self._names, events, details, problems), num_bytes=num_bytes)


def _meta(event: Event) -> Meta:
    given, gave = (tuple(tensor.meta for tensor in side) for side in (event.inputs, event.outputs))
    return Meta(given, gave, event.algorithm, event.attributes, event.call_site)


def _parts(tensors: Sequence[Tensor]) -> list[tuple[int, bytes]]:
    return [
        (tensor.digest, signature(tensor.meta.dtype, tensor.meta.shape) + tensor.beside)
        for tensor in tensors
        if tensor.digest is not None
    ]


def _evidence(event: Event) -> tuple[Evidence, Evidence]:
    """Lower a side that lacks digests: inputs when none has one, outputs when any has none.

    A missing input leaves the others worth comparing; a missing output must not count as equal.
    """
    inputs, outputs = event.levels
    if event.inputs and all(tensor.digest is None for tensor in event.inputs):
        inputs = Evidence.NONE
    if any(tensor.digest is None for tensor in event.outputs) or not (event.outputs or event.returned):
        outputs = Evidence.NONE
    return inputs, outputs


def _flags(event: Event) -> int:
    """Give the flags that follow from the tensors themselves."""
    found = 0
    for weak, tensors in ((Flag.WEAK_INPUT, event.inputs), (Flag.WEAK_OUTPUT, event.outputs)):
        for tensor in tensors:
            if tensor.digest is not None:
                stats = tensor.stats
                found |= (tensor.is_weak and weak) | (stats.nans and Flag.NAN) | (stats.infs and Flag.INF)
    return found


def order_free(value: float, scale: float) -> str:
    """Write a float reduction so that the order of its additions does not show.

    Two orders differ by rounding alone, which is far below ``scale`` / 2**32; only what is above that
    counts. Without this, another number of threads would make equal tensors look different.

    Parameters
    ----------
    value
        The reduction.
    scale
        A bound of the sum of magnitudes, such as absmax times the number of elements.
    """
    if not math.isfinite(value) or not math.isfinite(scale):
        return repr(value) if math.isfinite(scale) else ""
    try:
        return str(round(math.ldexp(value, _SUM_BITS - math.frexp(scale)[1])))
    except OverflowError:  # no sum is larger than its bound: the record contradicts itself
        return scalar_text(value)


def number(value: object, name: str) -> float:
    """Give a recorded number as a float; raise `BadRecord` for anything else."""
    if type(value) not in (int, float):
        raise BadRecord(f"has {name} {value!r:.40}, which is no number")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError as error:
        raise BadRecord(f"has a {name} that is too large for any tensor") from error


def integer(value: object, name: str, limit: int) -> int:
    """Give a recorded count; raise `BadRecord` for anything that is no integer in ``[0, limit)``."""
    if type(value) is not int:
        raise BadRecord(f"has {name} {value!r:.40}, which is no integer")
    if not 0 <= value < limit:
        raise BadRecord(f"has a {name} that is not between 0 and {limit - 1:,}")
    return value


def text(value: object, name: str) -> str:
    """Give a recorded name as it stands; raise `BadRecord` for anything that is no text.

    JSON can hold half of a surrogate pair, which no table and no screen can.
    """
    if type(value) is not str:
        raise BadRecord(f"has {name} {value!r:.40}, which is no text")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise BadRecord(f"has {name} {value!a:.40}, which is no Unicode text")
    return value


def shape(value: object) -> tuple[int, ...]:
    """Give a recorded shape; raise `BadRecord` for anything else."""
    if type(value) is not list:
        raise BadRecord(f"has shape {value!r:.40}, which is no list")
    lengths = tuple(integer(length, "length in a shape", _MAX_ELEMENTS) for length in value)
    integer(math.prod(lengths), "number of elements", _MAX_ELEMENTS)
    return lengths


@lru_cache(maxsize=65_536)
def num_bytes(meta: TensorMeta) -> int:
    """Give the size of a tensor by its dtype's name; 0 when the name does not tell."""
    bits = 8 if meta.dtype == "bool" else int((_DIGITS.search(meta.dtype) or ["0"])[0])
    return (math.prod(meta.shape) * bits + 7) // 8

"""Megatron-Bridge's determinism traces: one ``.fp`` stream of JSON lines a rank, with inputs and outputs.

What such a trace can prove: its digests are ``torch.hash_tensor``, an XOR over elements widened to 64 bits.
It does not see permutations or values in pairs, so equality is a *screen*, and *weak* where little is left
of it: a digest of zero over several elements, integers, booleans and 8-bit floats. Zero bytes of an integer
tensor are known to be zero when its absmax says so; zero floats may still differ in the sign of pairs.
A recorded sum and absmax are folded in beside the digest, so that another sum overrides an equal digest.
Scalar arguments and generator states are not recorded.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from detlab import ops
from detlab.digest import fold, scalar_text
from detlab.progress import Told, reading_files
from detlab.readers.bridge_layout import Layout, Stream, read_layout
from detlab.readers.json_lines import BadRecord, Record, walk
from detlab.readers.metrics.frame import recorded_metrics
from detlab.readers.reads import Memory, Sides
from detlab.readers.rows import Event, Rows, Stats, Tensor, integer, number, order_free, shape, text
from detlab.run import Run
from detlab.schema import Callee, Evidence, Flag, Kind, Phase, TensorMeta
from detlab.store import Manifest, RankHeader, RankTrace, Subset

HASH_TENSOR: Final = "torch.hash_tensor"
_ALGORITHMS: Final = {16: HASH_TENSOR, 32: "megatron-bridge-128"}
"""Digest by the number of hexadecimal digits; older builds wrote 128 bits, or a ``crc32``."""

_PHASES: Final = {
    "fwd": Phase.FORWARD,
    "bwd": Phase.BACKWARD,
    "post": Phase.UNSPECIFIED,
    "": Phase.UNSPECIFIED,
}
_BACKWARD_SCOPE: Final = "[bwd]"
_NO_GROUP: Final = ("aten", "moe")
_HEX: Final = re.compile(r"[0-9a-f]+")
_NARROW: Final = ("int", "uint", "bool", "float8", "float4")


def matches(path: Path) -> bool:
    """Say whether this is a stream, or a folder of streams."""
    return bool(streams_in(path))


def streams_in(path: Path) -> list[Path]:
    """List the streams of a folder, or the one stream that is given."""
    found = path.iterdir() if path.is_dir() else [path]
    return sorted(each for each in found if each.name.endswith((".fp", ".fp.gz")) and each.is_file())


def load(path: Path, label: str, subset: Subset) -> Run:
    """Load the streams asked for as far as they are whole; what is missing becomes a problem of the run.

    Raises
    ------
    InputError
        No rank is asked for.
    TraceError
        No stream has a header, or the headers contradict each other.
    """
    layout = read_layout(streams_in(path), path)
    numbers, left_out = subset.choose_ranks([stream.rank for stream in layout.streams], path)
    readers = [_StreamReader(each, layout, subset) for each in layout.streams if each.rank in numbers]
    with reading_files([reader.path for reader in readers], "rank") as files:
        ranks = tuple(reader.read(told) for reader, (_, told) in zip(readers, files, strict=True))
    return Run(
        label=label or path.name,
        source=str(path),
        manifest=Manifest(
            label or path.name,
            layout.world_size,
            {axis: size for axis, size in layout.sizes.items() if axis != "world_size"},
            recorder={"format": "Megatron-Bridge .fp"},
        ),
        ranks=ranks,
        metrics=recorded_metrics([]),
        problems=(*layout.problems, *(problem for rank in ranks for problem in rank.problems)),
        subset=subset,
        left_out_ranks=left_out,
        left_out_steps=tuple(sorted(set().union(*(reader.left_out_steps for reader in readers)))),
    )


class _StreamReader:
    """Takes the records of one stream in order.

    Parameters
    ----------
    stream, layout
        The file, and all ranks of its run.
    subset
        The steps of which rows are kept. All records are looked at: what is fresh memory in one step was
        made and written in those before it.
    """

    def __init__(self, stream: Stream, layout: Layout, subset: Subset) -> None:
        self._stream, self._layout, self._steps = stream, layout, subset.steps
        self._memory = Memory()
        self._labels: set[str] = set()
        self._last_seq: int | None = None
        self._rows = Rows()
        self._algorithm = ""
        self.left_out_steps: set[int] = set()

    @property
    def path(self) -> Path:
        """The file."""
        return self._stream.path

    def read(self, told: Told) -> RankTrace:
        """Read the stream as far as it is whole."""
        stream = self._stream
        problem = walk(stream.path, self.take, allow_nan=True, told=told)
        if not problem and not len(self._rows) and not self.left_out_steps:
            problem = (
                f"{stream.path.name}: holds a header and no event: the run ended inside its first window"
            )
        header = RankHeader(stream.rank, stream.coordinate, self.groups(), algorithm=self._algorithm)
        return self._rows.trace(header, (problem,) if problem else (), stream.path.stat().st_size)

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Give the members of every group that was met and whose members are known."""
        found = {label: self._layout.members(label, self._stream) for label in sorted(self._labels)}
        return {label: members for label, members in found.items() if members}

    def take(self, record: Record) -> None:
        """Turn one record into an event; the first one is the header, which was read before."""
        if self._last_seq is None:
            self._last_seq = -1
            return
        if "_header" in record:
            raise BadRecord("is a second header: another run was appended")
        seq = integer(record.get("seq_id"), "seq_id", 1 << 32)
        if seq <= self._last_seq:
            raise BadRecord(f"has seq_id {seq} after {self._last_seq}")
        event = self._event(record, seq)
        if event.step in self._steps:
            self._rows.add(event)
        else:
            self.left_out_steps.add(event.step)
        self._last_seq = seq

    def _event(self, record: Record, seq: int) -> Event:
        op, group = text(record.get("op"), "op"), text(record.get("group"), "group")
        algorithms: set[str] = set()
        inputs, outputs = (_tensors(record, side, algorithms) for side in ("input", "output"))
        sides = self._sides(op, group, inputs, outputs, _reduce_op(record))
        scope, phase, place = _place(record)
        flags = sides.flags | (Flag.OPEN_INPUTS if None in record["input"] else 0)
        self._algorithm = "+".join(sorted(algorithms)) or self._algorithm
        return Event(
            seq=seq,
            step=_window(record),
            microbatch=-1,
            phase=phase,
            kind=_kind(op, group),
            callee=Callee(scope, op, "" if group in _NO_GROUP else group),
            inputs=sides.inputs,
            outputs=sides.outputs,
            levels=(Evidence.SCREEN if inputs or group == "aten" else Evidence.NONE, Evidence.SCREEN),
            flags=flags,
            algorithm="+".join(sorted(algorithms)),
            attributes=tuple(sorted((*sides.attributes, *place))),
            call_site=text(record.get("caller") or "", "caller"),
        )

    def _sides(
        self, op: str, group: str, inputs: list[Tensor], outputs: list[Tensor], reduce_op: str
    ) -> Sides:
        if group in _NO_GROUP:
            sides = self._memory.look(op, inputs, outputs)
            return replace(sides, flags=sides.flags | _flags_by_name(op))
        self._labels.add(group)
        self._memory.write(outputs)
        is_sum = op == "all_reduce" and reduce_op in ("", "sum") and self._layout.group_size(group) > 1
        flags = int(Flag.NOT_WAITED_FOR) if is_sum and _is_unchanged(inputs, outputs) else 0
        return Sides(inputs, outputs, flags, (("reduce_op", reduce_op),) if reduce_op else ())


def _is_unchanged(inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    """Say whether a sum gave back just what this member put in, by digests that would show a change.

    Members that add nothing but zeros make the same picture, so the output is doubted, not called wrong.
    """
    if [tensor.digest for tensor in inputs] != [tensor.digest for tensor in outputs]:
        return False
    return bool(outputs) and all(tensor.digest and not tensor.is_weak for tensor in outputs)


def _tensors(record: Record, side: str, algorithms: set[str]) -> list[Tensor]:
    """Read the tensors of one side, and add the names of their digests."""
    found = record.get(side)
    if type(found) is not list:
        raise BadRecord(f"has no list of {side} tensors")
    return [_tensor(signature, algorithms) for signature in found]


def _tensor(signature: Any, algorithms: set[str]) -> Tensor:
    """Read one signature; null stands for a tensor that could not be copied in time."""
    if signature is None:
        return Tensor(TensorMeta("", (), ()), None)
    if not isinstance(signature, dict):
        raise BadRecord("lists something that is no tensor")
    meta, num_elements, is_narrow = _meta(
        text(signature.get("dtype"), "dtype"), shape(signature.get("shape"))
    )
    algorithm, digest = _digest(signature)
    algorithms.add(algorithm)
    stats, beside = _statistics(signature, num_elements, is_narrow)
    is_blind = digest == 0 or is_narrow
    is_zero = is_narrow and stats.recorded and not stats.absmax
    is_weak = algorithm == HASH_TENSOR and num_elements > 1 and is_blind and not is_zero
    return Tensor(meta, digest, beside, stats, is_weak)


@lru_cache(maxsize=65_536)
def _meta(dtype: str, lengths: tuple[int, ...]) -> tuple[TensorMeta, int, bool]:
    """Give the meta, the number of elements, and whether the digest covers few bits of each element."""
    num_elements = 1
    for length in lengths:
        num_elements *= length
    dtype = dtype.removeprefix("torch.")
    return TensorMeta(dtype, lengths, ()), num_elements, dtype.startswith(_NARROW)


def _digest(signature: Record) -> tuple[str, int]:
    found = signature.get("digest")
    if found is None and "crc32" in signature:
        found = signature["crc32"]
        digits = found if isinstance(found, str) else f"{integer(found, 'crc32', 1 << 32):x}"
        return "crc32", _from_hex(digits, range(1, 9))
    digits = text(found, "digest")
    value = _from_hex(digits, _ALGORITHMS)
    return _ALGORITHMS[len(digits)], value if len(digits) == 16 else fold((), (digits,))


def _from_hex(digits: str, lengths: Any) -> int:
    if len(digits) not in lengths or not _HEX.fullmatch(digits):
        raise BadRecord(f"has a digest {digits!r:.40} of no known kind")
    return int(digits, 16)


def _statistics(signature: Record, num_elements: int, is_narrow: bool) -> tuple[Stats, bytes]:
    """Give what a detail row shows of sum and absmax, and what counts of them beside the digest.

    A largest magnitude has no order, and neither has a sum of few small integers. Any other sum counts as
    far as no order of its additions can change it.
    """
    if signature.get("sum") is None or signature.get("absmax") is None:
        return Stats(), b""
    total, absmax = number(signature["sum"], "sum"), number(signature["absmax"], "absmax")
    bound = absmax * num_elements
    is_exact = is_narrow and bound < 2**53
    beside = f"{scalar_text(absmax)},{scalar_text(total) if is_exact else order_free(total, bound)};"
    stats = Stats(True, absmax, total, int(math.isnan(absmax)), int(math.isinf(absmax)))
    return stats, beside.encode()


def _place(record: Record) -> tuple[str, Phase, tuple[tuple[str, str], ...]]:
    """Give scope and phase; a phase of no known version is kept as an attribute."""
    scope, phase = text(record.get("scope") or "", "scope"), text(record.get("phase") or "", "phase")
    if scope.endswith(_BACKWARD_SCOPE):
        return scope.removesuffix(_BACKWARD_SCOPE), Phase.BACKWARD, ()
    if phase not in _PHASES:
        return scope, Phase.UNSPECIFIED, (("phase", phase),)
    return scope, _PHASES[phase], ()


def _window(record: Record) -> int:
    window = record.get("window")
    return -1 if window is None else integer(window, "window", 1 << 31)


def _kind(op: str, group: str) -> Kind:
    if group == "moe":
        return Kind.MODULE
    if group != "aten":
        return Kind.COLLECTIVE
    return Kind.HOST_READ if ops.base_name(op) == "_local_scalar_dense" else Kind.OP


@lru_cache(maxsize=4_096)
def _flags_by_name(op: str) -> int:
    """Give what the name of an op says: this format lists no scalar arguments and no generator."""
    facts = (
        (ops.is_view(op), Flag.VIEW),
        (ops.is_seeded(op), Flag.SEEDED),
        (ops.takes_host_scalar(op), Flag.OPEN_INPUTS),
    )
    return sum(flag for is_so, flag in facts if is_so)


def _reduce_op(record: Record) -> str:
    """Give a reduce op in lower case and without its class: ``ReduceOp.SUM`` is ``sum``."""
    return text(record.get("reduce_op") or "", "reduce_op").rpartition(".")[2].lower()

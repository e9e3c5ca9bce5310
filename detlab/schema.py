"""The nouns of detlab: what an event, a site, a verdict and a piece of evidence are.

Read this file and you know every column. An *event* is one recorded call on one rank; a *site* is its
run-independent identity; a *segment* is a contiguous run of events of one (step, microbatch, phase);
a *verdict* says how the event of one run compares with its partner in the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

SCHEMA_VERSION: Final = 1
"""Version of the trace layout; a trace of another version is refused, never guessed at."""


class Phase(IntEnum):
    """Which part of a training step an event belongs to."""

    UNSPECIFIED = 0
    DATA = 1
    FORWARD = 2
    RECOMPUTE = 3
    BACKWARD = 4
    GRAD_REDUCE = 5
    OPTIMIZER = 6
    STATE = 7


class Kind(IntEnum):
    """What was called."""

    OP = 0
    MODULE = 1
    COLLECTIVE = 2
    HOST_READ = 3
    OPTIMIZER = 4
    STATE = 5


class Evidence(IntEnum):
    """What equality of two digests proves, weakest first."""

    NONE = 0
    STRUCTURE = 1
    PRINTED = 2
    STATISTIC = 3
    SCREEN = 4
    PARTIAL = 5
    EXACT = 6


class Flag(IntFlag):
    """What a reader must know about one event before it believes its digests."""

    VIEW = 1 << 0
    FRESH_MEMORY = 1 << 1
    NOT_WAITED_FOR = 1 << 2
    POINTERS = 1 << 3
    COPY_IN_FLIGHT = 1 << 4
    WEAK_INPUT = 1 << 5
    WEAK_OUTPUT = 1 << 6
    OPEN_INPUTS = 1 << 7
    HOST_SCALAR = 1 << 8
    NAN = 1 << 9
    INF = 1 << 10
    SEEDED = 1 << 11


class Verdict(IntEnum):
    """How one event compares, numbered by severity so that the worst of many is their maximum."""

    MATCH = 0
    ABSORBED = 1
    RECEIVER = 2
    ONLY_A = 3
    ONLY_B = 4
    CHANGED = 5
    UNKNOWN = 6
    ORIGIN = 7


class Mask(IntFlag):
    """What is true of a cell beside its verdict; 0 means recorded and counted.

    The later ones say why a cell was set aside, where the flags of its event do not.
    """

    SET_ASIDE = 1 << 0
    UNTRACED = 1 << 1
    STRUCTURE_NOTE = 1 << 2
    FRESH_MEMORY = 1 << 3
    PADDING = 1 << 4


class Side(IntEnum):
    """Which side of a call a detail row describes."""

    INPUT = 0
    OUTPUT = 1
    SCALARS = 2
    GENERATOR = 3


EVENT_DTYPE: Final = np.dtype(
    [
        ("seq", "<u4"),  # order in which calls began on this rank
        ("step", "<i4"),  # optimizer step on the run's global count; -1: none
        ("microbatch", "<i2"),  # -1: none
        ("phase", "u1"),
        ("kind", "u1"),
        ("callee", "<u4"),  # id into the rank's callee table
        ("call", "<u4"),  # earlier calls of this callee in this step, microbatch and phase
        ("meta", "<u4"),  # id into the rank's meta table
        ("in_digest", "<u8"),  # fold over the inputs, scalars and generator state
        ("out_digest", "<u8"),  # fold over the outputs and the mutated arguments
        ("n_in", "<u2"),
        ("n_out", "<u2"),
        ("evidence", "u1"),  # high nibble inputs, low nibble outputs
        ("flags", "<u2"),
    ]
)
"""One event as packed bytes; the same columns on disk and in memory."""

DETAIL_DTYPE: Final = np.dtype(
    [
        ("seq", "<u4"),  # of the event this row belongs to
        ("side", "u1"),
        ("index", "<u2"),  # position among the leaves of that side
        ("digest", "<u8"),
        ("storage", "<u8"),  # address of the storage; 0: no storage
        ("start", "<u8"),  # first byte of the tensor inside its storage
        ("stop", "<u8"),  # one past its last byte
        ("has_stats", "u1"),  # 0: the next four were not recorded
        ("absmax", "<f8"),
        ("total", "<f8"),  # sum of the elements, for orientation only
        ("nans", "<u8"),
        ("infs", "<u8"),
    ]
)
"""One tensor, scalar fold or generator state of one event."""

INDEX_DTYPE: Final = np.dtype(
    [
        ("step", "<i4"),
        ("microbatch", "<i2"),
        ("phase", "u1"),
        ("evidence", "u1"),  # least evidence of its events that have any, a nibble each
        ("batch", "<u4"),  # ordinal of the record batch it lies in
        ("row", "<u4"),  # its first row inside that batch
        ("num_rows", "<u4"),
        ("no_output", "<u4"),  # events without output evidence
        ("fresh", "<u4"),  # events that meet memory which no recorded call has written
        ("offset", "<u8"),  # byte offset of the batch in the stream
        ("end", "<u8"),  # byte offset just after the batch
        ("identity", "<u8"),  # xxh3-64 over the callees, in order
        ("values", "<u8"),  # xxh3-64 over digests, meta, evidence and flags, in order
        ("batch_rows", "<u4"),  # rows of the whole batch
        ("check", "<u8"),  # mix of all the columns before it: a damaged record is not believed
    ]
)
"""One segment, or one piece of a segment that is larger than a batch.

``identity`` and ``values`` are digests of content, never of per-file ids.
"""


class TensorMeta(NamedTuple):
    """What is known of one tensor without its values; shape and stride count elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers or booleans."""
        return self.dtype.startswith(("int", "uint", "bool"))


class Meta(NamedTuple):
    """What is known of a call beside its digests.

    Attributes
    ----------
    inputs, outputs
        One `TensorMeta` per tensor, in the order of the detail rows; mutated arguments count as outputs.
    algorithm
        Name of the digest; digests of different algorithms are never compared.
    attributes
        Sorted (name, text) pairs, such as the reduce op or the autotuner's choice.
    call_site
        ``file:line`` or the autograd node; for people, no part of any comparison.
    """

    inputs: tuple[TensorMeta, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    algorithm: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    call_site: str = ""


def pack_evidence(inputs: Evidence, outputs: Evidence) -> int:
    """Put two evidence levels into one byte: inputs in the high nibble, outputs in the low one."""
    return inputs << 4 | outputs


class Callee(NamedTuple):
    """What was called and where in the model.

    Attributes
    ----------
    scope
        Dotted module name; empty outside the model.
    op
        Name of the op with its overload, for example ``aten.mm.default``.
    group
        Label of the communicator; empty unless the call communicates.
    """

    scope: str
    op: str
    group: str = ""


class Coordinate(NamedTuple):
    """The place of a rank in the parallel layout; runs align on it, never on host or device."""

    pp: int = 0
    tp: int = 0
    cp: int = 0
    dp: int = 0
    ep: int = 0
    vpp: int = 0

    def __str__(self) -> str:
        """Write the axes that are always meaningful, then the others where they are not zero."""
        parts = [f"{name}{value}" for name, value in self._asdict().items() if value or name in ("tp", "dp")]
        return " ".join(parts)


RANK_ORDER: Final = "tp-cp-ep-dp-pp"
"""The order in which Megatron counts ranks through its axes, the innermost first."""


def rank_coordinate(rank: int, sizes: Mapping[str, int], order: str = RANK_ORDER) -> Coordinate:
    """Give the place of a global rank in Megatron's layout.

    Dense layers have no ep axis and expert layers no cp axis, so that the same ranks are counted twice
    (megatron/core/parallel_state.py, ``RankGenerator``).

    Parameters
    ----------
    rank
        The global rank.
    sizes
        Size of each axis. One that is not named has the size 1, but for ``etp``, which has that of tp.
    order
        The axes, the innermost first, joined by hyphens.

    Raises
    ------
    ValueError
        The rank is not in a layout of these sizes.
    """
    names = order.split("-")
    known = {"etp": sizes.get("tp", 1), **sizes}
    dense = _count_through([name for name in names if name != "ep"], rank, known)
    replicas = known.get("tp", 1) * known.get("cp", 1) * known.get("dp", 1)
    expert_dp = replicas // (known["etp"] * known.get("ep", 1))
    expert = _count_through(
        [name for name in names if name != "cp"], rank, {**known, "tp": known["etp"], "dp": expert_dp}
    )
    return Coordinate(**dense, ep=expert["ep"])


def _count_through(names: Sequence[str], rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Take a rank apart along axes, the innermost first; the last one takes what is left."""
    place = {}
    left = rank
    for name in names:
        left, place[name] = divmod(left, max(sizes.get(name, 1), 1))
    if left:
        raise ValueError(f"rank {rank} is not in a layout of {dict(sizes)}")
    return place


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """The run-independent identity of an event; its text form is what users paste.

    The text form is ``step/microbatch/phase/scope/op[@group]#call``; characters of names that would
    break it apart are percent-encoded, so every site survives the round trip.
    """

    step: int
    microbatch: int
    phase: Phase
    callee: Callee
    call: int

    def __str__(self) -> str:
        scope, op, group = (quote(part, safe=_SITE_SAFE) for part in self.callee)
        place = f"{self.step}/{self.microbatch}/{self.phase.name.lower()}/{scope}/{op}"
        return f"{place}{'@' + group if group else ''}#{self.call}"

    @classmethod
    def parse(cls, text: str) -> Site:
        """Read the text form back.

        Raises
        ------
        ValueError
            The text is not the form of a site.
        """
        try:
            step, microbatch, phase, scope, rest = text.split("/")
            rest, call = rest.rsplit("#", 1)
            op, _, group = rest.partition("@")
            callee = Callee(unquote(scope), unquote(op), unquote(group))
            return cls(int(step), int(microbatch), Phase[phase.upper()], callee, int(call))
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"'{text}' is not a site; one reads step/microbatch/phase/scope/op[@group]#call"
            ) from error


_SITE_SAFE: Final = " ()[]{}<>,:;=+*!?$&'\"|^~`\\"
"""Everything printable but the separators ``/ @ # %`` stays readable in a site's text form."""

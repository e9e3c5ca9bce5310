"""The tensors of one call in both runs, and what equality or difference of each of them proves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from detlab.comparison.call.recorded import Recorded
from detlab.comparison.lineage import XOR_DIGEST
from detlab.digest import ALGORITHM
from detlab.schema import Evidence, Meta, Side, TensorMeta

MAX_TENSORS: Final = 256
"""So many tensors of a call are kept, those that differ first; all are counted."""

_BY_ALGORITHM: Final = {ALGORITHM: Evidence.EXACT, XOR_DIGEST: Evidence.SCREEN}
"""What the digest of one tensor proves, whatever else of its side is missing."""


@dataclass(frozen=True, slots=True)
class TensorSide:
    """One tensor as one run has it.

    Attributes
    ----------
    dtype, shape, stride
        What is known of it without its values; empty where it was not recorded.
    digest
        Sixteen hexadecimal digits; None where its bits were not recorded.
    absmax, total, nans, infs
        Largest magnitude, sum, and how many elements are NaN and Inf; None where not recorded. They are
        for orientation: a sum is a float reduction.
    """

    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    digest: str | None = None
    absmax: float | None = None
    total: float | None = None
    nans: int | None = None
    infs: int | None = None

    @property
    def num_elements(self) -> int:
        """Number of elements by its shape."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Give the tensor as JSON has it; a number that is not finite is a text."""
        numbers = {name: _number(getattr(self, name)) for name in ("absmax", "total")}
        return {**asdict(self), "shape": list(self.shape), "stride": list(self.stride), **numbers}


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


@dataclass(frozen=True, slots=True)
class TensorPair:
    """One tensor, scalar fold or generator state of a call in both runs.

    Attributes
    ----------
    side
        ``input``, ``output``, ``scalars`` (numbers that the call takes), ``results`` (numbers that it
        gives) or ``generator`` (the state that it draws from).
    index
        Position among those of its side.
    lane
        Lane of a list op that it belongs to; None for every other call.
    a, b
        As each run has it; None where the run has no such tensor.
    same
        Whether its bits are equal as far as the evidence goes; None where nothing can be said.
    evidence
        What that statement rests on; ``none`` where there is no statement.
    is_weak
        Whether its digest can be equal for other bits more easily than others of its kind.
    why
        Why nothing can be said, or what is special about the statement; empty when there is nothing.
    """

    side: str
    index: int
    lane: int | None
    a: TensorSide | None
    b: TensorSide | None
    same: bool | None
    evidence: str
    is_weak: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the pair as JSON has it."""
        sides = {name: side and side.to_json() for name, side in (("a", self.a), ("b", self.b))}
        return {**{name: getattr(self, name) for name in self.__slots__}, **sides}


def pair_tensors(a: Recorded | None, b: Recorded | None, num_lanes: int) -> list[TensorPair]:
    """Put the tensors of a call side by side: inputs, scalars, generator, outputs, results."""
    found = []
    for name, side, index in _keys([each for each in (a, b) if each]):
        sides = tuple(None if each is None else _side(each, side, index) for each in (a, b))
        lane = index % num_lanes if num_lanes > 1 and side in (Side.INPUT, Side.OUTPUT) else None
        found.append(_pair(name, side, index, lane, (a, b), sides))
    return found


_ORDER: Final = (
    ("input", Side.INPUT),
    ("scalars", Side.SCALARS),
    ("generator", Side.GENERATOR),
    ("output", Side.OUTPUT),
    ("results", Side.SCALARS),
)


def _keys(runs: Sequence[Recorded]) -> list[tuple[str, Side, int]]:
    """List what either run has, whether its bits were recorded or only its shape."""
    keys = []
    for name, side in _ORDER:
        indices = {index for each in runs for at, index in each.rows if at == side}
        indices |= {index for each in runs for index in range(len(_metas(each.meta, side)))}
        if side is Side.SCALARS:
            indices &= {int(name == "results")}
        keys += [(name, side, index) for index in sorted(indices)]
    return keys


def _metas(meta: Meta, side: Side) -> tuple[TensorMeta, ...]:
    return {Side.INPUT: meta.inputs, Side.OUTPUT: meta.outputs}.get(side, ())


def _side(run: Recorded, side: Side, index: int) -> TensorSide | None:
    metas, row = _metas(run.meta, side), run.rows.get((side, index))
    meta = metas[index] if index < len(metas) else TensorMeta("", (), ())
    if row is None:
        return TensorSide(*meta) if index < len(metas) else None
    digest = None if _level(run, side) == Evidence.STRUCTURE else f"{int(row['digest']):016x}"
    if not row["has_stats"]:
        return TensorSide(*meta, digest)
    return TensorSide(
        *meta, digest, float(row["absmax"]), float(row["total"]), int(row["nans"]), int(row["infs"])
    )


def _level(run: Recorded, side: Side) -> Evidence:
    """Say what an equal digest of one tensor proves.

    The event has the least of its side, which a tensor without digest lowers; this one has a digest.
    """
    if side in (Side.SCALARS, Side.GENERATOR):
        return Evidence.EXACT
    packed = run.event["evidence"]
    level = Evidence(packed & 15 if side is Side.OUTPUT else packed >> 4)
    if level in (Evidence.NONE, Evidence.PARTIAL):
        return _BY_ALGORITHM.get(run.meta.algorithm, level)
    return level


def _pair(
    name: str,
    side: Side,
    index: int,
    lane: int | None,
    runs: Sequence[Recorded | None],
    sides: Sequence[TensorSide | None],
) -> TensorPair:
    same, level, why = _statement(side, runs, sides)
    weak = same is True and any(map(_is_weak, runs, sides))
    return TensorPair(name, index, lane, sides[0], sides[1], same, level.name.lower(), weak, why)


def _statement(
    side: Side, runs: Sequence[Recorded | None], sides: Sequence[TensorSide | None]
) -> tuple[bool | None, Evidence, str]:
    """Say whether a tensor is the same in both runs, on what evidence, and why not."""
    (run_a, run_b), (a, b) = runs, sides
    if run_a is None or run_b is None:
        return None, Evidence.NONE, f"only in run {'b' if run_a is None else 'a'}"
    if a is None or b is None:
        return False, Evidence.STRUCTURE, f"only run {'b' if a is None else 'a'} has it"
    if side in (Side.INPUT, Side.OUTPUT) and run_a.meta.algorithm != run_b.meta.algorithm:
        return None, Evidence.NONE, other_kinds(run_a, run_b)
    same, level, why = _by_digest(a, b, min(_level(run_a, side), _level(run_b, side)))
    if same and level <= Evidence.SCREEN and a.total != b.total and not _is_fold_equal(side, run_a, run_b):
        return None, Evidence.NONE, _OTHER_SUM
    return same, level, why


_OTHER_SUM: Final = (
    "equal digests and other sums: the digest missed a difference, or the order of additions shows"
)


def _is_fold_equal(side: Side, a: Recorded, b: Recorded) -> bool:
    """Say whether one side as a whole is equal, where a sum counts as far as no order can change it."""
    name = "out_digest" if side is Side.OUTPUT else "in_digest"
    return a.event[name] == b.event[name]


def other_kinds(a: Recorded, b: Recorded) -> str:
    """Say that digests of two algorithms say nothing together."""
    names = " and ".join(each.meta.algorithm or "none" for each in (a, b))
    return f"digests of different kinds ({names}) cannot be compared"


def _by_digest(a: TensorSide, b: TensorSide, level: Evidence) -> tuple[bool | None, Evidence, str]:
    """Compare two tensors whose digests, if there are any, are of one kind and level."""
    form = _other_form(a, b)
    if a.digest is None or b.digest is None:
        return (False, Evidence.STRUCTURE, form) if form else (None, Evidence.NONE, _missing(a, b, level))
    if form:
        return False, Evidence.STRUCTURE, form
    if level == Evidence.NONE:
        return None, level, "what its digest proves is not known"
    if a.digest != b.digest:
        soft = level == Evidence.STATISTIC
        return (None, Evidence.NONE, SOFT) if soft else (False, level, "")
    if a.absmax is not None and b.absmax is not None and _bits(a.absmax) != _bits(b.absmax):
        return False, Evidence.STATISTIC, "the digests are equal and absmax differs: the digest missed it"
    return True, level, ""


SOFT: Final = "statistics differ, which float reductions can do for equal bits"
"""Why differing statistics are no difference."""


def _other_form(a: TensorSide, b: TensorSide) -> str:
    """Say whether dtype or shape differ; strides are a note and no identity."""
    odd = [name for name in ("dtype", "shape") if getattr(a, name) != getattr(b, name)]
    return f"{' and '.join(odd)} differ{'s' if len(odd) == 1 else ''}" if odd else ""


def _missing(a: TensorSide, b: TensorSide, level: Evidence) -> str:
    if level == Evidence.STRUCTURE:
        return "only its shape and dtype were recorded, no values"
    if a.digest is None and b.digest is None:
        return "its bits were not recorded"
    return f"run {'a' if a.digest is None else 'b'} did not record its bits"


def _is_weak(run: Recorded | None, tensor: TensorSide | None) -> bool:
    """Say whether an XOR digest has lost most of a tensor: zero over several elements, or integers."""
    if run is None or tensor is None or tensor.digest is None or XOR_DIGEST not in run.meta.algorithm:
        return False
    is_blind = int(tensor.digest, 16) == 0 or TensorMeta(tensor.dtype, (), ()).is_integer
    is_zero = TensorMeta(tensor.dtype, (), ()).is_integer and tensor.absmax == 0
    return tensor.num_elements > 1 and is_blind and not is_zero


def _bits(number: float) -> bytes:
    return np.float64(number).tobytes()


def most_telling(pairs: Sequence[TensorPair], limit: int) -> list[TensorPair]:
    """Choose the tensors that say most, in their order.

    Those that differ come first, then what else is in their lanes, then those of which nothing is known.
    What is the same in lanes that do not differ is left out altogether where there is more than fits.
    """
    if len(pairs) <= limit:
        return list(pairs)
    lanes = {pair.lane for pair in pairs if pair.same is False and pair.lane is not None}
    telling = [_telling(pair, lanes) for pair in pairs]
    ranked = sorted(range(len(pairs)), key=lambda at: (telling[at], at))
    most = [at for at in ranked if telling[at] < _SAME] or ranked
    return [pairs[at] for at in sorted(most[:limit])]


_SAME: Final = 3


def _telling(pair: TensorPair, lanes: set[int]) -> int:
    if pair.same is False:
        return 0
    if pair.lane in lanes:
        return 1
    return 2 if pair.same is None else _SAME

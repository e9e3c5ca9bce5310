"""Which axis separates divergent from clean: the other instances of a finding's op in the same trace.

A trace holds many calls of the diverging op under other dtypes, layouts, shapes and phases. Only calls
with equal inputs are instances: a call with differing inputs is untested. A clean instance is one that was
not seen to differ: small sizes, integers and bf16 can hide a race, so each cell is asked how many of its
clean calls could have shown one. No new run is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, lgamma, log
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from detlab.comparison.findings import Finding
from detlab.comparison.ranks import RankComparison, read_rows
from detlab.comparison.verdicts import chosen
from detlab.schema import Meta, Phase, Verdict

DISCRIMINATE_COLUMNS: Final = {
    "axis": pl.String,
    "value": pl.String,
    "divergent": pl.Int64,
    "clean": pl.Int64,
    "separates": pl.Boolean,
    "chance": pl.Float64,
    "says": pl.String,
}
"""Columns of `detlab.comparison.Comparison.discriminate`."""


_NARROW: Final = ("bfloat16", "float16", "float8", "float4")
"""Beginnings of the names of dtypes whose rounding can make two different sums one."""

_FEW: Final = 4096
"""Outputs of at most so many elements can be made by one block, whose order is then always the same."""


class Instance(NamedTuple):
    """One call of the op with equal inputs.

    Attributes
    ----------
    axes
        What it is by each axis.
    is_divergent
        Whether its output differs.
    made
        Kind of what it gives: ``narrow floats``, ``integers``, ``wide`` or ``not recorded``.
    num_elements
        Size of its largest output.
    """

    axes: dict[str, str]
    is_divergent: bool
    made: str
    num_elements: int


def discriminate(ranks: Sequence[RankComparison], steps: Sequence[int], finding: Finding) -> pl.DataFrame:
    """Group the instances of a finding's op by each axis; a frame of the `DISCRIMINATE_COLUMNS`."""
    instances = [each for rank in ranks for each in _instances(rank, steps, finding.op)]
    hidden = _hidden(instances)
    rows: list[dict[str, Any]] = []
    for axis in _axes(instances):
        rows += _rows_of(axis, instances, hidden)
    return pl.DataFrame(rows, DISCRIMINATE_COLUMNS)


def _instances(rank: RankComparison, steps: Sequence[int], op: str) -> Iterable[Instance]:
    names = rank.a.names
    wanted = [number for number, callee in enumerate(names.callees) if callee.op == op]
    for start, block in rank.a.blocks(0, rank.a.num_events, ("callee", "step")):
        chosen_rows = np.isin(block["callee"], wanted) & np.isin(block["step"], steps)
        rows = start + np.flatnonzero(chosen_rows)
        if len(rows):
            yield from _of_rows(rank, rows)


def _of_rows(rank: RankComparison, rows: np.ndarray[Any, Any]) -> Iterable[Instance]:
    positions = rank.positions_of(rows)
    rows, positions = rows[positions >= 0], positions[positions >= 0]
    events = read_rows(rank.a, rows, ("meta", "phase", "evidence"))
    verdicts = rank.verdicts[positions]
    proven = ((events["evidence"] >> 4) != 0) & ((events["evidence"] & 15) != 0)
    tested = proven & np.isin(verdicts, (Verdict.MATCH, Verdict.ORIGIN))
    for at in np.flatnonzero(tested):
        meta = rank.a.names.metas[int(events["meta"][at])]
        phase = Phase(int(events["phase"][at])).name.lower()
        yield Instance(_describe(meta, phase), bool(verdicts[at] == Verdict.ORIGIN), *_made(meta))


def _describe(meta: Meta, phase: str) -> dict[str, str]:
    axes = {
        "input dtypes": ", ".join(tensor.dtype for tensor in meta.inputs),
        "output dtypes": ", ".join(tensor.dtype for tensor in meta.outputs),
        "layout": ", ".join(_layout(tensor.shape, tensor.stride) for tensor in meta.inputs),
        "shapes": " ".join(str(list(tensor.shape)) for tensor in meta.inputs),
        "size": _size_class(meta),
        "phase": phase,
    }
    return axes | dict(chosen(meta))


def _layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> str:
    """Name the order of the axes in memory: N as written, T when the last two are swapped, else strided."""
    if len(stride) != len(shape):
        return "not recorded"
    if _is_row_major(shape, stride):
        return "N"
    swapped = (*shape[:-2], shape[-1], shape[-2]) if len(shape) > 1 else shape
    turned = (*stride[:-2], stride[-1], stride[-2]) if len(shape) > 1 else stride
    return "T" if _is_row_major(swapped, turned) else "strided"


def _is_row_major(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _size_class(meta: Meta) -> str:
    elements = max((int(np.prod(tensor.shape)) for tensor in (*meta.inputs, *meta.outputs)), default=0)
    return f"up to 2^{max(elements - 1, 0).bit_length()} elements"


def _axes(instances: Sequence[Instance]) -> list[str]:
    return list(dict.fromkeys(axis for each in instances for axis in each.axes))


def _made(meta: Meta) -> tuple[str, int]:
    """Give the kind of a call's outputs and the size of the largest."""
    size = max((int(np.prod(tensor.shape)) for tensor in meta.outputs), default=0)
    dtypes = [tensor.dtype for tensor in meta.outputs]
    if not all(dtypes) or not dtypes:
        return "not recorded", size
    if all(name.startswith(_NARROW) for name in dtypes):
        return "narrow floats", size
    return "integers" if all(tensor.is_integer for tensor in meta.outputs) else "wide", size


def _hidden(instances: Sequence[Instance]) -> list[str]:
    """Say for each clean call what can hide a difference there; empty where one would have shown.

    Only what no divergent call shares hides anything: where a narrow float diverges, narrow floats show it.
    """
    divergent = [each for each in instances if each.is_divergent]
    shown = {each.made for each in divergent}
    least = min((each.num_elements for each in divergent), default=0)
    return [_hiding(each, shown, least) for each in instances]


def _hiding(instance: Instance, shown: set[str], least: int) -> str:
    if instance.is_divergent:
        return ""
    if instance.made in _HIDES and instance.made not in shown:
        return instance.made
    return "few elements" if instance.num_elements <= _FEW and instance.num_elements < least else ""


_HIDES: Final = {
    "narrow floats": "narrow floats: rounding can hide a difference",
    "integers": "integers: their sums are exact in any order, which can hide a difference",
    "few elements": "few elements: one block can make them, which can hide a difference",
    "not recorded": "outputs of no recorded dtype: rounding can hide a difference",
}
"""What can hide a difference in a clean call, and how."""


class _Cell(NamedTuple):
    """The calls at one value of an axis: how many diverge, and what could hide it in each clean one."""

    divergent: int
    clean: tuple[str, ...]

    @classmethod
    def of(cls, members: Sequence[tuple[Instance, str]]) -> _Cell:
        clean = tuple(hidden for each, hidden in members if not each.is_divergent)
        return cls(len(members) - len(clean), clean)

    @property
    def num_telling(self) -> int:
        """Clean calls that would have shown a difference."""
        return self.clean.count("")


def _rows_of(axis: str, instances: Sequence[Instance], hidden: Sequence[str]) -> list[dict[str, Any]]:
    members: dict[str, list[tuple[Instance, str]]] = defaultdict(list)
    for each, hiding in zip(instances, hidden, strict=True):
        members[each.axes.get(axis, "")].append((each, hiding))
    cells = {value: _Cell.of(held) for value, held in sorted(members.items())}
    both = any(cell.divergent for cell in cells.values()) and any(cell.clean for cell in cells.values())
    separates = (
        both and len(cells) > 1 and all(not cell.divergent or not cell.clean for cell in cells.values())
    )
    chance = _chance(cells.values(), len(instances)) if separates else None
    says = _verdict_on(axis, cells, chance)
    return [
        {"axis": axis, "value": value, "divergent": cell.divergent, "clean": len(cell.clean),
         "separates": separates, "chance": chance, "says": says}
        for value, cell in cells.items()
    ]  # fmt: skip


def _chance(cells: Collection[_Cell], total: int) -> float:
    """Give how often as many divergent calls, spread at random, fall into whole values of an axis.

    The numbers of ways are kept as logarithms: over a million calls they have as many digits.
    """
    num_divergent = sum(cell.divergent for cell in cells)
    sizes = [cell.divergent + len(cell.clean) for cell in cells]
    fewer = min(num_divergent, total - num_divergent)  # the other values of the axis make up the rest
    share = exp(_log_wholes(sizes, fewer) - _log_comb(total, fewer))
    return min(1.0, float(f"{share:.12g}"))  # what logarithms lose lies behind the twelfth digit


def _log_wholes(sizes: Sequence[int], total: int) -> float:
    """Give the logarithm of the number of sets of values whose sizes add up to a total; one at least does."""
    ways, scale = np.zeros(total + 1), 0.0
    ways[0] = 1.0
    for size in sizes:
        if size <= total:
            ways[size:] += ways[: total + 1 - size].copy()
        if ways.max() > _LARGE:
            ways, scale = ways / _LARGE, scale + log(_LARGE)
    return scale + log(ways[total]) if ways[total] else 0.0


def _log_comb(total: int, chosen: int) -> float:
    return lgamma(total + 1) - lgamma(chosen + 1) - lgamma(total - chosen + 1)


_LARGE: Final = 1e200
"""Numbers of ways above this are divided by it, before a float overflows."""


def _verdict_on(axis: str, cells: Mapping[str, _Cell], chance: float | None) -> str:
    """Say what an axis shows: nothing, what separates and how well that is tested, or what rules it out."""
    if len(cells) == 1:
        return f"all instances have one {axis}: nothing is said of it"
    if chance is not None:
        clean = {value: cell for value, cell in cells.items() if cell.clean}
        powers = "; ".join(_power(value or "none", cell) for value, cell in clean.items())
        known = f". What is clean was not seen to differ. {powers}" if powers else ""
        return f"{axis} separates divergent from clean; chance does so in {chance:.1%} of cases{known}"
    for kind, is_there in (("divergent", lambda cell: cell.divergent), ("clean", lambda cell: cell.clean)):
        if not any(map(is_there, cells.values())):
            return f"no instance with equal inputs is {kind}: there is nothing to separate"
    mixed = {value: cell for value, cell in cells.items() if cell.divergent and cell.clean}
    value, cell = max(mixed.items(), key=lambda item: item[1].num_telling)
    if cell.num_telling:
        return f"ruled out as the only axis: {value or 'none'} has divergent and clean instances"
    if all(cell.divergent for cell in cells.values()):
        return "ruled out as the only axis: every value of it has divergent instances"
    return f"not ruled out: {value or 'none'} has divergent and clean instances, but {_weakness(cell)}"


def _power(value: str, cell: _Cell) -> str:
    """Say what a cell without divergent calls proves; the bound takes its calls for independent trials."""
    if not cell.num_telling:
        return f"{value}: {_weakness(cell)}"
    hidden = len(cell.clean) - cell.num_telling
    aside = f" ({hidden} more prove little: {_reasons(cell)})" if hidden else ""
    bound = 1 - 0.05 ** (1 / cell.num_telling)
    return f"{value}: {cell.num_telling} clean calls exclude a rate above {bound:.0%} at 95%{aside}"


def _weakness(cell: _Cell) -> str:
    return f"all clean calls prove little ({_reasons(cell)})"


def _reasons(cell: _Cell) -> str:
    return "; ".join(_HIDES[name] for name in sorted({*cell.clean} - {""}))

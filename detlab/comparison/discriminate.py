"""Which axis separates divergent from clean: the other instances of a finding's op in the same trace.

A trace holds many calls of the diverging op under other dtypes, layouts, shapes and phases. Only calls
with equal inputs are instances: a call with differing inputs is untested. A clean instance is one that was
not seen to differ: small sizes, integers and bf16 can hide a race. No new run is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import comb
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


class Instance(NamedTuple):
    """One call of the op with equal inputs: what it is by each axis, and whether its output differs."""

    axes: dict[str, str]
    is_divergent: bool


def discriminate(ranks: Sequence[RankComparison], steps: Sequence[int], finding: Finding) -> pl.DataFrame:
    """Group the instances of a finding's op by each axis; a frame of the `DISCRIMINATE_COLUMNS`."""
    instances = [each for rank in ranks for each in _instances(rank, steps, finding.op)]
    divergent = sum(each.is_divergent for each in instances)
    rows: list[dict[str, Any]] = []
    for axis in _axes(instances):
        rows += _rows_of(axis, instances, divergent)
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
        yield Instance(_describe(meta, phase), verdicts[at] == Verdict.ORIGIN)


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


def _rows_of(axis: str, instances: Sequence[Instance], num_divergent: int) -> list[dict[str, Any]]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in instances:
        counts[each.axes.get(axis, "")][not each.is_divergent] += 1
    separates = len(counts) > 1 and all(0 in pair for pair in counts.values())
    chance = _chance(counts.values(), len(instances), num_divergent) if separates else None
    says = _verdict_on(axis, counts, separates, chance)
    return [
        {"axis": axis, "value": value, "divergent": pair[0], "clean": pair[1], "separates": separates,
         "chance": chance, "says": says}
        for value, pair in sorted(counts.items())
    ]  # fmt: skip


def _chance(pairs: Iterable[Sequence[int]], total: int, num_divergent: int) -> float:
    """Give how often as many divergent calls, spread at random, fall into whole values of an axis."""
    sizes = [sum(pair) for pair in pairs]
    reachable = {0: 1}
    for size in sizes:
        for taken, ways in list(reachable.items()):
            reachable[taken + size] = reachable.get(taken + size, 0) + ways
    return min(1.0, reachable.get(num_divergent, 0) / comb(total, num_divergent))


def _verdict_on(axis: str, counts: dict[str, list[int]], separates: bool, chance: float | None) -> str:
    if len(counts) == 1:
        return f"all instances have one {axis}: nothing is said of it"
    if separates:
        return (
            f"{axis} separates divergent from clean; chance does so in {chance:.1%} of cases. What is clean "
            "was not seen to differ: bf16, integers and small sizes can hide it"
        )
    mixed = min(value for value, pair in counts.items() if 0 not in pair)
    return f"ruled out as the only axis: {mixed or 'none'} has divergent and clean instances"

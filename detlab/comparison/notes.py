"""What else is known of a root, from its tensors and metas: said beside its class, never instead of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.lineage import touched_before, weak_producers
from detlab.comparison.places import site_at
from detlab.comparison.ranks import RankComparison
from detlab.comparison.tensors import differing, tensors_of
from detlab.comparison.verdicts import chosen
from detlab.schema import Flag, Kind, Meta, Side, TensorMeta

_MAX_PRODUCERS: Final = 3


def notes_on(rank: RankComparison, position: int, reason: str = "") -> list[str]:
    """Give one sentence for each thing worth knowing of a paired call; of a root what its reason asks for."""
    at_a, at_b = rank.rows_at(position)
    if at_a < 0 or at_b < 0:
        return []
    metas = _meta(rank, at_a, in_b=False), _meta(rank, at_b, in_b=True)
    tensors = tensors_of(rank, np.array([position]))
    at = np.array([position])
    flags = int(rank.flags_of_either(at)[0])
    takes_all = rank.events(at, ("kind",))["kind"][0] != Kind.COLLECTIVE and not flags & Flag.OPEN_INPUTS
    notes = [*_last_use(rank, position, tensors)] if reason == "unrecorded_write" else []
    notes += _which_outputs(tensors) if reason else []
    notes += _weak_inputs(rank, position, metas[0], tensors, flags)
    notes += _other_choice(*metas)
    notes += _not_a_number(metas[0], tensors) if takes_all else []
    notes += [*_other_strides(*metas), *_other_order(metas[0], tensors)]
    # the absmax is that of finite elements, so that Inf can hide in what looks like zeros
    return notes if flags & Flag.INF else [*notes, *_same_numbers(metas[0], tensors)]


def _meta(rank: RankComparison, row: int, *, in_b: bool) -> Meta:
    trace = rank.b if in_b else rank.a
    return trace.names.metas[int(trace.columns(row, row + 1, ["meta"])["meta"][0])]


def _last_use(rank: RankComparison, position: int, tensors: NDArray[np.void]) -> Iterator[str]:
    """Name the call that used an input when it was still equal."""
    for change in differing(tensors, Side.INPUT):
        used = touched_before(rank, position, change)
        if used is not None:
            yield f"input {change['index']} was equal at {site_at(rank, used)} and differs here"


def _which_outputs(tensors: NDArray[np.void]) -> Iterator[str]:
    """Say which of several outputs differ."""
    total = int((tensors["side"] == Side.OUTPUT).sum())
    odd = differing(tensors, Side.OUTPUT)["index"].tolist()
    if 0 < len(odd) < total:
        yield f"{len(odd)} of {total} outputs differ: {', '.join(map(str, odd[:10]))}"


def _weak_inputs(
    rank: RankComparison, position: int, meta: Meta, tensors: NDArray[np.void], flags: int
) -> Iterator[str]:
    """Name the inputs whose equal digests prove little, and the calls that made them."""
    if not flags & Flag.WEAK_INPUT:
        return
    inputs = tensors[tensors["side"] == Side.INPUT]
    weak = [text for row in inputs if (text := _weakness(row, meta))]
    producers = weak_producers(rank, position)[:_MAX_PRODUCERS]
    made_by = ", ".join(str(site_at(rank, producer)) for producer in producers)
    by = f"; made by {made_by}" if made_by else ""
    yield f"weak inputs: {'; '.join(weak) or 'by their kind'}{by}"


def _weakness(row: np.void, meta: Meta) -> str:
    index = int(row["index"])
    tensor = meta.inputs[index] if index < len(meta.inputs) else TensorMeta("", (), ())
    if int(row["digest_a"]) == 0 and int(np.prod(tensor.shape)) > 1:
        return f"input {index} has digest zero with {int(np.prod(tensor.shape)):,} elements"
    return f"input {index} holds integers ({tensor.dtype})" if tensor.is_integer else ""


def _other_choice(a: Meta, b: Meta) -> Iterator[str]:
    mine, theirs = dict(chosen(a)), dict(chosen(b))
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            yield f"the runs chose differently: {name} is {mine.get(name)} in a and {theirs.get(name)} in b"


def _other_strides(a: Meta, b: Meta) -> Iterator[str]:
    pairs = zip(a.inputs, b.inputs, strict=False)
    odd = [str(n) for n, (x, y) in enumerate(pairs) if x.shape == y.shape and x.stride != y.stride]
    if odd:
        yield f"input {', '.join(odd)} has other strides, and the layout can select another kernel"


def _not_a_number(meta: Meta, tensors: NDArray[np.void]) -> Iterator[str]:
    """Say so where NaN are born: every input is known to have none, and an output has some."""
    inputs, outputs = (tensors[tensors["side"] == side] for side in (Side.INPUT, Side.OUTPUT))
    if not len(inputs) or len(inputs) < len(meta.inputs) or not inputs["has_stats"].all():
        return
    known = outputs[outputs["has_stats"] != 0]
    for name in ("a", "b"):
        if known[f"nans_{name}"].any() and not inputs[f"nans_{name}"].any():
            yield f"NaN are born here in run {name}: they are in its output and in none of its inputs"


def _same_numbers(meta: Meta, tensors: NDArray[np.void]) -> Iterator[str]:
    """Say so where bits differ that no arithmetic tells apart: payloads of NaN, signs of zero."""
    for row in differing(tensors, Side.OUTPUT):
        index = int(row["index"])
        size = int(np.prod(meta.outputs[index].shape)) if index < len(meta.outputs) else -1
        if not row["has_stats"]:
            continue
        if row["nans_a"] == row["nans_b"] == size:
            yield f"output {index} is all NaN in both runs: only the payload differs"
        elif row["absmax_a"] == row["absmax_b"] == 0 and not row["nans_a"] and not row["nans_b"]:
            yield f"output {index} is all zero in both runs: only the sign of zeros differs"


def _other_order(meta: Meta, tensors: NDArray[np.void]) -> Iterator[str]:
    """Say so where integers differ but sum and largest value do not: the same values in another order."""
    odd = differing(tensors, Side.OUTPUT)
    for row in odd:
        index = int(row["index"])
        integer = index < len(meta.outputs) and meta.outputs[index].is_integer
        same = row["total_a"] == row["total_b"] and row["absmax_a"] == row["absmax_b"]
        if integer and row["has_stats"] and same:
            yield f"output {index} has the same sum and maximum: perhaps the same values in another order"

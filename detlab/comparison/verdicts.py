"""The site rule: what equality and difference of inputs and outputs say about one call.

=================  =================  ==========================================================
inputs             outputs            verdict
=================  =================  ==========================================================
equal              equal              match
equal              differ             origin (unknown when an input is open or the op is a view)
differ             differ             receiver: untested, not exonerated
differ             equal              absorbed: a divergence all the same
no evidence        differ             unknown
differ or unknown  other shape        changed (equal inputs and another shape are an origin)
=================  =================  ==========================================================

Only rows that differ in anything are judged; rows that are equal in everything match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from detlab.schema import Flag, Mask, Meta, Verdict
from detlab.store import NameTables

Columns = Mapping[str, NDArray[Any]]

JUDGED_COLUMNS: Final = ("in_digest", "out_digest", "meta", "evidence", "flags")
"""The event columns that a verdict is made from; who was called is settled by then."""

ARTEFACTS: Final = Flag.NOT_WAITED_FOR | Flag.POINTERS | Flag.COPY_IN_FLIGHT
"""Flags of records whose digest may say more about the observer than about the run."""

_EQUAL, _DIFFER, _NONE = range(3)

SITE_RULE: Final = np.array(
    # outputs: equal            differ             no evidence
    [
        [Verdict.MATCH, Verdict.ORIGIN, Verdict.MATCH],  # inputs equal
        [Verdict.ABSORBED, Verdict.RECEIVER, Verdict.RECEIVER],  # inputs differ
        [Verdict.MATCH, Verdict.UNKNOWN, Verdict.MATCH],  # no evidence of the inputs
    ],
    np.uint8,
)
"""Verdict by state of the inputs and state of the outputs."""


@dataclass(frozen=True, slots=True)
class MetaFacts:
    """What a verdict needs of the metas of two traces, as arrays by meta id.

    Attributes
    ----------
    whole, outputs, algorithm
        Codes that are equal just when the content is: all of the meta, shapes and dtypes of its
        outputs, and the name of its digest.
    same_ids
        Whether both traces number their metas alike, so that ids can be compared as they are.
    """

    whole: tuple[NDArray[np.int64], NDArray[np.int64]]
    outputs: tuple[NDArray[np.int64], NDArray[np.int64]]
    algorithm: tuple[NDArray[np.int64], NDArray[np.int64]]
    same_ids: bool

    @classmethod
    def of(cls, a: NameTables, b: NameTables) -> MetaFacts:
        """Give metas of equal content the same codes in both traces."""
        whole = _codes(a, b, lambda meta: meta[:-1])
        return cls(
            whole,
            _codes(a, b, lambda meta: [tensor[:2] for tensor in meta.outputs]),
            _codes(a, b, lambda meta: meta.algorithm),
            len(whole[0]) == len(whole[1]) and bool((whole[0] == whole[1]).all()),
        )


def _codes(a: NameTables, b: NameTables, part: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    numbers: dict[str, int] = {}

    def number(meta: Meta) -> int:
        return numbers.setdefault(repr(part(meta)), len(numbers))

    return np.array([number(m) for m in a.metas], np.int64), np.array([number(m) for m in b.metas], np.int64)


def differing_rows(a: Columns, b: Columns, facts: MetaFacts) -> NDArray[np.intp]:
    """Find the rows that differ in anything a verdict depends on.

    Whole columns are compared as bytes first: that runs at the speed of memory, and most are equal.
    """
    differs: NDArray[np.bool_] | None = None
    for name in JUDGED_COLUMNS:
        mine, theirs = a[name], b[name]
        if name == "meta" and not facts.same_ids:
            mine, theirs = facts.whole[0][mine], facts.whole[1][theirs]
        if _same_bytes(mine, theirs):
            continue
        unequal = mine != theirs
        differs = unequal if differs is None else np.logical_or(differs, unequal, out=differs)
    return np.empty(0, np.intp) if differs is None else np.flatnonzero(differs)


def _same_bytes(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        return bool((a == b).all())
    return bool(pa.py_buffer(a).equals(pa.py_buffer(b)))


def judge(a: Columns, b: Columns, facts: MetaFacts) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Judge paired rows by the site rule.

    Returns
    -------
    verdicts
        A `Verdict` per row. Calls that communicate are judged alone here, not yet by their group.
    masks
        A `Mask` per row: observer artefacts are set aside, their verdict stays readable.
    """
    flags = a["flags"] | b["flags"]
    inputs = _state(a["in_digest"], b["in_digest"], a["evidence"] >> 4, b["evidence"] >> 4)
    outputs = _state(a["out_digest"], b["out_digest"], a["evidence"] & 15, b["evidence"] & 15)
    verdicts = SITE_RULE[inputs, outputs]
    other_outputs = facts.outputs[0][a["meta"]] != facts.outputs[1][b["meta"]]
    verdicts[other_outputs & (inputs != _EQUAL)] = Verdict.CHANGED
    open_call = (flags & np.uint16(Flag.OPEN_INPUTS | Flag.VIEW)) != 0
    verdicts[(verdicts == Verdict.ORIGIN) & open_call] = Verdict.UNKNOWN
    other_digest = facts.algorithm[0][a["meta"]] != facts.algorithm[1][b["meta"]]
    verdicts[other_digest] = Verdict.UNKNOWN
    artefact = ((flags & np.uint16(ARTEFACTS)) != 0) & (verdicts != Verdict.MATCH)
    return verdicts, np.where(artefact, np.uint8(Mask.SET_ASIDE), np.uint8(0))


def _state(
    a: NDArray[Any], b: NDArray[Any], evidence_a: NDArray[Any], evidence_b: NDArray[Any]
) -> NDArray[np.intp]:
    known = (evidence_a != 0) & (evidence_b != 0)
    return np.where(known, np.where(a == b, _EQUAL, _DIFFER), _NONE)

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

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from detlab.schema import Evidence, Flag, Mask, Meta, Verdict
from detlab.store import NameFile, NameTables

Names = NameTables | NameFile
Codes = tuple[NDArray[np.int64], NDArray[np.int64]]
Columns = Mapping[str, NDArray[Any]]

JUDGED_COLUMNS: Final = ("in_digest", "out_digest", "meta", "evidence", "flags")
"""The event columns that a verdict is made from; who was called is settled by then."""

ARTEFACTS: Final = Flag.NOT_WAITED_FOR | Flag.POINTERS | Flag.COPY_IN_FLIGHT
"""Flags of records whose digest may say more about the observer than about the run."""

INPUTS_DIFFER: Final = (Verdict.RECEIVER, Verdict.ABSORBED, Verdict.CHANGED)
INPUTS_EQUAL: Final = (Verdict.MATCH, Verdict.ORIGIN)
ONE_SIDED: Final = (Verdict.ONLY_A, Verdict.ONLY_B)
"""Verdicts by what they say of a call's inputs, and those of calls that only one run makes."""

EXIT_CODES: Final = {"match": 0, "diverged": 1, "incomplete": 2}
"""Exit code of each verdict on a comparison; what is refused exits with 2 and has no comparison."""

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


class MetaFacts:
    """What a verdict needs of the metas of two traces, as arrays by meta id, made when needed.

    Parameters
    ----------
    a, b
        Name tables of the two traces.
    """

    def __init__(self, a: Names, b: Names) -> None:
        self._a, self._b = a, b
        self.num_other_choice = 0

    @cached_property
    def same_ids(self) -> bool:
        """Whether both traces number their metas alike, so that ids can be compared as they are."""
        if isinstance(self._a, NameFile) and self._a.same_as(self._b):
            return True
        return bool(np.array_equal(self._a.meta_hashes, self._b.meta_hashes))

    @property
    def whole(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Content digests: equal just when the metas are."""
        return self._a.meta_hashes, self._b.meta_hashes

    @cached_property
    def outputs(self) -> Codes:
        """Codes that are equal just when the shapes and dtypes of the outputs are."""
        return self._codes(lambda meta: tuple(tensor[:2] for tensor in meta.outputs))

    @cached_property
    def algorithm(self) -> Codes:
        """Codes that are equal just when the digests are of one kind."""
        return self._codes(lambda meta: meta.algorithm)

    def count_other_choices(
        self, metas_a: NDArray[Any], metas_b: NDArray[Any], verdicts: NDArray[np.uint8]
    ) -> None:
        """Count the matching calls for which the runs chose another kernel, other tiles or other strides."""
        matching = np.flatnonzero(verdicts == Verdict.MATCH)
        if len(matching):
            mine, theirs = self.choices[0][metas_a[matching]], self.choices[1][metas_b[matching]]
            self.num_other_choice += int((mine != theirs).sum())

    @cached_property
    def choices(self) -> Codes:
        """Codes that are equal just when strides and what was chosen at run time are."""
        return self._codes(lambda meta: (meta.inputs, chosen(meta)))

    def _codes(self, part: Callable[[Meta], Hashable]) -> Codes:
        numbers: dict[Hashable, int] = {}
        a, b = (
            np.array([numbers.setdefault(part(meta), len(numbers)) for meta in names.metas], np.int64)
            for names in (self._a, self._b)
        )
        return a, b


BOOKKEEPING: Final = frozenset(("lanes", "parts", "unread"))
"""Attributes that say how a call was recorded, not what ran."""


def chosen(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Give the attributes of a call that say what ran: reduce op, kernel, tiles."""
    return tuple(pair for pair in meta.attributes if pair[0] not in BOOKKEEPING)


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
    inputs, _ = _state(a["in_digest"], b["in_digest"], a["evidence"] >> 4, b["evidence"] >> 4)
    outputs, soft = _state(a["out_digest"], b["out_digest"], a["evidence"] & 15, b["evidence"] & 15)
    verdicts = SITE_RULE[inputs, outputs]
    verdicts[soft] = Verdict.UNKNOWN
    verdicts[(verdicts == Verdict.ORIGIN) & _unproven(a, b)] = Verdict.UNKNOWN
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
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Give the state of one side, and where it differs in statistics alone.

    A statistic that is a float reduction can differ for equal bits: its difference is no evidence.
    """
    level = np.minimum(evidence_a, evidence_b)
    soft = (level == Evidence.STATISTIC) & (a != b)
    known = (level != 0) & ~soft
    return np.where(known, np.where(a == b, _EQUAL, _DIFFER), _NONE), soft


def _unproven(a: Columns, b: Columns) -> NDArray[np.bool_]:
    """Say where the inputs are equal in nothing that proves it: statistics, printed numbers, shapes."""
    level = np.minimum(a["evidence"] >> 4, b["evidence"] >> 4)
    found: NDArray[np.bool_] = (level != 0) & (level <= Evidence.STATISTIC)
    return found

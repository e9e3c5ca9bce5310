"""What each run recorded of one call: its event, its meta and its detail rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from detlab.comparison.ranks import RankComparison
from detlab.schema import EVENT_DTYPE, Meta
from detlab.store import RankTrace


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one run recorded of a call.

    Attributes
    ----------
    event, meta
        Its event row, and the meta that the row names.
    rows
        Its detail rows by side and index.
    """

    event: Mapping[str, int]
    meta: Meta
    rows: Mapping[tuple[int, int], np.void]


_EVENT: Final = tuple(name for name in EVENT_DTYPE.names or () if name != "call")
"""Columns of an event that are read; those around it, which others ask for, are decoded in one go with it."""


def recorded_at(
    rank: RankComparison, position: int, *, with_tensors: bool = True
) -> tuple[Recorded | None, Recorded | None]:
    """Give what run a and run b recorded of a call; None where a run does not make it."""
    rows = rank.rows_at(position)
    a, b = (
        None if row < 0 else _recorded(trace, row, with_tensors)
        for trace, row in zip((rank.a, rank.b), rows, strict=True)
    )
    return a, b


def _recorded(trace: RankTrace, row: int, with_tensors: bool) -> Recorded:
    columns = trace.columns(row, row + 1, _EVENT)
    event = {name: int(column[0]) for name, column in columns.items()}
    rows: dict[tuple[int, int], np.void] = {}
    for detail in trace.details_of(row) if with_tensors else ():
        key = int(detail["side"]), int(detail["index"])
        rows.setdefault(key, detail)  # a damaged one can be there twice
    return Recorded(event, trace.names.metas[event["meta"]], rows)

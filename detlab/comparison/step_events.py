"""All events of one step on one rank, as columns, with their sites counted anew."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.align import occurrences
from detlab.schema import Meta, Phase, Site
from detlab.store import RankTrace

_COLUMNS: Final = (
    "seq",
    "microbatch",
    "phase",
    "kind",
    "callee",
    "meta",
    "in_digest",
    "out_digest",
    "n_in",
    "n_out",
    "evidence",
    "flags",
)


class StepEvents:
    """The events of one step on one rank, with their sites.

    Parameters
    ----------
    trace
        The rank.
    step
        One of its steps.
    """

    def __init__(self, trace: RankTrace, step: int) -> None:
        self.trace, self.step = trace, step
        records, starts = np.flatnonzero(trace.index["step"] == step), trace.starts
        runs = np.split(records, np.flatnonzero(np.diff(records) > 1) + 1)  # most steps are one run of rows
        parts = [trace.columns(int(starts[run[0]]), int(starts[run[-1] + 1]), _COLUMNS) for run in runs]
        self.columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
        keys = np.empty(len(self.columns["seq"]), "i2, u1, u4")
        for field, name in zip(keys.dtype.names or (), ("microbatch", "phase", "callee"), strict=True):
            keys[field] = self.columns[name]
        self._calls = occurrences(keys)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def site(self, row: int) -> Site:
        """Give the site of an event."""
        microbatch, phase, callee = (int(self[name][row]) for name in ("microbatch", "phase", "callee"))
        names = self.trace.names.callees[callee]
        return Site(self.step, microbatch, Phase(phase), names, int(self._calls[row]))

    def scope(self, row: int) -> str:
        """Give the scope of an event."""
        return self.trace.names.callees[int(self["callee"][row])].scope

    def op(self, row: int) -> str:
        """Give the op of an event."""
        return self.trace.names.callees[int(self["callee"][row])].op

    def meta(self, row: int) -> Meta:
        """Give what is known of an event beside its digests."""
        return self.trace.names.metas[int(self["meta"][row])]

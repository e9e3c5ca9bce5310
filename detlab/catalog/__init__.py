"""Calls that are known not to repeat their bits: what makes them so, the deterministic way, how to check it.

A table of facts that others have published or that a test of this repository shows, each with its source;
`docs/op_catalog.md` is made of it. An op that is not in it is not known to be deterministic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from detlab.catalog.entry import Entry, Seen, Source
from detlab.catalog.libraries import LIBRARIES
from detlab.catalog.torch_ops import TORCH_OPS
from detlab.catalog.training import TRAINING

__all__ = ["CATALOG", "Entry", "Seen", "Source", "known"]

CATALOG: Final[tuple[Entry, ...]] = (*TORCH_OPS, *LIBRARIES, *TRAINING)
"""Every entry, in the order of the page."""

_BY_OP: Final = {op: entry for entry in reversed(CATALOG) for op in entry.ops}


@lru_cache(maxsize=4_096)
def known(op: str) -> Entry | None:
    """Find the entry of an op; None for an op of which the catalogue says nothing.

    Parameters
    ----------
    op
        A dispatcher's name with or without its overload (``aten.index_put_.default``, ``aten::mm``), or a
        collective as a trace spells it (``c10d.allreduce_.default``, ``all_reduce``).
    """
    return _BY_OP.get(".".join(op.replace("::", ".").split(".")[:2]))

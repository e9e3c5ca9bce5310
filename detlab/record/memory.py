"""Bytes that must not be believed: not yet written by any recorded call, or still being received.

Kept as byte ranges per storage. Addresses are used again after a storage dies, so each entry holds a
weak reference to its storage.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from detlab.record.arguments import Plan
from detlab.record.geometry import Place, Placed
from detlab.schema import Flag

_MAX_RUNS: Final = 1024
"""A strided write of more separate runs than this leaves its ranges as they were, which only over-warns."""


class _Range(NamedTuple):
    start: int
    stop: int
    why: int


class _Storage(NamedTuple):
    alive: StorageWeakRef
    ranges: list[_Range]


class UnsettledMemory:
    """Ranges of storages whose bytes are uninitialised or in flight."""

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}

    def mark(self, tensor: torch.Tensor, place: Place | None, why: Flag) -> None:
        """Say that all bytes of this tensor are unsettled from now on, replacing what was said before."""
        if place is None or place.start == place.stop:
            return
        self.settle(tensor, place)
        entry = self._find(place.storage)
        if entry is None:
            entry = _Storage(StorageWeakRef(tensor.untyped_storage()), [])  # type: ignore[no-untyped-call]
            self._storages[place.storage] = entry
        entry.ranges.append(_Range(place.start, place.stop, int(why)))

    def follow(self, plan: Plan, outputs: Placed, size_before: int) -> None:
        """Note what a call did: which bytes are fresh now, and which are written; a view writes nothing.

        Parameters
        ----------
        size_before
            Bytes of the storage before the call, for an op that can grow it.
        """
        if plan.makes_fresh and not _fills_fresh_memory():
            for tensor, place in outputs:
                self.mark(tensor, place, Flag.FRESH_MEMORY)
        elif plan.grows:
            for tensor, place in outputs:
                if place is not None and place.stop > size_before:
                    grown = place._replace(start=max(place.start, size_before))
                    self.mark(tensor, grown, Flag.FRESH_MEMORY)
        elif not plan.is_view and not plan.writes_part:
            self.settle_all(outputs)

    def settle_all(self, tensors: Placed) -> None:
        """Say that a call has written all elements of these tensors."""
        for tensor, place in tensors:
            self.settle(tensor, place)

    def settle(self, tensor: torch.Tensor, place: Place | None) -> None:
        """Say that a call has written all elements of this tensor."""
        entry = self._find(place.storage) if place and self._storages else None
        if place is None or entry is None:
            return
        for start, stop in _runs(tensor, place):
            entry.ranges[:] = [left for item in entry.ranges for left in _subtract(item, start, stop)]
        if not entry.ranges:
            del self._storages[place.storage]

    def flag(self, place: Place) -> int:
        """Say whether some byte between a tensor's first and last one is unsettled, and why."""
        entry = self._find(place.storage) if self._storages else None
        why = 0  # plain integers: flags are slow to combine
        for start, stop, reason in entry.ranges if entry else ():
            if start < place.stop and place.start < stop:
                why |= reason
        return why

    def forget(self) -> None:
        """Drop all knowledge, as after a time that was not recorded."""
        self._storages.clear()

    def _find(self, storage: int) -> _Storage | None:
        entry = self._storages.get(storage)
        if entry is not None and entry.alive.expired():  # type: ignore[no-untyped-call]
            del self._storages[storage]
            return None
        return entry


def _fills_fresh_memory() -> bool:
    """Say whether torch itself writes to fresh memory, which a setting of it can ask for."""
    fills: bool = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    return fills and torch.are_deterministic_algorithms_enabled()


def _subtract(item: _Range, start: int, stop: int) -> list[_Range]:
    pieces = (
        _Range(item.start, min(item.stop, start), item.why),
        _Range(max(item.start, stop), item.stop, item.why),
    )
    return [piece for piece in pieces if piece.start < piece.stop]


def _runs(tensor: torch.Tensor, place: Place) -> list[tuple[int, int]]:
    """Give the contiguous byte runs that a tensor covers inside its storage."""
    if place.geometry.is_dense:
        return [(place.start, place.stop)]
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    size = 1
    while dims and dims[0][0] in (0, size):  # expanded dimensions add no bytes
        stride, length = dims.pop(0)
        size *= length if stride else 1
    if np.prod([length for _, length in dims]) > _MAX_RUNS:
        return []
    starts = np.zeros(1, np.int64)
    for stride, length in dims:
        starts = np.add.outer(starts, np.arange(length) * stride).ravel()
    itemsize = place.geometry.itemsize
    return [(place.start + int(s) * itemsize, place.start + (int(s) + size) * itemsize) for s in starts]

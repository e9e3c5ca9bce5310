"""Fingerprint one side of a call: digests, detail rows and flags of its tensors."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import torch

from detlab.digest import fold, tensor_digest
from detlab.record.geometry import Geometry, Place, bare_meta, place_of
from detlab.record.memory import UnsettledMemory
from detlab.record.statistics import NO_STATISTICS, tensor_statistics
from detlab.schema import DETAIL_DTYPE, Evidence, Flag
from detlab.schema import Side as SideOf

_DETAIL: Final = struct.Struct("<IBHQQQQBddQQ")
assert _DETAIL.size == DETAIL_DTYPE.itemsize
GENERATOR_SIGNATURE: Final = b"generator;"

_OPEN_INPUTS: Final = int(Flag.OPEN_INPUTS)

Placed = Sequence[tuple[torch.Tensor, Place | None]]
"""Tensors with their places in memory."""

Known = dict[tuple[int, int], int]
"""Digests by address and number of bytes."""


def placed(tensors: Iterable[torch.Tensor]) -> Placed:
    """Find tensors in memory."""
    return [(tensor, place_of(tensor)) for tensor in tensors]


class Fingerprint:
    """What was seen of one side of a call.

    Attributes
    ----------
    geometries
        One per tensor, hashed or not, in order.
    parts
        (digest, signature) pairs for the fold.
    rows
        Packed detail rows.
    flags
        What a reader must know about this side.
    num_hashed
        How many tensors have a digest.
    """

    __slots__ = ("flags", "geometries", "num_hashed", "parts", "rows", "scalars")

    def __init__(self) -> None:
        self.geometries: list[Geometry] = []
        self.parts: list[tuple[int, bytes]] = []
        self.rows: list[bytes] = []
        self.scalars: Sequence[object] = ()
        self.flags = 0
        self.num_hashed = 0

    def digest(self) -> int:
        """Fold all of this side into one number."""
        return fold(self.parts, self.scalars)

    def evidence(self) -> Evidence:
        """Say what an equal digest of this side proves: nothing, when no tensor could be hashed."""
        return Evidence.EXACT if self.num_hashed or not self.geometries else Evidence.NONE


class Fingerprinter:
    """Hash tensors for one recorder.

    Parameters
    ----------
    memory
        What is known of bytes that must not be believed.
    details, stats
        Write a detail row per tensor; with absmax, sum and counts of NaN and Inf.
    """

    def __init__(self, memory: UnsettledMemory, *, details: bool, stats: bool) -> None:
        self._memory, self._details, self._stats = memory, details, stats

    def look(self, tensors: Placed, seq: int, side: SideOf, *, trust: bool, known: Known) -> Fingerprint:
        """Fingerprint tensors in order.

        Parameters
        ----------
        tensors
            Each with its place.
        trust
            Hash unsettled bytes all the same, because the call computes with them; a view does not.
        known
            Digests taken a moment ago by (address, bytes) of contiguous tensors; read and added to.
        """
        found = Fingerprint()
        for index, (tensor, place) in enumerate(tensors):
            if place is None:
                found.geometries.append(bare_meta(tensor.dtype, tuple(tensor.shape)))
                found.flags |= _OPEN_INPUTS
                continue
            found.geometries.append(place.geometry)
            why = self._memory.flag(place)
            if why:
                found.flags |= why
                if not trust:
                    continue
            self._add(found, tensor, place, (seq, side, index), known)
        return found

    def note(self, tensors: Placed) -> Fingerprint:
        """Note only the geometry of tensors, hashing nothing."""
        found = Fingerprint()
        for tensor, place in tensors:
            found.geometries.append(place.geometry if place else bare_meta(tensor.dtype, tuple(tensor.shape)))
        return found

    def _add(
        self,
        found: Fingerprint,
        tensor: torch.Tensor,
        place: Place,
        where: tuple[int, SideOf, int],
        known: Known,
    ) -> None:
        geometry = place.geometry
        key = (place.storage + place.start, geometry.num_bytes)
        digest = known.get(key) if geometry.is_contiguous else None
        if digest is None:
            digest = tensor_digest(tensor)
            if geometry.is_contiguous:
                known[key] = digest
        found.num_hashed += 1
        found.parts.append((digest, geometry.signature))
        if self._details:
            statistics = NO_STATISTICS
            if self._stats:
                statistics = tensor_statistics(tensor)
                found.flags |= (statistics[3] and Flag.NAN) | (statistics[4] and Flag.INF)
            place_bytes = (place.storage, place.start, place.stop)
            found.rows.append(_DETAIL.pack(*where, digest, *place_bytes, *statistics))

    def add_scalars(self, found: Fingerprint, scalars: Sequence[object], seq: int, index: int) -> None:
        """Fold scalars into a side; their detail row has index 0 for arguments, 1 for returned numbers."""
        found.scalars = scalars
        if self._details and scalars:
            self._add_plain(found, seq, SideOf.SCALARS, index, fold((), scalars))

    def add_generator(self, found: Fingerprint, generator: torch.Generator, seq: int) -> None:
        """Fold the state of a random generator into a side, after its tensors."""
        digest = tensor_digest(generator.get_state())
        found.flags |= Flag.SEEDED
        found.parts.append((digest, GENERATOR_SIGNATURE))
        if self._details:
            self._add_plain(found, seq, SideOf.GENERATOR, 0, digest)

    @staticmethod
    def _add_plain(found: Fingerprint, seq: int, side: SideOf, index: int, digest: int) -> None:
        found.rows.append(_DETAIL.pack(seq, side, index, digest, 0, 0, 0, *NO_STATISTICS))

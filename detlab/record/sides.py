"""Fingerprint one side of a call: digests, detail rows and flags of its tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import torch

from detlab.digest import fold, tensor_digest
from detlab.record.geometry import Geometry, Place, Placed, geometry_without_place
from detlab.record.memory import UnsettledMemory
from detlab.record.statistics import NO_STATISTICS, tensor_statistics
from detlab.schema import DETAIL_DTYPE, Evidence, Flag
from detlab.schema import Side as SideOf

_DETAIL: Final = struct.Struct("<IBHQQQQBddQQ")
assert _DETAIL.size == DETAIL_DTYPE.itemsize
GENERATOR_SIGNATURE: Final = b"generator;"

_OPEN_INPUTS: Final = int(Flag.OPEN_INPUTS)

Known = dict[tuple[int, int], int]
"""Digests by address and number of bytes."""


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
    num_hashed, num_missing, num_set_aside
        How many tensors have a digest, could not be hashed, and hold bytes that must not be believed.
    """

    __slots__ = (
        "flags",
        "geometries",
        "num_hashed",
        "num_missing",
        "num_set_aside",
        "parts",
        "rows",
        "scalars",
    )

    def __init__(self) -> None:
        self.geometries: list[Geometry] = []
        self.parts: list[tuple[int, bytes]] = []
        self.rows: list[bytes] = []
        self.scalars: Sequence[object] = ()
        self.flags = 0
        self.num_hashed = self.num_missing = self.num_set_aside = 0

    def digest(self) -> int:
        """Fold all of this side into one number."""
        return fold(self.parts, self.scalars)

    def evidence(self, side: SideOf) -> Evidence:
        """Say what an equal digest of this side proves.

        Inputs that were set aside are none, for nothing is computed from them; an output that was is missing.
        """
        if self.geometries and not self.num_hashed:
            return Evidence.NONE
        num_missing = self.num_missing + (self.num_set_aside if side is SideOf.OUTPUT else 0)
        return Evidence.PARTIAL if num_missing else Evidence.EXACT


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
                found.geometries.append(geometry_without_place(tensor))
                found.num_missing += 1
                continue
            found.geometries.append(place.geometry)
            why = self._memory.flag(place)
            if why:
                found.flags |= why
                if not trust:
                    found.num_set_aside += 1
                    continue
            self._add(found, tensor, place, (seq, side, index), known)
        if found.num_missing and side is SideOf.INPUT:
            found.flags |= _OPEN_INPUTS
        return found

    def note(self, tensors: Placed) -> Fingerprint:
        """Note only the geometry of tensors, hashing nothing."""
        found = Fingerprint()
        for tensor, place in tensors:
            found.geometries.append(place.geometry if place else geometry_without_place(tensor))
        return found

    def _add(
        self,
        found: Fingerprint,
        tensor: torch.Tensor,
        place: Place,
        where: tuple[int, SideOf, int],
        known: Known,
    ) -> None:
        try:
            digest = _digest(tensor, place, known)
        except (RuntimeError, TypeError):  # some kinds of tensor cannot be copied to plain bytes
            found.num_missing += 1
            return
        found.num_hashed += 1
        found.parts.append((digest, place.geometry.signature))
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


def _digest(tensor: torch.Tensor, place: Place, known: Known) -> int:
    """Hash a tensor, unless one with the same bytes was hashed a moment ago."""
    geometry = place.geometry
    if not geometry.is_contiguous or tensor.is_conj() or tensor.is_neg():  # its values are not its bytes
        return tensor_digest(tensor)
    key = (place.storage + place.start, geometry.num_bytes)
    digest = known.get(key)
    if digest is None:
        digest = known[key] = tensor_digest(tensor)
    return digest

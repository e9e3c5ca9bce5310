"""Names of calls for the whole comparison: each distinct callee is read once, however many ranks call it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.ranks import RankComparison
from detlab.schema import Callee
from detlab.store import NameFile, NameTables, RankTrace
from detlab.views.cells.programs import Program

_MAX_KEPT = 64
"""So many programs' callees are kept; real runs have fewer, and other ones read some anew."""


class Callees:
    """Numbers for the callees of all ranks, by content.

    Attributes
    ----------
    names
        The callees by number, as they first appear in the name tables.
    """

    def __init__(self) -> None:
        self.names: list[Callee] = []
        self._numbers: dict[int, int] = {}
        self._of_table: dict[int, tuple[NameTables | NameFile, NDArray[np.int32]]] = {}
        self._of_segment: dict[int, NDArray[np.int32]] = {}
        self._of_program: dict[int, NDArray[np.int32]] = {}

    def add(self, rank: RankComparison) -> None:
        """Give every callee of a rank its number."""
        self._table(rank.a)
        self._table(rank.b)

    def of_program(self, program: Program, rank: RankComparison) -> NDArray[np.int32]:
        """Give the callee at each position of a program, read from one rank that runs it."""
        if program.number not in self._of_program:
            _make_room(self._of_program)
            callees = np.empty(len(rank.verdicts), np.int32)
            for part in program.parts:
                first = int(part["position"])
                callees[first : first + int(part["num_rows"])] = self._part(part, rank)
            self._of_program[program.number] = callees
        return self._of_program[program.number]

    def _part(self, part: np.void, rank: RankComparison) -> NDArray[np.int32]:
        """Give the callees of a part; segments of one identity have the same ones."""
        trace, record, skip = rank.a if part["in_a"] else rank.b, int(part["record"]), int(part["skip"])
        identity = int(trace.index["identity"][record])
        if identity not in self._of_segment:
            _make_room(self._of_segment)
            start, stop = trace.starts[record : record + 2].tolist()
            self._of_segment[identity] = self._table(trace)[trace.columns(start, stop, ["callee"])["callee"]]
        return self._of_segment[identity][skip : skip + int(part["num_rows"])]

    def _table(self, trace: RankTrace) -> NDArray[np.int32]:
        """Give the numbers of one rank's callees by their ids; names known already are not read."""
        key = id(trace.names)
        if key not in self._of_table:
            found = []
            for at, digest in enumerate(trace.names.callee_hashes.tolist()):
                if digest not in self._numbers:
                    self._numbers[digest] = len(self.names)
                    self.names.append(trace.names.callees[at])
                found.append(self._numbers[digest])
            self._of_table[key] = trace.names, np.array(found, np.int32)
        return self._of_table[key][1]


def _make_room(kept: dict[int, NDArray[np.int32]]) -> None:
    if len(kept) >= _MAX_KEPT:
        del kept[next(iter(kept))]

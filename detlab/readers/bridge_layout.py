"""Where the ranks of a Megatron-Bridge trace stand: headers, parallel sizes, and members of each group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

from detlab.errors import TraceError
from detlab.readers.json_lines import BadRecord, Record, first_record
from detlab.readers.rows import integer
from detlab.schema import Coordinate

_DENSE: Final = frozenset(("tp", "cp", "dp", "pp"))
_EXPERT: Final = frozenset(("etp", "ep", "edp", "pp"))
"""Axes along which Megatron lays out the ranks of dense layers, and the same ranks for expert layers."""

_ALIASES: Final = {"mp": "tp_pp"}
_UNNAMED: Final = re.compile(r"grp_sz(\d+)_\d+")
"""A group that the tracer could not name; it is numbered by first use on each rank, so it names nobody."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One file and the rank that wrote it.

    Attributes
    ----------
    axes
        Coordinate of the rank on each axis that its header names.
    """

    path: Path
    rank: int
    axes: Mapping[str, int]

    @property
    def coordinate(self) -> Coordinate:
        """The place on which runs align; axes that the header does not name count as zero."""
        return Coordinate(**{axis: self.axes.get(axis, 0) for axis in ("pp", "tp", "cp", "dp", "ep")})


@dataclass(frozen=True)
class Layout:
    """The ranks of one run.

    Attributes
    ----------
    streams
        By global rank.
    sizes
        What the headers say of the parallel configuration, the same in all of them.
    problems
        Files that had to be left out.
    """

    streams: tuple[Stream, ...]
    sizes: Mapping[str, int]
    problems: tuple[str, ...] = ()
    _members: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Number of ranks that trained, recorded or not."""
        return self.sizes.get("world_size", len(self.streams))

    def members(self, label: str, stream: Stream) -> tuple[int, ...]:
        """Give the global ranks of a labelled group; empty unless all of them are known."""
        key = label, stream.rank
        if key not in self._members:
            axes = group_axes(label)
            fixed = _fixed_axes(label, axes)
            found = [other for other in self.streams if _agree(stream, other, fixed)] if axes else []
            ranks = tuple(sorted(other.rank for other in found))
            for rank in ranks or (stream.rank,):
                self._members[label, rank] = ranks if len(ranks) == self.group_size(label) else ()
        return self._members[key]

    def group_size(self, label: str) -> int:
        """Give the number of members of a labelled group; 0 when it is not known."""
        unnamed = _UNNAMED.fullmatch(label)
        if unnamed:
            return int(unnamed[1])
        if label == "world":
            return self.sizes.get("world_size", 0)
        sizes = {**self.sizes, "edp": self._expert_data_size()}
        return prod(sizes.get(axis, 0) for axis in group_axes(label) or ("unknown",))

    def _expert_data_size(self) -> int:
        model = prod(self.sizes.get(axis, 0) for axis in ("etp", "ep", "pp"))
        return self.sizes.get("world_size", 0) // model if model else 0


@cache
def group_axes(label: str) -> frozenset[str]:
    """Give the axes that a group runs along, by its label; empty when the label does not say it."""
    if label == "world":
        return _DENSE
    axes = frozenset(_ALIASES.get(label, label).split("_"))
    return axes if axes <= _DENSE or axes <= _EXPERT else frozenset()


def _fixed_axes(label: str, axes: frozenset[str]) -> frozenset[str]:
    return (_DENSE if axes <= _DENSE else _EXPERT) - axes


def _agree(stream: Stream, other: Stream, axes: frozenset[str]) -> bool:
    return all(stream.axes.get(axis, 0) == other.axes.get(axis, 0) for axis in axes)


def read_layout(paths: Sequence[Path], place: Path) -> Layout:
    """Read the header of every file.

    Raises
    ------
    TraceError
        No file has a header, or the headers contradict each other.
    """
    headers: dict[Path, tuple[dict[str, int], dict[str, int]]] = {}
    problems = []
    for path in paths:
        try:
            headers[path] = _read_header(path)
        except BadRecord as damage:
            problems.append(f"{path.name}: line 1 {damage}; the file is left out")
    if not headers:
        raise TraceError(
            f"{place} holds no readable stream: {problems[0]}", "give the folder that DET_TRACE_OUT_DIR named"
        )
    sizes = _common_sizes({path: header[1] for path, header in headers.items()})
    streams = _number({path: header[0] for path, header in headers.items()})
    return Layout(streams, sizes, tuple(problems))


def _read_header(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    record = first_record(path, allow_nan=True)
    if record.get("_header") is not True:
        raise BadRecord("is no header")
    return _integers(record, "coords"), _integers(record, "config")


def _integers(record: Record, name: str) -> dict[str, int]:
    """Give the entries of an object that are not null."""
    found: Any = record.get(name) or {}
    if not isinstance(found, dict):
        raise BadRecord(f"has {name} that are no object")
    return {key: integer(value, key, 1 << 31) for key, value in found.items() if value is not None}


def _common_sizes(sizes: Mapping[Path, dict[str, int]]) -> dict[str, int]:
    first, *others = sizes
    for other in others:
        odd = [key for key in sizes[first] | sizes[other] if sizes[first].get(key) != sizes[other].get(key)]
        if odd:
            mine, theirs = sizes[first].get(odd[0]), sizes[other].get(odd[0])
            raise TraceError(
                f"{other} says {odd[0]} {theirs} and {first.name} says {mine}: they are not of one run.",
                "keep the streams of one run in one folder",
            )
    return sizes[first]


def _number(axes: Mapping[Path, dict[str, int]]) -> tuple[Stream, ...]:
    """Give every file its rank: the global rank where all name one, else its number in order of place."""
    places = sorted(axes, key=lambda path: (Stream(path, 0, axes[path]).coordinate, path))
    named = all("global_rank" in axes[path] for path in places)
    streams = [Stream(p, axes[p]["global_rank"] if named else n, axes[p]) for n, p in enumerate(places)]
    for what in ("coordinate", "rank"):
        seen: dict[object, Stream] = {}
        for stream in streams:
            twin = seen.setdefault(getattr(stream, what), stream)
            if twin is not stream:
                raise TraceError(
                    f"{stream.path} and {twin.path.name} both claim the {what} {getattr(stream, what)}.",
                    "keep the streams of one run in one folder, each once",
                )
    return tuple(sorted(streams, key=lambda stream: stream.rank))

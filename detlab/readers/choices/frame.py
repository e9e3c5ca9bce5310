"""The one frame of choices: which kernel, algorithm or configuration was used, for what, how many times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

import polars as pl

SOURCES: Final = (
    "cublaslt",
    "triton print",
    "triton cache",
    "inductor print",
    "inductor cache",
    "kineto",
    "nsys",
    "trace",
)
"""Where a choice was read: a log of cuBLASLt, what an autotuner printed or keeps on disk, the kernel names of
a profiler, or what was chosen for the calls of a trace."""

USED: Final = frozenset(("cublaslt", "kineto", "nsys", "trace"))
"""Sources with a row for every use; an autotuner tells of a choice once, however often it is used."""

CHOICE_SCHEMA: Final[dict[str, Any]] = {
    "source": pl.Enum(SOURCES),
    "rank": pl.Int64,
    "process": pl.String,
    "kernel": pl.String,
    "problem": pl.String,
    "choice": pl.String,
    "order": pl.Int64,
    "num": pl.Int64,
    "where": pl.String,
    "details": pl.String,
}
"""Columns of a frame of choices.

``source``; ``rank``, null where nothing says whose it is; ``process``, what tells processes apart where the
rank is not known (a process id and its file, a file); ``kernel``, its name, or ``cublasLtMatmul``;
``problem``, for what it was chosen, as text that is equal for equal shapes, layouts, dtypes and epilogues;
``choice``, what was chosen, as text that is equal for equal configurations; ``order``, which use of that
kernel for that problem by that process this is, counted from 0; ``num``, how many uses with this choice
follow each other; ``where``, file and line of the first of them; ``details``, what else was said there.
"""

_LONGEST: Final = 2_000
"""Characters of a text that are kept whole; a longer one is kept by its beginning and its digest."""

KEY: Final = ("source", "rank", "process", "kernel", "problem")


@dataclass(frozen=True, eq=False)
class Choices:
    """What was chosen in one run.

    Attributes
    ----------
    frame
        A row for each choice and each run of uses of it, with the columns of `CHOICE_SCHEMA`, in the order
        of ``source``, ``rank``, ``process``, ``kernel``, ``problem`` and ``order``.
    problems
        (where, what) for what is missing or damaged; what is whole is in the frame.
    not_told
        (what, why) for what the sources do not tell.
    notes
        What a reader must know beside it.
    label
        Name of the run for people.
    """

    frame: pl.DataFrame
    problems: tuple[tuple[str, str], ...] = ()
    not_told: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    label: str = ""

    def __repr__(self) -> str:
        return f"Choices({self.label}: {len(self.frame):,} rows, {len(self.problems)} problems)"


class Process(NamedTuple):
    """Who made a choice: the rank as far as it is known, and a name that tells processes apart."""

    rank: int | None
    name: str


class Use(NamedTuple):
    """One use of a kernel: for what it was chosen, and what was chosen."""

    kernel: str
    problem: str
    choice: str
    details: str = ""


@dataclass(slots=True)
class _Stretch:
    """Uses with one choice that follow each other."""

    choice: str
    order: int
    num: int
    where: str
    details: str


_Key = tuple[str, str, str, str]


@dataclass
class Uses:
    """Collects uses one by one and keeps one entry for those that follow each other with one choice."""

    _stretches: dict[_Key, list[_Stretch]] = field(default_factory=dict)
    _ranks: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def add(self, source: str, process: Process, use: Use, where: str, num: int = 1) -> None:
        """Take one use, or several that follow each other."""
        kernel, problem, choice, details = map(bounded_text, use)
        ranks = self._ranks.setdefault((source, process.name), set())
        if process.rank is not None:
            ranks.add(process.rank)
        stretches = self._stretches.setdefault((source, process.name, kernel, problem), [])
        if stretches and stretches[-1].choice == choice:
            stretches[-1].num += num
            return
        order = stretches[-1].order + stretches[-1].num if stretches else 0
        stretches.append(_Stretch(choice, order, num, where, details))

    def frame(self) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
        """Give the frame, and (what, why) for ranks that could not be told."""
        ranks, not_told = self._told_ranks()
        rows = [
            (source, ranks[source, process], process, kernel, problem, *_values(each))
            for (source, process, kernel, problem), stretches in self._stretches.items()
            for each in stretches
        ]
        frame = pl.DataFrame(rows, CHOICE_SCHEMA, orient="row")
        return frame.sort([*KEY, "order"], nulls_last=True), not_told

    def _told_ranks(self) -> tuple[dict[tuple[str, str], int | None], list[tuple[str, str]]]:
        """Give each process its rank; none where it has several, or where several processes have one."""
        told: dict[tuple[str, str], int | None] = {
            key: next(iter(ranks)) if len(ranks) == 1 else None for key, ranks in self._ranks.items()
        }
        holders: dict[tuple[str, int], list[str]] = {}
        for (source, process), rank in told.items():
            if rank is not None:
                holders.setdefault((source, rank), []).append(process)
        not_told = []
        for (source, rank), processes in sorted(holders.items()):
            if len(processes) > 1:
                told |= dict.fromkeys([(source, each) for each in processes])
                names = ", ".join(sorted(processes)[:4])
                claim = f"{len(processes)} processes claim to be it ({names})"
                why = f"{claim}: a restart, several nodes or a child"
                not_told.append((f"rank {rank} in {source}", why))
        return told, not_told


def _values(each: _Stretch) -> tuple[str, int, int, str, str]:
    return each.choice, each.order, each.num, each.where, each.details


def bounded_text(text: str) -> str:
    """Keep a text whole, or a long one by its beginning and its digest, so that equal ones stay equal."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}…{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def join_frames(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Put frames of choices together, in the one order that all have."""
    whole = pl.concat([pl.DataFrame(schema=CHOICE_SCHEMA), *frames])
    return whole.sort([*KEY, "order"], nulls_last=True)


def written(values: Mapping[str, str], first: tuple[str, ...] = ()) -> str:
    """Write names and values in one order: those that say most first, the others by name."""
    names = [*(name for name in first if name in values), *sorted(set(values) - set(first))]
    return " ".join(f"{name}={values[name]}" for name in names)

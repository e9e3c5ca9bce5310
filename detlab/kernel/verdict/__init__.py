"""The class of what a replay saw: one pure function over the rows of all conditions.

======================================  ================================================================
RACE                                    results differ in one process under one condition that training could
                                        have had, or between two that differ in nothing but other work
UNINITIALISED                           what fresh memory holds reaches the result: NaNs appear only where it
                                        is filled with NaN, results depend on what it is filled with, or
                                        they vary again as soon as deterministic algorithms fill it no more
SELECTION                               one result within each condition, held by enough trials, and another
                                        one in another: threads, library, layout, process
NOT SEEN                                one result, as far as the trials reach
INVALID                                 nothing was made, trials began from different bits, or conditions
                                        differ with too few trials to tell a race from a choice
======================================  ================================================================

A difference between default and deterministic algorithms, or between kinds of devices, is no class: they are
other algorithms by design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Final

from detlab.text import plural

MIN_TRIALS: Final = 20
"""So many equal results exclude a rate of others above 13.9 % at 95 %. Two conditions that each gave one
result so often, and not the same one, are told apart: a race would sort itself so once in C(40, 20)."""

FILL: Final = "fill"
"""Fresh memory as ``use_deterministic_algorithms`` fills it; training can have it, unlike poison."""

_SURE: Final = 1e-3
_MAX_NAMES: Final = 4


class ReplayClass(StrEnum):
    """What the trials show; under the conditions of training, its recorded result counts as one more."""

    RACE = "race"
    SELECTION = "selection"
    UNINITIALISED = "uninitialised"
    NOT_SEEN = "not_seen"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Row:
    """One condition as the verdict sees it.

    Attributes
    ----------
    groups
        The results, one sequence a process.
    choice
        Name and value of what may choose another kernel and could differ between two runs of one recipe; work
        and load beside it choose none.
    design
        What makes it another algorithm by design: deterministic algorithms, the kind of the device.
    process
        Where the trials were made: empty for this process, otherwise the name of the row, whose processes no
        other row shares.
    memory
        What fills fresh memory: empty for nothing, `FILL`, or the name of a poison.
    least_nan, most_nan
        Number of NaNs among all outputs of one trial.
    """

    name: str
    groups: tuple[tuple[Hashable, ...], ...]
    choice: tuple[tuple[str, str], ...] = ()
    design: str = ""
    process: str = ""
    memory: str = ""
    least_nan: int = 0
    most_nan: int = 0

    @property
    def trials(self) -> int:
        """Number of results."""
        return sum(map(len, self.groups))

    @property
    def results(self) -> frozenset[Hashable]:
        """The different results."""
        return frozenset(result for group in self.groups for result in group)

    @property
    def varies(self) -> bool:
        """Whether one process gave more than one result."""
        return any(len(set(group)) > 1 for group in self.groups)

    @property
    def is_held(self) -> bool:
        """Whether enough trials gave one result, each process more than one."""
        return len(self.results) == 1 and self.trials >= MIN_TRIALS and min(map(len, self.groups)) > 1

    @property
    def could_be_training(self) -> bool:
        """Whether training could have had this condition; no training poisons memory."""
        return self.memory in ("", FILL)

    @property
    def modal_share(self) -> float:
        """Share of the most frequent result."""
        return Counter(r for g in self.groups for r in g).most_common(1)[0][1] / self.trials


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class, what decided it in sentences, and the names of the conditions that did."""

    outcome: ReplayClass
    why: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()


def judge(
    rows: Sequence[Row], *, fresh_memory: bool = False, disagrees: bool = False, moved: bool = False
) -> Verdict:
    """Name what was seen.

    Parameters
    ----------
    rows
        All conditions; those without a result say nothing.
    fresh_memory
        The op gives memory that nobody wrote, see `detlab.kernel.ops.gives_fresh_memory`.
    disagrees
        Training recorded another result of the same inputs under one of these very conditions.
    moved
        Trials began from different bits.
    """
    rows = [row for row in rows if row.trials]
    if moved or not rows:
        return Verdict(ReplayClass.INVALID)
    found = _uninitialised(rows) or _unwritten(rows, disagrees if fresh_memory else None)
    return found or _ordered(rows, disagrees)


def _unwritten(rows: Sequence[Row], disagrees: bool | None) -> Verdict | None:
    """Judge an op that gives memory nobody wrote; None for any other."""
    results = {result for row in rows for result in row.results}
    if disagrees is None or not (disagrees or len(results) > 1):
        return None
    names = tuple(row.name for row in rows if row.varies)
    return Verdict(ReplayClass.UNINITIALISED, ("the op gives memory that nobody wrote",), names)


def _ordered(rows: Sequence[Row], disagrees: bool) -> Verdict:
    """Judge what fresh memory does not explain."""
    varying = [row for row in rows if row.varies and row.could_be_training]
    if varying:
        return _race(rows, varying)
    if poisoned := [row for row in rows if row.varies]:
        why = f"results differ only while fresh memory is filled: {_names(poisoned)}; or a race too rare else"
        return Verdict(ReplayClass.UNINITIALISED, (why,), tuple(row.name for row in poisoned))
    found = _selection(list(_differing(rows))) or _too_few(list(_unlike_memory(rows)))
    if disagrees and (found is None or found.outcome is ReplayClass.INVALID):
        return Verdict(ReplayClass.RACE)
    return found or Verdict(ReplayClass.NOT_SEEN, _by_design(rows))


def _uninitialised(rows: Sequence[Row]) -> Verdict | None:
    """Look for fresh memory in the results, in three ways."""
    for why, deciding in (*_nan_appears(rows), *_depends_on_memory(rows), *_varies_again(rows)):
        if any(row.varies and row.memory for row in rows):
            why += "; results vary also while it is held, so that there may be a race beside it"
        return Verdict(ReplayClass.UNINITIALISED, (why,), tuple(row.name for row in deciding))
    return None


def _nan_appears(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Compare with memory of zeros where that was tried; what nobody fills may hold NaNs as well."""
    without = [row for row in rows if row.memory == "zeros"] or [row for row in rows if not row.memory]
    most = max((row.most_nan for row in without), default=None)
    filled = [row for row in rows if row.memory in (FILL, "nan")]
    if most is not None and (showing := [row for row in filled if row.least_nan > most]):
        why = f"NaNs of filled memory are in the results of {_names(showing)}, not of {_names(without)}"
        pairs = [(a, b) for a in without for b in showing]
        alike = [(a, b) for a, b in pairs if (a.choice, a.design) == (b.choice, b.design)]
        yield why, _rows_of(alike or pairs)  # where they are alike, memory alone tells which elements it is


def _depends_on_memory(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for a, b in _unlike_memory(rows):
        if a.is_held and b.is_held:
            other = "" if a.process == b.process else ", or on the process"
            yield f"the result depends on what fresh memory holds{other}: {a.name} or {b.name}", [a, b]


def _unlike_memory(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Find conditions that differ in what fresh memory holds only, and in all results."""
    for a, b in combinations(rows, 2):
        alike = (a.choice, a.design) == (b.choice, b.design) and a.memory != b.memory
        if alike and not a.results & b.results:
            yield a, b


def _varies_again(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Find what deterministic algorithms made stable by filling memory, not by ordering a sum."""
    for filled in (row for row in rows if row.memory == FILL and not row.varies):
        for bare in (row for row in rows if row.design == filled.design and not row.memory and row.varies):
            if bare.modal_share**filled.trials < _SURE:
                yield f"one result in {filled.name}, and variation returns in {bare.name}", [filled, bare]


def _race(rows: Sequence[Row], varying: Sequence[Row]) -> Verdict:
    why = [f"results of the same inputs differ in: {_names(varying)}"] if len(rows) > 1 else []
    if steady := [row for row in rows if len(row.results) == 1]:
        why.append(f"one result each in: {_names(steady)}")
    return Verdict(ReplayClass.RACE, tuple(why), tuple(row.name for row in varying))


def _differing(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Find conditions that gave different results though no algorithm is another by design."""
    for row in rows:
        if row.could_be_training and len(row.results) > 1:
            yield row, row  # constant in each process, other results in other processes
    for a, b in combinations((row for row in rows if row.could_be_training), 2):
        if (a.design, a.memory) == (b.design, b.memory) and not a.results & b.results:
            yield a, b


def _selection(between: Sequence[tuple[Row, Row]]) -> Verdict | None:
    """Judge differences between conditions that were constant within, by the number of their trials."""
    told = [pair for pair in between if all(map(_is_enough, pair))]
    if not told:
        return _too_few(between)
    alone = [(a, b) for a, b in told if a is not b and (a.choice, a.process) == (b.choice, b.process)]
    deciding = _rows_of(alone or told)
    names = tuple(row.name for row in deciding)
    if alone:
        why = f"results differ between {_names(deciding)}, which choose no other kernel"
        return Verdict(ReplayClass.RACE, (why,), names)
    why = f"one result within each condition, and not the same in all: {_groups(deciding)}"
    if all(a is b for a, b in told):
        why = f"one result in each process, not the same in all: {_names(deciding)}"
    what = ", ".join(dict.fromkeys(name for a, b in told for name in _axes(a, b)))
    return Verdict(ReplayClass.SELECTION, (why, f"it depends on: {what}") if what else (why,), names)


def _too_few(between: Sequence[tuple[Row, Row]]) -> Verdict | None:
    """Say that results differ and that the trials do not tell why."""
    if not between:
        return None
    deciding = _rows_of(between)
    least = min(row.trials for row in deciding)
    trials = f"{least} {plural('trial', least)}"
    why = f"the results of {_names(deciding)} differ, and {trials} cannot tell a race from a choice;"
    names = tuple(row.name for row in deciding)
    return Verdict(ReplayClass.INVALID, (why, f"make {MIN_TRIALS} or more under each"), names)


def _rows_of(pairs: Sequence[tuple[Row, Row]]) -> list[Row]:
    return list({row.name: row for pair in pairs for row in pair}.values())


def _axes(a: Row, b: Row) -> list[str]:
    """Name what differs between two conditions, if it is one thing; a process may choose as well."""
    names = list(dict.fromkeys(name for name, _ in sorted(set(a.choice) ^ set(b.choice))))
    if len(names) > 1:
        return []
    if a is b or a.process != b.process:
        return [f"{names[0]}, or a choice of each process"] if names else ["a choice of each process"]
    return names


def _groups(rows: Sequence[Row]) -> str:
    """Say which conditions gave the same result, those of the most frequent first."""
    groups: dict[frozenset[Hashable], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.results, []).append(row)
    return " | ".join(map(_names, sorted(groups.values(), key=len, reverse=True)))


def _is_enough(row: Row) -> bool:
    return row.trials >= MIN_TRIALS and min(map(len, row.groups)) > 1


def _by_design(rows: Sequence[Row]) -> tuple[str, ...]:
    """Say which conditions gave another result because they are another algorithm; that is no finding."""
    first = rows[0]
    others = [row for row in rows if row.design != first.design and not row.results & first.results]
    if not others:
        return ()
    return (f"another result in {_names(others)}: another algorithm by design, which is no selection",)


def _names(rows: Sequence[Row]) -> str:
    more = f" and {len(rows) - _MAX_NAMES} more" if len(rows) > _MAX_NAMES else ""
    return ", ".join(row.name for row in rows[:_MAX_NAMES]) + more

"""Which use of a kernel in one run stands beside which in the other, and whether both chose the same.

Uses are paired by rank, kernel, problem and their number among the uses of that kernel for that problem, so
that more uses of another kernel or problem shift nothing. Where a run has more uses of one, what is equal is
matched first, in the order of both (`difflib`), and what is left over between stands beside each other or
alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.readers.choices import USED

_MAX_PRODUCT: Final = 250_000
"""Up to this many pairs of stretches two sequences are aligned; longer ones by counting choices."""


class Entry(NamedTuple):
    """One kernel and what it was used for, as one source tells it."""

    source: str
    kernel: str
    problem: str


class Stretch(NamedTuple):
    """Uses with one choice that follow each other."""

    choice: str
    num: int
    where: str
    details: str


class Pair(NamedTuple):
    """Uses that stand beside each other.

    Attributes
    ----------
    entry, rank
        Of what, and on which rank; None where the sources do not tell it.
    a, b
        What was chosen; None where a run has no such use.
    num
        How many uses follow each other like this.
    first
        Number of the first of them in run a, or in run b where only it has them.
    where, details
        Place and remarks in run a and in run b.
    is_mixed
        Whether a side has several choices of which nobody knows which rank made which.
    """

    entry: Entry
    rank: int | None
    a: str | None
    b: str | None
    num: int
    first: int
    where: tuple[str, str] = ("", "")
    details: tuple[str, str] = ("", "")
    is_mixed: bool = False

    @property
    def is_same(self) -> bool:
        """Whether both runs have these uses and chose the same."""
        return self.a is not None and self.a == self.b

    @property
    def is_other(self) -> bool:
        """Whether both runs have these uses and chose differently."""
        return None not in (self.a, self.b) and self.a != self.b


class Paired(NamedTuple):
    """All uses of both runs side by side, and (what, why) for what could not be put side by side."""

    pairs: list[Pair]
    not_checked: list[tuple[str, str]]


Slots = dict[int | None, dict[Entry, list[Stretch]]]


def pair_choices(a: pl.DataFrame, b: pl.DataFrame) -> Paired:
    """Pair the choices of two runs.

    Parameters
    ----------
    a, b
        Frames of the `CHOICE_SCHEMA`.
    """
    pairs: list[Pair] = []
    not_checked: list[tuple[str, str]] = []
    for source in sorted({*a["source"], *b["source"]}):
        mine, theirs = (each.filter(pl.col("source") == source) for each in (a, b))
        if mine.is_empty() or theirs.is_empty():
            where = "a" if theirs.is_empty() else "b"
            not_checked.append((source, f"only run {where} has it; give the same source of both runs"))
        elif _by_rank(mine, theirs):
            pairs += _of_ranks(mine, theirs, source, not_checked)
        else:
            pairs += _of_sets(mine, theirs)
            not_checked.append(
                (
                    source,
                    "the sources do not say of which rank a choice is: compared as sets over all processes",
                )
            )
    return Paired(pairs, not_checked)


def _by_rank(a: pl.DataFrame, b: pl.DataFrame) -> bool:
    """Say whether uses can be put side by side: all ranks are known, or each run has just one process."""
    if a["rank"].null_count() + b["rank"].null_count() == 0:
        return True
    is_one = a["process"].n_unique() == b["process"].n_unique() == 1
    return is_one and a["source"][0] in USED


def _of_ranks(
    a: pl.DataFrame, b: pl.DataFrame, source: str, not_checked: list[tuple[str, str]]
) -> Iterator[Pair]:
    mine, theirs = _slots(a), _slots(b)
    if len(mine) == len(theirs) == 1 and None in (*mine, *theirs):
        (known,) = {*mine, *theirs} - {None} or {None}
        mine, theirs = ({known: next(iter(each.values()))} for each in (mine, theirs))
    for rank in sorted({*mine, *theirs}, key=lambda each: -1 if each is None else each):
        if rank in mine and rank in theirs:
            yield from _of_slot(mine[rank], theirs[rank], rank)
        else:
            only = "a" if rank in mine else "b"
            not_checked.append((f"rank {rank} in {source}", f"only run {only} has it"))


def _slots(frame: pl.DataFrame) -> Slots:
    slots: Slots = defaultdict(dict)
    for row in frame.sort("rank", "kernel", "problem", "order", nulls_last=True).iter_rows(named=True):
        entry = Entry(row["source"], row["kernel"], row["problem"])
        slots[row["rank"]].setdefault(entry, []).append(_stretch(row))
    return dict(slots)


def _stretch(row: dict[str, Any]) -> Stretch:
    return Stretch(row["choice"], row["num"], row["where"], row["details"])


def _of_slot(
    a: dict[Entry, list[Stretch]], b: dict[Entry, list[Stretch]], rank: int | None
) -> Iterator[Pair]:
    for entry in sorted({*a, *b}):
        yield from pair_stretches(entry, rank, a.get(entry, []), b.get(entry, []))


def pair_stretches(entry: Entry, rank: int | None, a: Sequence[Stretch], b: Sequence[Stretch]) -> list[Pair]:
    """Pair the uses of one kernel for one problem on one rank, in their order."""
    if sum(each.num for each in a) == sum(each.num for each in b):
        blocks = [(a, b)]
    elif len(a) * len(b) > _MAX_PRODUCT:
        blocks = list(_by_count(a, b))
    else:
        blocks = list(_in_one_order(a, b))
    pairs: list[Pair] = []
    first = 0
    for mine, theirs in blocks:
        for choice_a, choice_b, num, left, right in _side_by_side(mine, theirs):
            where = (left.where if left else "", right.where if right else "")
            details = (left.details if left else "", right.details if right else "")
            pairs.append(Pair(entry, rank, choice_a, choice_b, num, first, where, details))
            first += num if choice_a is not None else 0
    return pairs


Blocks = Iterator[tuple[Sequence[Stretch], Sequence[Stretch]]]


def _in_one_order(a: Sequence[Stretch], b: Sequence[Stretch]) -> Blocks:
    """Align two sequences; where several alignments are as good, the order of the runs must not choose."""
    if _content(a) <= _content(b):
        yield from _aligned(a, b)
    else:
        yield from ((mine, theirs) for theirs, mine in _aligned(b, a))


def _content(stretches: Sequence[Stretch]) -> list[tuple[str, int]]:
    return [(each.choice, each.num) for each in stretches]


def _aligned(a: Sequence[Stretch], b: Sequence[Stretch]) -> Blocks:
    matcher = SequenceMatcher(None, [each.choice for each in a], [each.choice for each in b], autojunk=False)
    for kind, start_a, stop_a, start_b, stop_b in matcher.get_opcodes():
        mine, theirs = a[start_a:stop_a], b[start_b:stop_b]
        if kind == "equal":
            yield from (([left], [right]) for left, right in zip(mine, theirs, strict=True))
        else:
            yield mine, theirs


def _by_count(a: Sequence[Stretch], b: Sequence[Stretch]) -> Blocks:
    """Pair as many uses of each choice as both runs have, whatever their order."""
    totals = [Counter[str](), Counter[str]()]
    first: dict[str, Stretch] = {}
    for total, stretches in zip(totals, (a, b), strict=True):
        for each in stretches:
            total[each.choice] += each.num
            first.setdefault(each.choice, each)
    left = [[], []]  # type: list[list[Stretch]]
    for choice in sorted(first):
        both = min(totals[0][choice], totals[1][choice])
        if both:
            yield [first[choice]._replace(num=both)], [first[choice]._replace(num=both)]
        for rest, total in zip(left, totals, strict=True):
            if total[choice] > both:
                rest.append(first[choice]._replace(num=total[choice] - both))
    yield left[0], left[1]


Beside = tuple[str | None, str | None, int, Stretch | None, Stretch | None]


def _side_by_side(a: Sequence[Stretch], b: Sequence[Stretch]) -> Iterator[Beside]:
    """Put two sequences side by side, use by use; what is longer stands alone at its end."""
    at_a = at_b = used_a = used_b = 0
    while at_a < len(a) or at_b < len(b):
        left, right = (a[at_a] if at_a < len(a) else None), (b[at_b] if at_b < len(b) else None)
        rest = [each.num - used for each, used in ((left, used_a), (right, used_b)) if each is not None]
        num = min(rest)
        yield left.choice if left else None, right.choice if right else None, num, left, right
        used_a, used_b = used_a + num, used_b + num
        if left is not None and used_a == left.num:
            at_a, used_a = at_a + 1, 0
        if right is not None and used_b == right.num:
            at_b, used_b = at_b + 1, 0


def _of_sets(a: pl.DataFrame, b: pl.DataFrame) -> Iterator[Pair]:
    """Compare which choices there are at all, for each kernel and problem."""
    mine, theirs = _choices_of(a), _choices_of(b)
    for entry in sorted({*mine, *theirs}):
        left, right = mine.get(entry), theirs.get(entry)
        texts = [_as_set(each) if each else None for each in (left, right)]
        where = tuple(next(iter(each.values())).where if each else "" for each in (left, right))
        details = tuple(next(iter(each.values())).details if each else "" for each in (left, right))
        is_mixed = any(each and len(each) > 1 for each in (left, right))
        yield Pair(
            entry, None, texts[0], texts[1], 1, 0, (where[0], where[1]), (details[0], details[1]), is_mixed
        )  # fmt: skip


def _choices_of(frame: pl.DataFrame) -> dict[Entry, dict[str, Stretch]]:
    found: dict[Entry, dict[str, Stretch]] = defaultdict(dict)
    for row in frame.sort("kernel", "problem", "process", "order").iter_rows(named=True):
        found[Entry(row["source"], row["kernel"], row["problem"])].setdefault(row["choice"], _stretch(row))
    return dict(found)


def _as_set(choices: dict[str, Stretch]) -> str:
    return " | ".join(sorted(choices))

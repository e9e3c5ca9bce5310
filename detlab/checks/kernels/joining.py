"""Choices joined to the calls of a comparison: what happened where both runs chose the same, and where not.

A call and a line of a log share no number. They are joined by what was computed, use by use where the log
and the trace agree on how often it was; else only where every use in the log has one choice, because then
it does not matter which of them the call is. Everything else is said to be ambiguous.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.checks.kernels.calls import OUTCOMES, CallGroup, Outcome, RankCalls, shapes_of_profile
from detlab.checks.kernels.pairing import Entry, Pair
from detlab.checks.kernels.products import of_problem
from detlab.readers.choices import USED
from detlab.schema import Meta


class Joined(NamedTuple):
    """Calls of one rank that a choice was joined to.

    Attributes
    ----------
    pair
        What both runs chose.
    outcome
        What the comparison shows of these calls.
    rank, num_calls, sites
        On which rank, how many they are, and the sites of the first few.
    how
        What the join rests on.
    is_exact, is_ambiguous
        Whether log and trace agree on the number of uses; whether several choices fit.
    """

    pair: Pair
    outcome: Outcome
    rank: int
    num_calls: int
    sites: tuple[str, ...]
    how: str
    is_exact: bool = False
    is_ambiguous: bool = False


class Joins(NamedTuple):
    """All that was joined, and the entries of the log that no call fits, by rank."""

    joined: list[Joined]
    without_call: set[tuple[Entry, int | None]]


def join(pairs: Sequence[Pair], calls: Mapping[int, RankCalls]) -> Joins:
    """Join choices to the calls of a comparison."""
    by_rank: dict[int | None, dict[Entry, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        if not pair.is_mixed:
            by_rank[pair.rank][pair.entry].append(pair)
    joined: list[Joined] = []
    without: set[tuple[Entry, int | None]] = set()
    for rank, entries in by_rank.items():
        places = [each for number, each in calls.items() if rank in (None, number)]
        fitting: set[Entry] = set()
        for place in places:
            for group, candidates in _groups(entries, place):
                fitting.update(candidates)
                joined += _join(group, {each: entries[each] for each in candidates}, rank is None)
        without |= {(entry, rank) for entry in entries if entry not in fitting}
    return Joins(joined, without)


def _groups(entries: Mapping[Entry, list[Pair]], calls: RankCalls) -> Iterator[tuple[CallGroup, list[Entry]]]:
    """Give the calls that some entries fit, with these; of one source at a time."""
    by_key: dict[tuple[str, Hashable], list[Entry]] = defaultdict(list)
    products = filter(None, map(_product_key, entries))
    laid_out = {key[1] for key in products if key in calls}
    for entry in entries:
        wanted = _key(entry, laid_out)
        if wanted:
            by_key[entry.source, wanted].append(entry)
    for (_, key), fitting in by_key.items():
        group = calls.group(key)
        if group is not None:
            yield from _narrowed(fitting, group)


def _product_key(entry: Entry) -> tuple[Hashable, ...]:
    """Give the key of a product with its layout; empty for what is none."""
    found = of_problem(entry.problem) if entry.source == "cublaslt" else None
    return ("product", *found) if found else ()


def _key(entry: Entry, laid_out: Collection[Hashable]) -> tuple[Hashable, ...]:
    """Give the key of the calls that an entry can be about; empty where none can be told.

    The layout counts for products of which any entry has one that a call has too.
    """
    if entry.source == "cublaslt":
        key = _product_key(entry)
        return key if not key or key[1] in laid_out else key[:2]
    if entry.source == "kineto":
        return "shapes", shapes_of_profile(entry.problem)
    return ("name", entry.kernel) if entry.source.startswith("triton") else ()


def _narrowed(fitting: list[Entry], group: CallGroup) -> Iterator[tuple[CallGroup, list[Entry]]]:
    """Give calls with the entries that are about them: an autotuner chooses for each key by itself.

    The numbers of a key are mostly sizes of tensors. Where no key has sizes of a call alone, any of them can
    be meant.
    """
    if not fitting[0].source.startswith("triton"):
        yield group, fitting
        return
    for meta, alike in group.by_meta():
        sizes = _sizes_of(meta)
        kept = [each for each in fitting if _numbers_in(each.problem) <= sizes]
        yield alike, kept or fitting


def _numbers_in(problem: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\w.])\d{1,18}(?![\w.])", problem)}


def _sizes_of(meta: Meta) -> set[int]:
    """Give every size of the tensors of a call, and the products of their first and of their last ones."""
    shapes = [each.shape for each in (*meta.inputs, *meta.outputs)]
    ends = [part for shape in shapes for n in range(len(shape)) for part in (shape[: n + 1], shape[n:])]
    return {0, 1} | {size for shape in shapes for size in shape} | {prod(part) for part in ends}


def _join(group: CallGroup, fitting: Mapping[Entry, list[Pair]], is_set: bool) -> Iterator[Joined]:
    """Join calls to what their entries say, as surely as that can be."""
    pairs = [pair for each in fitting.values() for pair in each]
    source = pairs[0].entry.source
    uses = [sum(pair.num for pair in pairs if getattr(pair, run) is not None) for run in ("a", "b")]
    is_counted = source in USED and not is_set
    counts = f"{source} tells of {_beside(*uses)} uses, the traces of {_beside(group.total_a, group.total_b)}"
    if is_counted and len(fitting) == 1 and uses == [group.total_a, group.total_b]:
        yield from _use_by_use(group, pairs, f"log and trace agree on {_beside(*uses)} uses")
    elif is_counted and (uses[0] < group.total_a or uses[1] < group.total_b):
        yield from _all(group, pairs[0], f"ambiguous: {counts}", is_ambiguous=True)
    elif (settled := _settled(fitting)) and _is_about(settled.entry, group):
        how = f"every use has this choice; {counts}" if is_counted else "told once for all uses"
        yield from _all(group, settled, how)
    else:
        how = f"ambiguous: {len(pairs)} choices for {len(fitting)} problems fit these calls"
        yield from _all(group, pairs[0], how, is_ambiguous=True)


def _is_about(entry: Entry, group: CallGroup) -> bool:
    """Say whether the key of an autotuner has no number that is no size of these calls."""
    if not entry.source.startswith("triton"):
        return True
    return all(_numbers_in(entry.problem) <= _sizes_of(meta) for meta, _ in group.by_meta())


def _beside(a: int, b: int) -> str:
    return f"{a:,}" if a == b else f"{a:,} and {b:,}"


def _settled(fitting: Mapping[Entry, list[Pair]]) -> Pair | None:
    """Give what every use of these entries has in both runs, or one that stands for all; None if none does.

    Several entries stand for each other where each has one choice, and both runs the same.
    """
    found = []
    for pairs in fitting.values():
        sides = [{getattr(pair, run) for pair in pairs} - {None} for run in ("a", "b")]
        if any(len(side) != 1 for side in sides):
            return None
        ((a,), (b,)) = sides
        found.append(pairs[0]._replace(a=a, b=b))
    is_one = len({(each.a, each.b) for each in found}) == 1
    return found[0] if is_one or all(each.is_same for each in found) else None


def _use_by_use(group: CallGroup, pairs: Sequence[Pair], how: str) -> Iterator[Joined]:
    """Join the n-th call to the n-th use."""
    for pair in pairs:
        if pair.a is not None:
            numbers = np.arange(pair.first, pair.first + pair.num)
            yield from _with_outcomes(group, numbers, pair, how, is_exact=True)


def _all(group: CallGroup, pair: Pair, how: str, *, is_ambiguous: bool = False) -> Iterator[Joined]:
    """Join all calls to one choice."""
    yield from _with_outcomes(group, np.arange(group.total_a), pair, how, is_ambiguous=is_ambiguous)


def _with_outcomes(
    group: CallGroup,
    numbers: NDArray[np.int64],
    pair: Pair,
    how: str,
    *,
    is_exact: bool = False,
    is_ambiguous: bool = False,
) -> Iterator[Joined]:
    for outcome in OUTCOMES:
        found = np.intersect1d(numbers, group.with_outcome(outcome))
        if len(found):
            sites = tuple(group.sites(found)) if outcome != "unknown" else ()
            rank = group.rank.rank
            yield Joined(pair, outcome, rank, len(found), sites, how, is_exact, is_ambiguous)

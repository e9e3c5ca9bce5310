"""How often each instrument saw a kernel run: names alone are believed where two of them count the same.

A profiler can miss launches, and a kernel can have run outside the window of a log. Naming a kernel takes two
instruments that agree on the number of launches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from detlab.checks.kernels.calls import RankCalls
from detlab.checks.kernels.pairing import Pair
from detlab.readers.choices.kernel_names import GEMM, kernel_name
from detlab.text import plural

NAMES_ALONE: Final = ("kineto", "nsys")
"""Sources whose choice is nothing but the name of a kernel."""

Counts = dict[str, dict[int | None, int]]
"""Launches of one kernel by instrument and rank."""


class Believed(NamedTuple):
    """Pairs of names that two instruments bear out, and what is claimed from no name.

    Attributes
    ----------
    pairs
        The pairs to go on with, those of other sources too.
    not_checked
        (what, why) for names of which nothing is claimed.
    notes
        Which instruments agreed.
    """

    pairs: list[Pair]
    not_checked: list[tuple[str, str]]
    notes: list[str]


def believe(
    pairs: Sequence[Pair], frames: Sequence[pl.DataFrame], calls: Mapping[int, RankCalls]
) -> Believed:
    """Keep the names of kernels of which, in both runs, a second instrument counts as many launches.

    Parameters
    ----------
    pairs
        Choices side by side.
    frames
        All choices of each run, which say how often each instrument saw a kernel.
    calls
        The calls of a comparison by rank, if there is one: a trace is an instrument for matrix products.
    """
    counts = [launch_counts(each, calls, run) for run, each in enumerate(frames)]
    kept: list[Pair] = []
    left: dict[str, list[tuple[Pair, str]]] = defaultdict(list)
    agreed: dict[str, None] = {}
    for pair in pairs:
        source, kernel = pair.entry.source, pair.entry.kernel
        if source not in NAMES_ALONE:
            kept.append(pair)
        elif not kernel_name(pair.a or pair.b or "").is_helper:
            found = [_confirmed(source, each.get(kernel, {})) for each in counts]
            if all(each.is_confirmed for each in found):
                kept.append(pair)
                agreed |= dict.fromkeys(
                    f"{kernel}: {each.says} in {run}" for run, each in zip("ab", found, strict=True)
                )
            else:
                left[source].append((pair, next(each.says for each in found if not each.is_confirmed)))
    return Believed(kept, list(_left_out(left)), list(agreed))


class _Confirmation(NamedTuple):
    is_confirmed: bool
    says: str


def launch_counts(frame: pl.DataFrame, calls: Mapping[int, RankCalls], run: int) -> dict[str, Counts]:
    """Count launches by kernel, instrument and rank; a product of a log or trace is a gemm."""
    found: dict[str, Counts] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    counted = frame.filter(pl.col("source").is_in(["cublaslt", *NAMES_ALONE]))
    for source, rank, kernel, num in counted.select("source", "rank", "kernel", "num").iter_rows():
        found[GEMM if source == "cublaslt" else kernel][source][rank] += num
    for number, each in calls.items():
        found[GEMM]["trace"][number] = each.num_products()[run]
    return found


def _confirmed(source: str, counts: Counts) -> _Confirmation:
    """Ask whether another instrument counts as many launches of a kernel on every rank as a source does."""
    own = counts.get(source, {})
    for other, theirs in sorted(counts.items()):
        if other != source and _same(own, theirs):
            return _Confirmation(True, f"{source} and {other} agree on {sum(own.values()):,} launches")
    said = [f"{name} {sum(each.values()):,}" for name, each in sorted(counts.items())]
    return _Confirmation(False, ", ".join(said) or "none")


def _same(a: Mapping[int | None, int], b: Mapping[int | None, int]) -> bool:
    """Compare counts by rank; where both have one process alone its rank need not be known."""
    if len(a) == len(b) == 1 and None in (*a, *b):
        return list(a.values()) == list(b.values())
    return bool(a) and dict(a) == dict(b)


def _left_out(left: Mapping[str, Sequence[tuple[Pair, str]]]) -> Iterator[tuple[str, str]]:
    for source, members in sorted(left.items()):
        others = sum(pair.num for pair, _ in members if not pair.is_same)
        kernels = sorted({pair.entry.kernel for pair, _ in members})
        first, says = members[0]
        why = (
            f"no second instrument counts as many launches (of {first.entry.kernel}: {says}), so that "
            f"nothing is claimed from names alone; of {len(kernels):,} {plural('kernel', len(kernels))} "
            f"{others:,} launches have other names"
        )
        yield f"kernel names of {source}", why

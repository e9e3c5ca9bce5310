"""What holds: choices that are equal in both runs, and ranks that agree; and what one run lacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from detlab.checks.kernels.pairing import Entry, Pair
from detlab.checks.kernels.within import Agreement
from detlab.checks.result import Verified
from detlab.text import plural

_EVIDENCE: Final = {
    "cublaslt": "printed: the algorithm that the library logged for each product",
    "triton print": "printed: the configuration that the autotuner took",
    "triton cache": "kept: the fastest of the times that the autotuner keeps",
    "inductor print": "printed: the first line of the autotuner's table",
    "inductor cache": "kept: the configuration that the autotuner keeps",
    "kineto": "names of kernels, with launch counts that a second instrument bears out",
    "nsys": "names of kernels, with launch counts that a second instrument bears out",
    "trace": "recorded with the calls",
}


def verified_choices(pairs: Sequence[Pair]) -> Iterator[Verified]:
    """Give for each source for how many kernels with their problems both runs chose alike, rank by rank."""
    by_place: dict[tuple[Entry, int | None], list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_place[pair.entry, pair.rank].append(pair)
    same: dict[str, list[Pair]] = defaultdict(list)
    for (entry, _), members in by_place.items():
        if all(pair.is_same for pair in members):
            same[entry.source] += members
    for source, members in sorted(same.items()):
        uses, num = sum(pair.num for pair in members), len({pair.entry for pair in members})
        mixed = sum(pair.is_mixed for pair in members)
        sets = f"; of {mixed:,} of them the same set of several choices" if mixed else ""
        ranks = _on({pair.rank for pair in members})
        says = f"the same choice for {_entries(num)}, {uses:,} {plural('use', uses)}{ranks}{sets}"
        yield Verified(source, says, _EVIDENCE[source])


def verified_agreement(told: Mapping[str, Agreement], run: str) -> Iterator[Verified]:
    """Give for each source whose ranks all agree how much they agree on."""
    for source, each in sorted(told.items()):
        if each.num_entries and not each.disagreeing:
            says = f"all ranks chose the same for {_entries(each.num_entries)} that several of them tell of"
            yield Verified(f"ranks of {run} in {source}", says, _EVIDENCE[source])


def _entries(num: int) -> str:
    return f"{num:,} {'entry' if num == 1 else 'entries'} of kernel and problem"


def _on(ranks: set[int | None]) -> str:
    known = len(ranks - {None})
    return f" on {known:,} {plural('rank', known)}" if known else ""


def one_sided(pairs: Sequence[Pair]) -> Iterator[tuple[str, str]]:
    """Give (what, why) for uses that only one run has: they have no partner to be compared with."""
    for run, lacks in (("a", "b"), ("b", "a")):
        alone: dict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            if getattr(pair, lacks) is None:
                alone[pair.entry.source].append(pair)
        for source, members in sorted(alone.items()):
            uses = sum(pair.num for pair in members)
            first = members[0].entry
            hint = (
                "; an autotuner prints nothing where it finds its cache" if source.endswith("print") else ""
            )
            yield (
                f"{uses:,} {plural('use', uses)} in {source} that only run {run} has",
                f"such as {first.kernel}{f' ({first.problem})' if first.problem else ''}{hint}",
            )

"""What is known of single calls, as a page carries it: written beforehand for those that matter most."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple

from detlab.comparison import Comparison, Finding
from detlab.comparison.call import call_details
from detlab.comparison.places import differing_at
from detlab.comparison.ranks import RankComparison
from detlab.schema import Site, Verdict
from detlab.views.call_html import call_html
from detlab.views.cells import MapSource
from detlab.views.encoded import as_base64, encode_text

MAX_CALLS: Final = 300
"""Details of at most so many calls are written: each has to be read from the runs."""

MAX_CALLS_LARGE: Final = 100
"""The same for a comparison of many ranks, where each takes longer."""

_MANY_RANKS: Final = 256

Key = tuple[int, int]
"""Number of the rank in the comparison, and position there."""


class EncodedCalls(NamedTuple):
    """Details of calls.

    Attributes
    ----------
    payload
        base64 of deflated JSON: for each call ``"rank step column"`` and its HTML.
    num_calls, num_divergent
        How many calls have their details here, and how many diverge.
    """

    payload: str
    num_calls: int
    num_divergent: int


def encode_calls(source: MapSource, num_bytes: int) -> EncodedCalls:
    """Write the details of the calls of findings, of first divergences and origins, then of further ones.

    Parameters
    ----------
    source
        The map in which the calls are shown.
    num_bytes
        So many bytes may they take, deflated.
    """
    cmp, written = source.cmp, []
    most = MAX_CALLS_LARGE if len(cmp.ranks) > _MANY_RANKS else MAX_CALLS
    measure, size = zlib.compressobj(9), 0
    for number, position in islice(_once(telling_calls(cmp)), most):
        text = call_html(call_details(cmp, number, position), links=True)
        size += len(measure.compress(text.encode("utf-8", "backslashreplace")))
        size += len(measure.flush(zlib.Z_SYNC_FLUSH))
        if size > num_bytes:
            break
        step, column = source.planes.programs[source.planes.program_of[number]].place_of(position)
        written.append([f"{number} {cmp.steps.index(step)} {column}", text])
    num_divergent = sum(len(rank.divergent()) for rank in cmp.ranks)
    return EncodedCalls(
        as_base64(encode_text(json.dumps(written, ensure_ascii=False))), len(written), num_divergent
    )


def _once(keys: Iterable[Key]) -> Iterator[Key]:
    """Leave out what came before; only as many as are wanted are looked for, of maybe many millions."""
    seen: set[Key] = set()
    for key in keys:
        if key not in seen:
            seen.add(key)
            yield key


def telling_calls(cmp: Comparison) -> Iterator[Key]:
    """List divergent calls, those first that say most; some of them more than once."""
    by_rank = {rank.rank: number for number, rank in enumerate(cmp.ranks)}
    for finding in cmp.roots:
        yield from islice(_of_finding(cmp, finding, by_rank), 1)
    firsts = (_firsts(number, rank) for number, rank in enumerate(cmp.ranks))
    yield from chain.from_iterable(firsts)
    for finding in cmp.roots:
        yield from _of_finding(cmp, finding, by_rank)
    for turn in range(max((len(rank.differing) for rank in cmp.ranks), default=0)):
        yield from (key for number, rank in enumerate(cmp.ranks) for key in _divergent(number, rank, turn))


def _divergent(number: int, rank: RankComparison, turn: int) -> Iterator[Key]:
    """Give the n-th call of a rank that differs, unless it is set aside."""
    found = rank.differing[turn : turn + 1]
    yield from ((number, int(at)) for at in found[rank.is_counted(found)])


def _firsts(number: int, rank: RankComparison) -> Iterator[Key]:
    for found in (rank.counted(Verdict.ORIGIN), rank.divergent()):
        yield from ((number, int(at)) for at in found[:1])


def _of_finding(cmp: Comparison, finding: Finding, by_rank: Mapping[int, int]) -> Iterator[Key]:
    """Give the listed calls of a finding by rank: not every rank makes all of them."""
    for number in (by_rank[rank] for rank in finding.ranks):
        found = (differing_at(cmp.ranks[number], Site.parse(site)) for site in finding.sites)
        yield from ((number, position) for position in found if position is not None)

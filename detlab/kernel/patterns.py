"""Which elements differ, in words: rows, columns, tiles, a period, a range, the end, or scattered.

Each description is judged by how many bits it takes to name the elements with it: those of the description
and those that then say which of the elements it covers differ (a code in two parts, Rissanen, Automatica 14,
1978). Scattered takes log2 of the number of ways to choose k of n. A description that saves b bits against it
is found in elements thrown at random with a probability of at most 2**-b, so `MIN_GAIN_BITS` keeps every
claim above chance; where none of them saves that much, the answer is "scattered".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.text import plural

Mask = NDArray[np.bool_]
Kind = Literal["none", "all", "end", "range", "period", "slices", "tiles", "scattered"]

MIN_GAIN_BITS: Final = 20.0
"""What a description must save against "scattered" to be believed: chance gives it once in a million."""

_MAX_LISTED: Final = 4
_MAX_FLAT: Final = 1 << 26
_TILE_SIDES: Final = (8, 16, 32, 64, 128, 256)
_MODEL_BITS: Final = 8.0  # to name one of the descriptions tried


@dataclass(frozen=True, slots=True)
class Pattern:
    """Where the elements that differ lie.

    Attributes
    ----------
    kind
        ``end``: only the last rows, columns or elements, as padding that nobody wrote would be; ``range``:
        only some that lie together; ``period``: those at a fixed distance; ``slices``: some rows or columns
        without an order; ``tiles``: blocks of rows and columns.
    text
        The same in words and numbers.
    share
        Share of the elements in that place that differ, from 0 to 1.
    gain_bits
        Bits saved against "scattered"; 2 to the power of minus it bounds the chance of seeing this in
        elements thrown at random. 0 for ``none``, ``all`` and ``scattered``.
    """

    kind: Kind
    text: str
    share: float
    gain_bits: float


class _Place(NamedTuple):
    """A description of some elements: its words, the bits to name it, and how many elements it covers."""

    kind: Kind
    text: str
    bits: float
    size: int


def pattern(differs: Mask) -> Pattern:
    """Say in words which elements of an output differ.

    Parameters
    ----------
    differs
        True where an element differs, in the shape of the output.
    """
    n, k = differs.size, int(np.count_nonzero(differs))
    if k == 0:
        return Pattern("none", "no element differs", 0.0, 0.0)
    if k == n:
        return Pattern("all", f"all {n:,} elements" if n > 1 else "the only element", 1.0, 0.0)
    scattered = log2_choose(n, k)
    places = [*_axes(differs), *_flat(differs), *_tiles(differs)]
    costs = [place.bits + _MODEL_BITS + log2_choose(place.size, k) for place in places]
    best = int(np.argmin(costs)) if costs else -1
    if not costs or scattered - costs[best] < MIN_GAIN_BITS:
        return Pattern("scattered", _scattered(differs, k), k / n, 0.0)
    share = k / places[best].size
    return Pattern(places[best].kind, places[best].text + _share(share), share, scattered - costs[best])


def log2_choose(n: float, k: float) -> float:
    """Give log2 of the number of ways to choose k of n; infinite when k is more than n."""
    if k > n:
        return math.inf
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def _axes(differs: Mask) -> Iterator[_Place]:
    """Describe the elements by the slices of each axis that hold any, alone and all axes together."""
    found = []
    for axis, size in enumerate(differs.shape if differs.ndim > 1 else ()):
        others = tuple(other for other in range(differs.ndim) if other != axis)
        touched = _any(differs, others)
        if not touched.all():
            place = _members(touched, *(("slice", "slices") if differs.ndim > 2 else _TWO_AXES[axis]))
            if differs.ndim > 2:
                place = place._replace(text=f"{place.text} on axis {axis}")
            found.append((place, size))
            yield place._replace(size=place.size * (differs.size // size))
    if len(found) > 1:
        whole = math.prod(size for _, size in found)
        size = math.prod(place.size for place, _ in found) * (differs.size // whole)
        kinds = {place.kind for place, _ in found}
        text = " x ".join(place.text for place, _ in found)
        yield _Place(
            kinds.pop() if len(kinds) == 1 else "slices", text, sum(place.bits for place, _ in found), size
        )


def _any(mask: Mask, axes: tuple[int, ...]) -> Mask:
    found: Mask = np.any(mask, axis=axes)
    return found


_TWO_AXES: Final = (("row", "rows"), ("column", "columns"))


def _flat(differs: Mask) -> Iterator[_Place]:
    """Describe the elements by their flattened index."""
    if differs.size <= _MAX_FLAT:
        place = _members(differs.reshape(-1), "element", "elements")
        if place.kind != "slices":
            yield place


def _members(member: Mask, one: str, many: str) -> _Place:
    """Give the shortest description of a set of positions on one axis; it covers just these."""
    at = np.flatnonzero(member)
    first, last = int(at[0]), int(at[-1])
    m, s, log = member.size, at.size, math.log2(member.size)
    if s == m:
        return _Place("all", f"all {m:,} {many}", 0.0, s)
    found = [_Place("slices", _listed(at, m, one, many), log + log2_choose(m, s), s)]
    if last - first + 1 == s:
        number = f"{s:,} of {m:,} {many}" if s > 1 else f"of {m:,} {many}"
        if last == m - 1:
            found.append(_Place("end", f"the last {number}", log, s))
        elif first == 0:
            found.append(_Place("range", f"the first {number}", log, s))
        elif s > 1:
            found.append(_Place("range", f"{many} {first:,}..{last:,} of {m:,}", 2 * log, s))
    elif s > 2:
        found += [*_strided(at, m, many), *_blocks(at, m, many)]
    return min(found, key=lambda place: place.bits)


def _listed(at: NDArray[np.intp], m: int, one: str, many: str) -> str:
    if at.size == 1:
        return f"{one} {at[0]:,} of {m:,}"
    if at.size <= _MAX_LISTED:
        return f"{many} {', '.join(f'{i:,}' for i in at)} of {m:,}"
    return f"{at.size:,} of {m:,} {many}"


def _strided(at: NDArray[np.intp], m: int, many: str) -> Iterator[_Place]:
    """Describe positions as every so many-th, not all of which need to be there."""
    first, last = int(at[0]), int(at[-1])
    stride = int(np.gcd.reduce(np.diff(at)))
    if stride > 1:
        covered = (last - first) // stride + 1
        missing = "" if covered == at.size else f" ({at.size:,} of those {covered:,})"
        text = f"every {_nth(stride)} of {m:,} {many} from {first:,} to {last:,}{missing}"
        yield _Place("period", text, 3 * math.log2(m) + log2_choose(covered, at.size), at.size)


def _blocks(at: NDArray[np.intp], m: int, many: str) -> Iterator[_Place]:
    """Describe positions as runs of one length at one distance, or as whole blocks of one length."""
    starts = at[np.diff(at, prepend=at[0] - 2) > 1]
    ends = at[np.diff(at, append=at[-1] + 2) > 1] + 1
    run, gap = int(ends[0] - starts[0]), int(starts[1] - starts[0])
    expected = np.minimum(starts[0] + run + gap * np.arange(starts.size), m)
    if run > 1 and starts.size > 2 and (np.diff(starts) == gap).all() and (ends == expected).all():
        text = f"blocks of {run:,} of {m:,} {many}, every {gap:,} from {starts[0]:,} to {ends[-1] - 1:,}"
        yield _Place("period", text, 4 * math.log2(m), at.size)
    edges = np.concatenate([starts, ends[ends != m]])
    block = int(np.gcd.reduce(edges))
    if block > 1:
        touched, whole = np.unique(at // block).size, -(-m // block)
        text = f"{touched:,} of {whole:,} blocks of {block:,} {many}"
        yield _Place("slices", text, 2 * math.log2(m) + log2_choose(whole, touched), at.size)


def _nth(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"


def _tiles(differs: Mask) -> Iterator[_Place]:
    """Describe the elements by the tiles of the last two axes that hold any, or of the only axis."""
    flat = differs.reshape(-1, differs.shape[-1])
    for rows, by_rows in _coarser(flat, 0):
        for columns, touched in _coarser(by_rows, 1):
            fits = rows <= (flat.shape[0] + 1) // 2 and 1 < columns <= flat.shape[1] // 2
            if fits and (flat.shape[0] == 1 or not _is_slices(touched)):
                yield _tiled(touched, flat.shape, (rows, columns))


def _is_slices(touched: Mask) -> bool:
    """Say whether the tiles are but one, or whole rows or columns, which have a plainer description."""
    rows, columns = (np.count_nonzero(_any(touched, (axis,))) for axis in (1, 0))
    full = rows == touched.shape[0] or columns == touched.shape[1]
    return bool(rows * columns == np.count_nonzero(touched) and (full or rows * columns == 1))


def _coarser(mask: Mask, axis: int) -> Iterator[tuple[int, Mask]]:
    """Give the mask and then, for blocks of each length along an axis, whether a block holds any."""
    before = 1
    yield before, mask
    for side in _TILE_SIDES:
        ratio = side // before
        mask = np.logical_or.reduceat(mask, np.arange(0, mask.shape[axis], ratio), axis=axis)
        before = side
        yield side, mask


def _tiled(touched: Mask, shape: tuple[int, int], tile: tuple[int, int]) -> _Place:
    """Describe tiles one by one, or as rows and columns of tiles where that is shorter."""
    number = int(np.count_nonzero(touched))
    is_flat = shape[0] == 1
    what = f"blocks of {tile[1]} elements" if is_flat else f"tiles of {tile[0]} x {tile[1]}"
    nouns = _BLOCK_NOUNS if is_flat else _TILE_NOUNS
    each = [_members(_any(touched, (1 - axis,)), *nouns[axis]) for axis in (0, 1)]
    covered = each[0].size * each[1].size
    named = sum(place.bits for place in each) + log2_choose(covered, number)
    one_by_one = log2_choose(touched.size, number)
    text = f"{number:,} of {touched.size:,} {what}"
    if named < one_by_one:
        text += f" ({' x '.join(place.text for place in each[is_flat:])})"
    heights, widths = (_lengths(shape[axis], tile[axis]) for axis in (0, 1))
    size = int(heights @ touched.astype(np.int64) @ widths)
    return _Place("tiles", text, math.log2(touched.size) + min(named, one_by_one), size)


_TILE_NOUNS: Final = (("row of tiles", "rows of tiles"), ("column of tiles", "columns of tiles"))
_BLOCK_NOUNS: Final = (("", ""), ("block", "blocks"))


def _lengths(size: int, block: int) -> NDArray[np.int64]:
    """Give the length of each block of an axis, the last of which may be cut."""
    starts = np.arange(0, size, block)
    return np.minimum(block, size - starts).astype(np.int64)


def _share(share: float) -> str:
    return "" if share == 1.0 else f", {_percent(share)} of their elements"


def _scattered(differs: Mask, k: int) -> str:
    if k <= _MAX_LISTED:
        places = [", ".join(map(str, place)) for place in np.argwhere(differs).tolist()]
        return f"{plural('element', k)} {', '.join(f'[{place}]' for place in places)}"
    return f"scattered, {_percent(k / differs.size)} of {differs.size:,} elements"


def _percent(share: float) -> str:
    """Write a share so that neither none nor all of it is claimed by rounding."""
    return f"{min(max(100 * share, 0.1), 99.9):.{0 if 1 <= 100 * share < 99.5 else 1}f} %"

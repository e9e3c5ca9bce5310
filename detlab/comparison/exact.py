"""How often chance ties a fact to the classes as well as was seen: an exact test on a table of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import factorial, prod
from typing import Final

LIKELY_BY_CHANCE: Final = 0.05
"""Above this share of equally striking cases, chance is an explanation too."""

CHANCE: Final = "chance explains it as well"

_MAX_STATES: Final = 100_000
"""Above this many intermediate tables the test gives up instead of taking minutes."""

_Remaining = tuple[int, ...]


def exact_test(table: Sequence[Sequence[int]]) -> Fraction | None:
    """Give the share of all tables with these margins that are as unlikely as this one, or more so.

    For two rows and two columns this is Fisher's exact test (two-sided), for more its extension by
    Freeman and Halton (Biometrika 38, 1951). It says how often a shuffle of the columns over the rows
    would give a table that stands out as much; nothing is approximated.

    Parameters
    ----------
    table
        Counts, row by row.

    Returns
    -------
    A probability above 0 and up to 1, as a fraction; None when there are too many tables to go through.
    """
    cells = [list(row) for row in table]
    rows = [sum(row) for row in cells if sum(row)]
    columns = [sum(column) for column in zip(*cells, strict=True) if sum(column)]
    if len(rows) > len(columns):
        rows, columns = columns, rows
    ways = _products(tuple(sorted(rows)), columns)
    if ways is None:
        return None
    observed = prod(factorial(count) for row in cells for count in row)
    margins = prod(map(factorial, rows)) * prod(map(factorial, columns))
    seen = sum((Fraction(num, product) for product, num in ways.items() if product >= observed), Fraction(0))
    return seen * margins / factorial(sum(rows))


def _products(rows: _Remaining, columns: Sequence[int]) -> Counter[int] | None:
    """Count the tables with given margins by the product of the factorials of their cells.

    The probability of a table is that of its margins divided by this product, so tables compare as
    whole numbers. Rows with as much left to fill are alike, hence the sorting.
    """
    states: dict[_Remaining, Counter[int]] = {rows: Counter({1: 1})}
    for column in sorted(columns, reverse=True):
        following: dict[_Remaining, Counter[int]] = {}
        size = 0
        for remaining, products in states.items():
            for parts in _splits(column, remaining):
                left = tuple(sorted(have - part for have, part in zip(remaining, parts, strict=True)))
                factor = prod(map(factorial, parts))
                merged = following.setdefault(left, Counter())
                size -= len(merged)
                for product, num in products.items():
                    merged[product * factor] += num
                size += len(merged)
                if size > _MAX_STATES:
                    return None
        states = following
    return states[(0,) * len(rows)]


@lru_cache(maxsize=1_024)
def _splits(total: int, limits: _Remaining) -> tuple[tuple[int, ...], ...]:
    return tuple(_each_split(total, limits))


def _each_split(total: int, limits: _Remaining) -> Iterator[tuple[int, ...]]:
    """Give every way to put a total into cells that hold at most so much each."""
    if not limits:
        if total == 0:
            yield ()
        return
    for first in range(max(0, total - sum(limits[1:])), min(total, limits[0]) + 1):
        for rest in _each_split(total - first, limits[1:]):
            yield (first, *rest)

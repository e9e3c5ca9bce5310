"""The exact test against published numbers, and against going through every shuffle."""

from collections import Counter
from itertools import permutations
from math import factorial, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.comparison.exact import exact_test


@pytest.mark.parametrize(
    ("table", "p"),
    [
        ([[3, 1], [1, 3]], 34 / 70),  # Fisher's lady tasting tea, two-sided
        ([[1, 9], [11, 3]], 0.002759456),  # Wikipedia: men and women who study
        ([[8, 2], [1, 5]], 0.034965035),
        ([[2, 0], [0, 2]], 1 / 3),
        ([[3, 0], [0, 4]], 1 / 35),
        ([[1, 0, 1, 0], [0, 1, 0, 1]], 1.0),  # a value for each run goes with anything
    ],
)
def test_known_tables_have_their_published_probability(table, p):
    assert exact_test(table) == pytest.approx(p, rel=1e-6)


def shuffled(classes, values):
    """Share of all shuffles whose table is as unlikely as the one given."""

    def product(order):
        return prod(factorial(n) for n in Counter(zip(classes, order, strict=True)).values())

    seen = [product(order) for order in permutations(values)]
    return sum(each >= product(values) for each in seen) / len(seen)


runs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6)


@given(runs)
def test_it_is_the_share_of_shuffles(pairs):
    classes, values = zip(*pairs, strict=True)
    counts = Counter(pairs)
    table = [[counts[a, b] for b in range(4)] for a in range(3)]
    # A table's probability counts shuffles: each is n! / … of them, so both ways must agree.
    assert exact_test(table) == pytest.approx(shuffled(classes, values))


@given(runs)
def test_rows_and_columns_may_be_exchanged(pairs):
    counts = Counter(pairs)
    table = [[counts[a, b] for b in range(4)] for a in range(3)]
    turned = [list(column) for column in zip(*table, strict=True)]
    assert exact_test(table) == pytest.approx(exact_test(turned))


def test_too_many_tables_are_given_up():
    assert exact_test([[9] * 5] * 5) is None

"""What is said about one compared call: each sentence where it is true, and not where it is not."""

from detlab import compare
from detlab.testing import Call, make_run
from tests.comparison.stories import INDEX_ADD, mm, site


def call_of(one, other, scope, op, **where):
    cmp = compare(*(make_run({0: calls}) for calls in (one, other)))
    return cmp.call(rank=0, site=site(scope, op, **where))


def test_an_origin_says_that_the_same_bits_gave_others():
    one, other = ([mm("x", "h"), Call(INDEX_ADD, "moe", ["h"], [word])] for word in "oO")
    details = call_of(one, other, "moe", INDEX_ADD)
    assert "The difference begins here: the same bits in gave other bits out." in repr(details)

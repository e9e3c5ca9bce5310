"""The large comparison that views are measured with is what comparing its runs gives."""

import numpy as np

from detlab.comparison import compare
from detlab.schema import Verdict
from tests.views.large import large_comparison


def test_its_verdicts_are_those_of_its_records():
    made = large_comparison(48, 300, 4)
    found = compare(made.a, made.b)
    for mine, theirs in zip(made.ranks, found.ranks, strict=True):
        assert np.array_equal(mine.verdicts, theirs.verdicts)
        assert np.array_equal(mine.differing, theirs.differing)
    assert (made.counts, made.steps) == (found.counts, found.steps)
    assert made.counts[Verdict.ORIGIN] == 16 and made.counts[Verdict.UNKNOWN] == 1
    assert made.roots[0].sites[0] in [site for finding in found.roots for site in finding.sites]

"""Codes keep what was not recorded apart from what matched, and pooling is no coarser than it must be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detlab.schema import Mask, Verdict
from detlab.views.pooling import MATCH, UNTRACED, codes_of, factor_for


def test_untraced_is_not_a_match():
    codes = codes_of(np.zeros(2, np.uint8), np.array([0, Mask.UNTRACED], np.uint8))
    assert codes.tolist() == [MATCH, UNTRACED]


def test_what_is_set_aside_is_not_shown_as_a_divergence():
    assert codes_of(np.array([Verdict.ORIGIN], np.uint8), np.array([Mask.SET_ASIDE], np.uint8)).tolist() == [
        MATCH
    ]


def test_codes_leave_verdicts_and_masks_as_they_are():
    verdicts, masks = np.array([Verdict.ORIGIN], np.uint8), np.array([Mask.SET_ASIDE], np.uint8)
    codes_of(verdicts, masks)
    assert verdicts.tolist() == [Verdict.ORIGIN] and masks.tolist() == [Mask.SET_ASIDE]


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.integers(0, 31)), max_size=20))
def test_every_mask_shows_as_it_says(calls):
    verdicts, masks = np.array(calls, np.uint8).reshape(-1, 2).T
    expected = [
        UNTRACED if mask & Mask.UNTRACED else MATCH if mask & Mask.SET_ASIDE else 1 + verdict
        for verdict, mask in calls
    ]
    assert codes_of(verdicts, masks).tolist() == expected


@given(st.integers(0, 10**9), st.integers(1, 2000))
def test_the_least_pooling_that_fits_is_chosen(size, limit):
    factor = factor_for(size, limit)
    assert -(-size // factor) <= limit
    assert factor == 1 or -(-size // (factor - 1)) > limit

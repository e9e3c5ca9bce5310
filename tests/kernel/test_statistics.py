"""What a number of trials proves, and what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.kernel.statistics import percent, summarize, upper_bound_95


@pytest.mark.parametrize(("trials", "bound"), [(20, "13.9 %"), (60, "4.9 %"), (1000, "0.30 %")])
def test_bound_of_nothing_seen(trials: int, bound: str) -> None:
    assert percent(upper_bound_95(trials)) == bound


@given(st.integers(1, 100_000))
def test_every_trial_more_lowers_the_bound(trials: int) -> None:
    assert 0 < upper_bound_95(trials + 1) < upper_bound_95(trials) < 1


@given(st.integers(1, 10_000))
def test_rate_at_the_bound_shows_nothing_in_one_case_of_twenty(trials: int) -> None:
    assert (1 - upper_bound_95(trials)) ** trials == pytest.approx(0.05)


def test_no_trials_give_no_bound() -> None:
    with pytest.raises(ValueError, match="no trials"):
        upper_bound_95(0)


@given(st.lists(st.integers(0, 3), min_size=1))
def test_counts_do_not_depend_on_the_order_of_the_trials(results: list[int]) -> None:
    assert summarize("here", results) == summarize("here", sorted(results))


def test_bound_is_given_only_when_nothing_was_seen() -> None:
    same, mixed = summarize("here", "aaaa"), summarize("here", "aaab")
    assert (same.distinct, same.modal_share, same.upper_bound_95) == (1, 1.0, upper_bound_95(4))
    assert (mixed.distinct, mixed.modal_share, mixed.upper_bound_95) == (2, 0.75, None)

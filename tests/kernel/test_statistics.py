"""What a number of trials proves, and what it does not."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detlab.kernel.statistics import at_least, interval_95, percent, summarize, upper_bound_95


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


def exact_at_least(seen: int, trials: int, rate: Fraction) -> Fraction:
    """Sum the binomial probabilities of `seen` and more, in rational numbers."""
    return sum(
        (math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(seen, trials + 1)),
        Fraction(0),
    )


RATES = st.fractions(0, 1, max_denominator=1000)


@given(st.integers(0, 60), st.integers(1, 60), RATES)
def test_tail_is_the_sum_of_the_binomial_probabilities(seen: int, trials: int, rate: Fraction) -> None:
    exact = float(exact_at_least(seen, trials, rate))
    assert at_least(seen, trials, float(rate)) == pytest.approx(exact, rel=1e-9, abs=1e-300)


@given(st.integers(1, 60), st.data())
def test_ends_of_the_interval_cut_off_one_case_in_forty_each(trials: int, data: st.DataObject) -> None:
    seen = data.draw(st.integers(0, trials))
    lower, upper = map(Fraction, interval_95(seen, trials))
    if seen:
        assert float(exact_at_least(seen, trials, lower)) == pytest.approx(0.025, rel=1e-9)
    if seen < trials:
        assert float(1 - exact_at_least(seen + 1, trials, upper)) == pytest.approx(0.025, rel=1e-9)
    assert 0 <= lower <= Fraction(seen, trials) <= upper <= 1


@given(st.integers(1, 1_000_000), st.data())
@example(1_000_000, None)
def test_interval_of_the_opposite_is_its_mirror(trials: int, data: st.DataObject | None) -> None:
    seen = data.draw(st.integers(0, trials)) if data else trials // 2
    (lower, upper), (low, high) = interval_95(seen, trials), interval_95(trials - seen, trials)
    assert (1 - high, 1 - low) == pytest.approx((lower, upper), abs=1e-9)


@given(st.integers(1, 100_000))
def test_two_sided_interval_of_nothing_seen_ends_above_the_one_sided_bound(trials: int) -> None:
    lower, upper = interval_95(0, trials)
    assert lower == 0
    assert upper == pytest.approx(1 - 0.025 ** (1 / trials), rel=1e-6)
    assert upper > upper_bound_95(trials)


@pytest.mark.parametrize(
    ("seen", "trials", "ends"),
    [(1, 20, ("0.13 %", "24.9 %")), (5, 50, ("3.3 %", "21.8 %")), (3, 50, ("1.3 %", "16.5 %"))],
)
def test_interval_is_that_of_the_published_tables(seen: int, trials: int, ends: tuple[str, str]) -> None:
    assert tuple(map(percent, interval_95(seen, trials))) == ends


@pytest.mark.parametrize(("seen", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_what_is_no_rate_has_no_interval(seen: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no rate"):
        interval_95(seen, trials)


def test_interval_is_of_the_results_other_than_the_most_frequent() -> None:
    assert summarize("here", "aaab").interval_95 == interval_95(1, 4)
    assert summarize("here", "aaaa").interval_95 == interval_95(0, 4)


def test_condition_that_ended_before_its_first_trial_is_a_result() -> None:
    result = summarize("here", "", status="crashed", note="ended by signal 11")
    assert (result.trials, result.status, result.note) == (0, "crashed", "ended by signal 11")
    assert result.upper_bound_95 is None
    assert result.interval_95 is None


def test_condition_that_ended_early_counts_the_trials_before() -> None:
    result = summarize("here", "aa", status="timed out", note="after 2 s")
    assert (result.trials, result.upper_bound_95, result.status) == (2, upper_bound_95(2), "timed out")


def test_no_trials_without_a_reason_are_an_error() -> None:
    with pytest.raises(ValueError, match="no trials"):
        summarize("here", "")


@given(st.lists(st.integers(0, 3), min_size=1))
def test_counts_do_not_depend_on_the_order_of_the_trials(results: list[int]) -> None:
    assert summarize("here", results) == summarize("here", sorted(results))


def test_bound_is_given_only_when_nothing_was_seen() -> None:
    same, mixed = summarize("here", "aaaa"), summarize("here", "aaab")
    assert (same.distinct, same.modal_share, same.upper_bound_95) == (1, 1.0, upper_bound_95(4))
    assert (mixed.distinct, mixed.modal_share, mixed.upper_bound_95) == (2, 0.75, None)

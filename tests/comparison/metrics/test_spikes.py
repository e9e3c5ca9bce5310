"""Spikes: found where a curve leaves its band upwards, and nowhere on a curve that does not."""

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from detlab.comparison.metrics.spikes import find_spikes
from detlab.comparison.metrics.spikes.bands import WINDOW
from detlab.readers.metrics.frame import exact_metrics
from detlab.testing import make_metrics_run

NOISES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "student": lambda rng, n: rng.standard_t(3, size=n),
}


def decaying(n, noise="normal", size=0.02, seed=0, tail=2.0):
    """A loss that falls from 11 to its tail, with noise relative to its value."""
    rng = np.random.default_rng(seed)
    return (tail + 9 * np.exp(-np.arange(n) / (n / 20))) * (1 + size * NOISES[noise](rng, n))


def frame(values, name="lm loss", first=1, every=1):
    steps = first + every * np.arange(len(values))
    return exact_metrics(
        pl.DataFrame({"step": steps, "name": [name] * len(values), "value": np.asarray(values, float)})
    )


def quiet(n, level=2.0, size=0.01, seed=0):
    return level * (1 + size * np.random.default_rng(seed).normal(size=n))


def only(found):
    assert len(found) == 1, found
    return found[0]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.001, 0.05), st.floats(0.5, 4))
def test_a_falling_curve_with_gaussian_noise_has_no_spike(seed, size, tail):
    """Expectation: none in 40 curves of 1,000 records; none was seen in millions."""
    assert find_spikes(frame(decaying(1_000, size=size, seed=seed, tail=tail))) == []


@pytest.mark.parametrize(("noise", "most"), [("normal", 1), ("laplace", 12), ("student", 240)])
def test_heavy_tails_alarm_as_seldom_as_is_said(noise, most):
    """Expectation in 200,000 records: none, about 6 and about 130, which nobody can tell from spikes."""
    found = sum(len(find_spikes(frame(decaying(50_000, noise, seed=seed)))) for seed in range(4))
    assert found <= most


@pytest.mark.parametrize(("size", "num", "most"), [(0.05, 600, 0), (0.1, 200, 8)])
def test_a_short_history_is_uncertain_and_alarms_no_more_for_it(size, num, most):
    """Of 600 curves of 24 records with noise of 5 % none has one, of 200 with noise of 10 % about four."""
    assert sum(len(find_spikes(frame(quiet(24, size=size, seed=seed)))) for seed in range(num)) <= most


@pytest.mark.parametrize("seed", range(4))
def test_a_norm_with_log_normal_noise_has_no_spike(seed):
    rng = np.random.default_rng(seed)
    assert find_spikes(frame(np.exp(rng.normal(-1, 0.3, 20_000)), "grad norm")) == []


def test_the_steep_early_fall_of_a_warmup_is_no_spike():
    assert find_spikes(frame(np.linspace(12, 3, 100))) == []
    assert find_spikes(frame([11, 9, 8, 7, 6.5, 6.2, 6.1, 6.0])) == []


def test_a_fall_is_no_spike():
    values = quiet(200)
    values[120:130] = 0.3
    assert find_spikes(frame(values)) == []


def test_a_slow_rise_is_no_spike():
    assert find_spikes(frame(np.linspace(2, 8, 2_000) * quiet(2_000, 1.0))) == []
    assert find_spikes(frame(2 + 0.05 * np.arange(200) * quiet(200, 1.0, 1e-3))) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(100, 900), st.integers(1, 20), st.floats(1.5, 6), st.integers(0, 1000))
@example(100, 20, 1.5, 0)
def test_a_planted_spike_is_found_where_it_is_and_nowhere_else(at, length, height, seed):
    values = decaying(1_000, size=0.01, seed=seed)
    planted = max(values[at - WINDOW : at].max(), values[at]) * np.linspace(height, 1.5, length)
    values[at : at + length] = planted
    found = only(find_spikes(frame(values)))
    assert (found.onset, found.peak, found.recovery) == (at + 1, at + 1, at + length + 1)
    assert found.before == at
    assert found.height > 10


def test_a_spike_does_not_hide_itself():
    """A climb over twenty records is held against what was before all of it."""
    values = quiet(200)
    values[150:170] = np.linspace(2.4, 9, 20)
    found = only(find_spikes(frame(values)))
    assert (found.onset, found.peak, found.recovery) == (151, 170, 171)


def test_a_new_level_is_one_spike_that_does_not_recover():
    values = quiet(600)
    values[300:] += 3
    found = only(find_spikes(frame(values)))
    assert (found.onset, found.recovery) == (301, None)


def test_a_dip_into_the_band_is_no_recovery():
    values = quiet(300)
    values[200:212] = 4
    values[205] = 2
    found = only(find_spikes(frame(values)))
    assert (found.onset, found.recovery) == (201, 213)


def test_a_dip_is_no_recovery_however_long_after_the_onset():
    """Among them those at the end of the piece of the curve that is searched first."""
    for dip in range(246, 262, 3):
        values = quiet(700)
        values[200:600] = 4
        values[200 + dip : 203 + dip] = 2
        assert find_spikes(frame(values))[0].recovery == 601


def test_the_rise_is_the_unbroken_stretch_that_leads_to_the_peak():
    values = quiet(300)
    values[[200, 202, 203, 204]] = 3, 3, 5, 8
    found = only(find_spikes(frame(values)))
    assert (found.onset, found.rise, found.peak) == (201, 203, 205)


def test_a_spike_after_a_new_level_is_found_too():
    values = quiet(900)
    values[300:] += 3
    values[700:703] = 20
    assert [each.onset for each in find_spikes(frame(values))] == [301, 701]


def test_a_norm_is_judged_by_its_ratio():
    values = np.exp(np.random.default_rng(0).normal(-1.4, 0.1, 300))
    values[200:204] = 2.4, 16, 145, 960
    found = only(find_spikes(frame(values, "grad norm")))
    assert (found.onset, found.peak, found.recovery) == (201, 204, 205)
    assert found.top == pytest.approx(960)


@pytest.mark.parametrize("name", ["loss scale", "learning rate", "throughput per GPU (TFLOP/s/GPU)"])
def test_what_is_no_loss_and_no_norm_has_no_spikes(name):
    values = quiet(200)
    values[150] = 2**16
    assert find_spikes(frame(values, name)) == []


def test_a_zero_of_a_norm_is_no_value_that_it_rises_from():
    values = np.where(np.arange(200) % 3, 0.0, 0.3)
    values[7::9] = -1  # a placeholder: no norm is negative
    assert find_spikes(frame(values, "grad norm")) == []


def test_a_quiet_curve_is_not_alarmed_by_a_little():
    values = quiet(300, size=1e-6)
    values[200] *= 1.04
    assert find_spikes(frame(values)) == []


def test_printed_digits_are_no_noise_to_be_measured_against():
    """A loss printed with one decimal stands still for long: its MAD is zero and means nothing."""
    numbers = {step: "2.0" if step % 40 else "2.3" for step in range(1, 300)}
    assert find_spikes(make_metrics_run({"loss": numbers}).metrics) == []


class TestFewPoints:
    def test_a_jump_between_two_of_three_records_is_found(self):
        found = only(find_spikes(frame([6.444662, 11.42026, 7.155109], every=10, first=7000)))
        assert (found.before, found.onset, found.peak, found.recovery) == (7000, 7010, 7010, None)
        assert found.has_few_points

    def test_a_climb_begins_at_its_first_step_upwards(self):
        found = only(find_spikes(frame([6.37, 6.60, 7.31, 9.12, 10.24], every=10, first=6900)))
        assert (found.before, found.onset, found.peak) == (6900, 6910, 6940)

    def test_a_jump_after_an_early_fall_is_found(self):
        found = only(find_spikes(frame([11, 9, 7, 6, 9.5, 6.1])))
        assert (found.onset, found.peak, found.recovery) == (5, 5, 6)

    @pytest.mark.parametrize("seed", range(30))
    def test_few_noisy_records_have_no_spike(self, seed):
        assert find_spikes(frame(quiet(12, size=0.05, seed=seed))) == []
        assert find_spikes(frame(quiet(12, size=0.2, seed=seed), "grad norm")) == []

    @pytest.mark.parametrize("values", [[], [2.0], [2.0, 2.0]])
    def test_hardly_any_record_is_no_spike(self, values):
        assert find_spikes(frame(np.array(values, float))) == []

    def test_a_loss_around_zero_has_no_size_to_jump_from(self):
        assert find_spikes(frame([-0.01, 0.02, -0.02, 0.5])) == []


class TestRestarts:
    def run(self, first, second):
        return make_metrics_run([{"lm loss": first}, {"lm loss": second}]).metrics

    def test_the_first_record_after_a_restart_is_no_spike_by_itself(self):
        first = dict(enumerate(quiet(100), 1))
        second = dict(enumerate(quiet(100, seed=1), 81))
        assert find_spikes(self.run(first, second | {81: 4.0})) == []
        assert find_spikes(self.run(first, {101: 4.0})) == []

    def test_a_restart_that_stays_high_is_a_spike(self):
        first = dict(enumerate(quiet(100), 1))
        second = dict(enumerate(quiet(100, seed=1), 81))
        found = only(find_spikes(self.run(first, second | {81: 4.0, 82: 4.1, 83: 3.9})))
        assert (found.segment, found.onset, found.recovery) == (1, 81, 84)

    def test_what_was_rolled_back_is_no_history_of_what_follows(self):
        """The steps after the rollback are held against those before it, not against the spike."""
        values = quiet(120)
        values[90:] = 30
        again = dict(enumerate(quiet(60, seed=1), 81))
        found = only(find_spikes(self.run(dict(enumerate(values, 1)), again)))
        assert (found.segment, found.onset) == (0, 91)
        both = find_spikes(self.run(dict(enumerate(values, 1)), again | {91: 9.0, 92: 9.0}))
        assert [(each.segment, each.onset, each.recovery) for each in both] == [(0, 91, None), (1, 91, 93)]


def test_each_rank_has_a_curve_of_its_own():
    one, other = frame(quiet(200)), frame(quiet(200, 9.0))
    metrics = pl.concat(
        [one.with_columns(rank=pl.lit(0, pl.Int64)), other.with_columns(rank=pl.lit(1, pl.Int64))]
    )
    assert find_spikes(metrics) == []
    spiky = quiet(200)
    spiky[150:] = 9
    metrics = pl.concat(
        [other.with_columns(rank=pl.lit(1, pl.Int64)), frame(spiky).with_columns(rank=pl.lit(3, pl.Int64))]
    )
    assert only(find_spikes(metrics)).rank == 3


def test_a_window_of_long_runs_is_the_window_of_short_ones():
    """What is found does not depend on how much of a run is looked at, once the window is full."""
    values = quiet(70_000)
    values[68_000:68_004] = 7
    whole, part = find_spikes(frame(values)), find_spikes(frame(values[67_500:], first=67_501))
    assert whole == part
    assert only(whole).onset == 68_001

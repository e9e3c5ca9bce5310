"""Results of three arms: what the flag stopped is told apart from what the fill of fresh memory hid."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from detlab.kernel.verdict import ReplayClass
from detlab.kernel.verdict.experiment import ARMS, Result, read_experiment, result_of


def results(*digests, num_nan=0):
    return [Result(digest, num_nan) for digest in digests]


def test_what_varies_again_without_the_fill_is_a_read_of_memory_nobody_wrote():
    """Field report O19: stable under the flag, and no unordered reduction."""
    found = read_experiment(results(1, 2, 3), results(4, 4, 4, num_nan=7), results(5, 5, 6))
    assert found.outcome is ReplayClass.UNINITIALISED
    assert found.conclusion == "uninitialised read likely"
    assert "NaNs of filled memory" in found.why[0] and "variation returns" in found.why[1]
    assert [row[1:] for row in found.rows] == [(3, 3, 0), (3, 1, 3), (3, 2, 0)]
    assert "unordered" not in repr(found)


def test_what_stays_stable_without_the_fill_was_a_sum_without_an_order():
    found = read_experiment(results(1, 2, 3), results(4, 4, 4), results(4, 4, 4))
    assert found.outcome is ReplayClass.RACE
    assert found.conclusion.startswith("unordered reduction likely")


def test_what_varies_in_all_arms_is_not_ended():
    found = read_experiment(results(1, 2, 3), results(4, 5, 6), results(7, 8, 9))
    assert (found.outcome, found.conclusion) == (
        ReplayClass.RACE,
        "race, which deterministic algorithms do not end",
    )


def test_variation_that_returns_is_enough_without_a_nan():
    found = read_experiment(results(*range(30)), results(*[0] * 30), results(*range(30)))
    assert found.outcome is ReplayClass.UNINITIALISED


def test_nans_of_every_arm_are_no_nans_of_the_fill():
    found = read_experiment(
        results(1, 2, 3, num_nan=2), results(4, 4, 4, num_nan=2), results(4, 4, 4, num_nan=2)
    )
    assert found.outcome is ReplayClass.RACE


def test_equal_results_are_not_seen_to_vary():
    found = read_experiment(results(1, 1, 1), results(1, 1, 1), results(1, 1, 1))
    assert (found.outcome, found.conclusion) == (ReplayClass.NOT_SEEN, "not seen")


def test_no_results_are_invalid():
    assert read_experiment([], [], []).outcome is ReplayClass.INVALID


def test_every_arm_is_a_line():
    lines = repr(read_experiment(results(1, 2), results(3, 3, num_nan=1), results(4, 5))).splitlines()
    assert len(lines) == 4
    assert all(line.startswith(name) for line, name in zip(lines[1:], ARMS, strict=True))
    assert lines[2].endswith("1 distinct of 2 results, 2 with NaN")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([0.0], [-0.0], False),
        ([float("nan")], [float("nan")], True),
        (np.float32([1, 2]), np.float32([1, 2]), True),
        (np.float32([1, 2]), np.float64([1, 2]), False),
        (np.zeros((2, 3)), np.zeros((3, 2)), False),
        (torch.tensor([1.5]), np.float32([1.5]), True),
    ],
)
def test_results_are_equal_by_their_bytes(one, other, equal):
    assert (result_of(one).digest == result_of(other).digest) is equal


def test_nans_of_a_result_are_counted():
    assert result_of([[1.0, float("nan")], [float("nan"), 2.0]]).num_nan == 2
    assert result_of(np.array([1, 2])).num_nan == 0


def test_a_sum_over_memory_that_is_written_in_part_is_told_by_three_arms():
    """What stands in the rest of the memory is made here, as an allocator would."""

    def call(rest):
        memory = np.full(8, rest, np.float32)
        memory[:6] = 1
        return result_of(memory.sum())

    plain = [call(rest) for rest in (0.5, 3.0, 7.25)]
    filled = [call(np.nan) for _ in range(3)]
    unfilled = [call(rest) for rest in (2.0, 2.0, 9.0)]
    assert read_experiment(plain, filled, unfilled).conclusion == "uninitialised read likely"


def test_reading_an_experiment_needs_no_torch():
    code = "import sys, detlab.kernel.verdict.experiment; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

"""What hides a race, each told where it does and not where it does not, on kernels that race for real."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.captures import Capture
from detlab.kernel import ReplayClass, ReplayReport, capture, replay
from detlab.kernel.power.exact import exact_in_any_order

aten = torch.ops.aten
Captured = Callable[..., Capture]

ADDS = 1_000_000
ROWS = 1000


def added(captured: Captured, change: Callable[[torch.Tensor], torch.Tensor], adds: int = ADDS) -> Capture:
    """Capture float32 adds of changed normal values into a thousand rows."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, ROWS, (adds,), generator=generator)
    values = change(torch.randn(adds, generator=generator))
    return captured(aten.index_put_.default, torch.zeros(ROWS, dtype=values.dtype), [index], values, True)


def seen(capture: Capture, outcome: ReplayClass, **options: Any) -> ReplayReport:
    """Replay until an outcome is seen, a few times at most."""
    for _ in range(5):
        report = replay(capture, trials=20, **{"threads": 4, **options})
        if report.outcome is outcome:
            break
    assert report.outcome is outcome
    return report


def test_multiples_of_an_eighth_hide_the_race_of_values_that_are_not(captured: Captured) -> None:
    report = seen(added(captured, lambda values: (values * 8).round() / 8), ReplayClass.NOT_SEEN)
    (problem,) = report.problems
    assert problem.startswith("all float inputs are multiples of 2^-3 with sums that stay exact in any order")
    assert seen(added(captured, lambda values: values), ReplayClass.RACE).problems == ()


def test_whole_numbers_too_large_to_add_up_exactly_hide_nothing(captured: Captured) -> None:
    large = added(captured, lambda values: (values * 2**20).round())
    seen(large, ReplayClass.RACE)
    assert not any("whole numbers" in problem for problem in replay(large, trials=20, threads=1).problems)


def test_one_thread_hides_a_race_between_threads(racing: Capture) -> None:
    report = seen(racing, ReplayClass.NOT_SEEN, threads=1)
    assert [problem for problem in report.problems if "1 thread" in problem]
    assert seen(racing, ReplayClass.RACE).problems == ()


def test_size_below_which_torch_uses_one_thread_hides_the_race(captured: Captured) -> None:
    small = seen(added(captured, lambda values: values, adds=32_767), ReplayClass.NOT_SEEN)
    assert ["32,767 elements are added" in problem for problem in small.problems] == [True]
    large = added(captured, lambda values: values, adds=40_000)
    for problem in replay(large, trials=20, threads=4).problems:  # it may race or not
        assert "elements are added" not in problem


def test_few_trials_say_which_rate_they_miss(captured: Captured) -> None:
    index = torch.randint(0, ROWS, (ADDS,))
    capture = captured(aten.index_add_.default, torch.zeros(ROWS), 0, index, torch.randn(ADDS))
    (problem,) = replay(capture, trials=5, threads=4).problems
    assert problem == "5 trials miss a race that shows in 45.1 % of them once in twenty times; make more"
    assert replay(capture, trials=20, threads=4).problems == ()


def sum_into_rows(index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.zeros(ROWS).index_put_((index,), values, accumulate=True)


def sum_into_rows_of_half(index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return sum_into_rows(index, values)[:10].bfloat16()


def test_output_of_half_precision_rounds_the_float32_race_away(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, ROWS, (ADDS,), generator=generator)
    values = torch.randn(ADDS, generator=generator).abs()
    wide = capture(sum_into_rows, index, values, path=tmp_path / "wide")
    half = capture(sum_into_rows_of_half, index, values, path=tmp_path / "half")
    seen(wide, ReplayClass.RACE, call=sum_into_rows)
    (problem,) = seen(half, ReplayClass.NOT_SEEN, call=sum_into_rows_of_half).problems
    assert problem == (
        "outputs in bfloat16 keep one in 65,536 of the steps of float32: a race that moves each of the 10"
        " sums by one step would show once in 6,554 trials"
    )


def test_many_outputs_of_half_precision_hide_less(captured: Captured) -> None:
    few = captured(aten.mm.default, torch.randn(8, 8).half(), torch.randn(8, 8).half())
    assert any("would show once in 128 trials" in problem for problem in replay(few, trials=20).problems)
    many = captured(aten.mm.default, torch.randn(256, 8).half(), torch.randn(8, 256).half())
    assert not any("steps of float32" in problem for problem in replay(many, trials=20).problems)


def sums_are_exact(values: list[float]) -> bool:
    """Add float32 values in many orders and compare bits."""
    found = set()
    for seed in range(30):
        order = np.random.default_rng(seed).permutation(np.array(values)).tolist()
        total = torch.zeros(())
        for value in order:
            total = total + torch.tensor(value)
        found.add(float(total).hex())
    return len(found) == 1


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**18), 2**18), min_size=1, max_size=12), st.integers(-30, 30))
def test_values_called_exact_add_up_alike_in_every_order(multiples: list[int], exponent: int) -> None:
    values = torch.tensor(multiples, dtype=torch.float32) * 2.0**exponent
    unit = exact_in_any_order([values])
    if sum(map(abs, multiples)) < 2**24:
        assert unit is not None
        assert unit >= exponent or unit == 0
    if unit is not None:
        assert sums_are_exact(values.tolist())


@pytest.mark.parametrize("values", [[0.1, 0.7], [1.0, 2.0**-30], [math.nan], [math.inf, 1.0]], ids=str)
def test_values_that_may_round_are_not_called_exact(values: list[float]) -> None:
    assert exact_in_any_order([torch.tensor(values)]) is None


def test_most_frequent_place_bounds_the_sums() -> None:
    values = torch.full((1000,), 2.0**20 + 1)  # the sum of all is beyond 2^24, of ten it is not
    spread = torch.arange(1000) % 500
    assert exact_in_any_order([values], torch.zeros(1000, dtype=torch.int64)) is None
    assert exact_in_any_order([values], spread) == 0


def sum_all(values: torch.Tensor, unrelated: torch.Tensor) -> torch.Tensor:
    return values.sum() + unrelated.sum()


def test_integers_that_are_no_index_bound_no_sum(tmp_path: Path) -> None:
    values = torch.full((1000,), 2.0**20 + 1)
    call = capture(sum_all, values, torch.arange(1000), path=tmp_path / "call")
    problems = replay(call, trials=20, threads=4, call=sum_all).problems
    assert not any("whole numbers" in problem for problem in problems)


def test_products_count_as_fine_as_their_factors_together() -> None:
    halves = torch.tensor([[0.5, 1.5], [2.5, 0.5]])
    assert exact_in_any_order([halves, halves], multiplies=True) == -2
    wide = torch.full((2, 2), 2.0**13 + 1)
    assert exact_in_any_order([wide, wide], multiplies=True) is None
    assert exact_in_any_order([wide]) == 0


def test_end_of_a_long_tensor_counts_too() -> None:
    values = torch.ones(3_000_000, dtype=torch.float64)
    assert exact_in_any_order([values]) == 0
    values[-1] = 0.1
    assert exact_in_any_order([values]) is None

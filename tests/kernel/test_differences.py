"""How far two results lie apart, in elements, in ULP and in quanta."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.kernel.differences import OutputResult, OutputWatch, quantum_log2, ulp_distance

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def between(first: torch.Tensor, *others: torch.Tensor) -> OutputResult:
    watch = OutputWatch(first)
    for result in (first, *others):
        watch.add(result)
    return watch.result(0)


def next_up(tensor: torch.Tensor) -> torch.Tensor:
    integer = INTEGERS[tensor.element_size()]
    return (tensor.view(integer) + 1).view(tensor.dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_neighbours_are_one_ulp_apart(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, 2.0, 0.5]).to(dtype)
    assert ulp_distance(values, next_up(values)).tolist() == [1, 1, 1]


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_ulp_distance_adds_up_over_zero(a: float, b: float) -> None:
    x, y, zero = torch.tensor([a]), torch.tensor([b]), torch.zeros(1)
    apart, to_a, to_b = (int(ulp_distance(*pair)[0]) for pair in ((x, y), (x, zero), (zero, y)))
    assert apart == (to_a + to_b if math.copysign(1, a) != math.copysign(1, b) else abs(to_a - to_b))


def test_largest_float64_distance_does_not_overflow() -> None:
    big = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert int(ulp_distance(big, -big)[0]) == 2 * (0x7FEFFFFFFFFFFFFF)


def test_negative_zero_is_other_bits_at_no_distance() -> None:
    assert between(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])) == OutputResult(0, 2, 1, 0, None)


def test_nan_is_other_bits_at_no_distance() -> None:
    assert between(torch.tensor([math.nan, 1.0]), torch.tensor([2.0, 1.0])) == OutputResult(
        0, 2, 1, None, None
    )


def test_same_nan_is_the_same_bits() -> None:
    nan = torch.tensor([math.nan])
    assert between(nan, nan.clone()) == OutputResult(0, 1, 0, None, None)


def test_infinity_has_a_distance_and_no_quantum() -> None:
    result = between(torch.tensor([torch.finfo(torch.float32).max]), torch.tensor([math.inf]))
    assert (result.max_ulp, result.quantum_log2) == (1, None)


def test_elements_that_ever_differ_are_counted_once() -> None:
    zero = torch.zeros(4)
    result = between(zero, torch.tensor([1.0, 0, 0, 0]), torch.tensor([2.0, 0, 0, 4.0]))
    assert (result.distinct, result.elements_different) == (3, 2)


def test_complex_parts_count_as_one_element() -> None:
    first = torch.tensor([1 + 1j, 2 + 2j])
    second = torch.complex(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.25]))
    assert between(first, second) == OutputResult(0, 2, 1, 1 << 21, -2)


def test_wide_complex_elements_are_compared_whole() -> None:
    first = torch.zeros(3, dtype=torch.complex128)
    second = first.clone()
    second[1] = 0.5j
    assert between(first, second).elements_different == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8], ids=str)
def test_integers_have_no_ulp(dtype: torch.dtype) -> None:
    result = between(torch.tensor([0, 1]).to(dtype), torch.tensor([1, 1]).to(dtype))
    assert result == OutputResult(0, 2, 1, None, None)


def test_result_of_another_size_differs_everywhere() -> None:
    assert between(torch.zeros(3), torch.zeros(2)).elements_different == 3


def test_memory_layout_is_no_difference() -> None:
    matrix = torch.arange(6.0).view(2, 3)
    assert between(matrix, matrix.t().contiguous().t()).distinct == 1


@given(
    st.lists(st.integers(-(2**20), 2**20).filter(bool), min_size=1, max_size=9),
    st.integers(-200, 200),
    st.data(),
)
def test_planted_quantum_is_found(multiples: list[int], exponent: int, data: st.DataObject) -> None:
    odd = multiples[0] | 1  # one odd multiple: no larger power divides them all
    steps = np.array([odd, *multiples[1:]], dtype=np.float64)
    start = data.draw(st.integers(-(2**20), 2**20))
    a = np.ldexp(np.full(len(steps), float(start)), exponent)
    assert quantum_log2(a, a + np.ldexp(steps, exponent)) == (exponent, True)


def test_difference_that_needs_more_bits_has_no_quantum() -> None:
    assert quantum_log2(np.array([2.0**-80]), np.array([1.0])) == (None, False)


def test_overflowing_difference_has_no_quantum() -> None:
    big = np.finfo(np.float64).max
    assert quantum_log2(np.array([-big]), np.array([big])) == (None, False)


def test_one_inexact_difference_leaves_the_output_without_a_quantum() -> None:
    first = torch.tensor([1.0, 1.0], dtype=torch.float64)
    exact = torch.tensor([1.5, 1.0], dtype=torch.float64)
    inexact = torch.tensor([1.0, 2.0**-80], dtype=torch.float64)
    assert between(first, exact).quantum_log2 == -1
    assert between(first, exact, inexact).quantum_log2 is None

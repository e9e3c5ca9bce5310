"""How far two results lie apart, in elements, in ULP and in quanta."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.kernel.differences import OutputResult, OutputWatch, quantum_log2, ulp_distance
from detlab.kernel.differences.bits import count_nan
from detlab.kernel.differences.elements import MAX_ELEMENTS
from detlab.kernel.differences.words import describe, details, histogram_text

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


def five(result: OutputResult) -> tuple[object, ...]:
    """Give the five fields that every report has."""
    return (
        result.index,
        result.distinct,
        result.elements_different,
        result.max_ulp,
        result.quantum_log2,
    )


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
    result = between(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]))
    assert five(result) == (0, 2, 1, 0, None)
    assert (result.num_signed_zero, result.num_nan, result.ulp_histogram) == (1, 0, ())
    assert (result.max_abs, result.max_rel) == (None, None)


def test_nan_is_other_bits_at_no_distance() -> None:
    result = between(torch.tensor([math.nan, 1.0]), torch.tensor([2.0, 1.0]))
    assert five(result) == (0, 2, 1, None, None)
    assert (result.num_signed_zero, result.num_nan, result.ulp_histogram) == (0, 1, ())
    assert [(e.index, e.first, e.other, e.ulp) for e in result.elements] == [((0,), "nan", "2.0", None)]


def test_same_nan_is_the_same_bits() -> None:
    nan = torch.tensor([math.nan])
    result = between(nan, nan.clone())
    assert five(result) == (0, 1, 0, None, None)
    assert (result.num_nan, result.elements, result.pattern) == (0, (), "no element differs")


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
    assert five(between(first, second)) == (0, 2, 1, 1 << 21, -2)


def test_wide_complex_elements_are_compared_whole() -> None:
    first = torch.zeros(3, dtype=torch.complex128)
    second = first.clone()
    second[1] = torch.tensor(0.5j)
    assert between(first, second).elements_different == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8], ids=str)
def test_integers_have_no_ulp(dtype: torch.dtype) -> None:
    result = between(torch.tensor([0, 1]).to(dtype), torch.tensor([1, 1]).to(dtype))
    assert five(result) == (0, 2, 1, None, None)
    assert (result.max_abs, result.ulp_histogram, result.quantum_text) == (None, (), "")
    assert len(result.elements) == 1


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


def test_modal_share_is_that_of_this_output_alone() -> None:
    zero, one = torch.zeros(2), torch.ones(2)
    watch = OutputWatch(zero)
    for result in (zero, one, one, one):
        watch.add(result)
    assert (watch.result(0).modal_share, watch.result(0).num_elements) == (0.75, 2)


def test_histogram_counts_by_powers_of_two() -> None:
    first = torch.ones(6, dtype=torch.int32).mul(1_000_000)
    second = first + torch.tensor([0, 1, 2, 3, 4, 1023], dtype=torch.int32)
    result = between(first.view(torch.float32), second.view(torch.float32))
    assert result.ulp_histogram == (1, 2, 1, 0, 0, 0, 0, 0, 0, 1)
    assert (result.max_ulp, result.elements_different) == (1023, 5)


@given(st.lists(st.integers(0, 2**31 - 1).map(lambda i: i % 0x7F800000), min_size=2, max_size=20))
def test_histogram_holds_every_distance_once(bits: list[int]) -> None:
    first = torch.tensor(bits[:1] * (len(bits) - 1), dtype=torch.int32).view(torch.float32)
    second = torch.tensor(bits[1:], dtype=torch.int32).view(torch.float32)
    apart = [abs(b - bits[0]) for b in bits[1:] if b != bits[0]]
    counts = between(first, second).ulp_histogram
    assert list(counts) == [sum(d.bit_length() - 1 == i for d in apart) for i in range(len(counts))]
    assert sum(counts) == len(apart)


def test_largest_differences_are_of_finite_numbers_and_never_of_a_zero_first() -> None:
    first = torch.tensor([1.0, 0.0, 4.0, 1.0])
    second = torch.tensor([1.5, 8.0, 5.0, math.inf])
    result = between(first, second)
    assert (result.max_abs, result.max_rel) == (8.0, 0.5)


def test_nan_in_one_complex_part_counts_once() -> None:
    first = torch.tensor([complex(math.nan, 1.0)])
    second = torch.tensor([complex(math.nan, 2.0)])
    result = between(first, second)
    assert (result.num_nan, result.max_ulp, result.elements[0].ulp) == (0, 1 << 23, 1 << 23)


def test_elements_that_differ_most_come_first_and_are_few() -> None:
    first = torch.ones(1000)
    second = first.clone()
    second[10:200] += 2.0**-23
    second[500], second[700] = 2.0, math.nan
    elements = between(first, second).elements
    assert len(elements) == MAX_ELEMENTS
    assert [e.index for e in elements[:4]] == [(700,), (500,), (10,), (11,)]
    assert [e.ulp for e in elements[:3]] == [None, 1 << 23, 1]
    assert elements[2].other == "1.0000001"


def test_element_is_shown_with_the_result_farthest_from_the_first() -> None:
    results = [torch.tensor([[1.0, 0.0]]), torch.tensor([[4.0, 0.0]]), torch.tensor([[2.0, 0.0]])]
    (element,) = between(*results).elements
    assert (element.index, element.first, element.other) == ((0, 0), "1.0", "4.0")


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int64, torch.bool], ids=str)
def test_text_of_an_element_can_be_read_back(dtype: torch.dtype) -> None:
    first, second = torch.zeros(1).to(dtype), torch.ones(1).to(dtype)
    (element,) = between(first, second).elements
    number = {"True": "1"}.get(element.other, element.other)
    assert complex(number) == complex(second.to(torch.complex64)[0].item())


def test_packed_elements_are_shown_as_bytes() -> None:
    raw = torch.tensor([0x12, 0x34], dtype=torch.uint8)
    first, second = (tensor.view(torch.float4_e2m1fn_x2) for tensor in (raw, raw + 1))
    assert [(e.first, e.other) for e in between(first, second).elements] == [
        ("0x12", "0x13"),
        ("0x34", "0x35"),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16], ids=str)
def test_large_first_result_in_a_file_is_measured_alike(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(300, 7, generator=generator).to(dtype)
    others = [(first + 1).to(dtype), first.clone(), torch.where(first.real > 0, first, first * 3)]
    in_memory = between(first, *others)
    monkeypatch.setattr("detlab.kernel.differences.first._MAX_IN_MEMORY", 0)
    monkeypatch.setattr("detlab.kernel.differences.first._CHUNK_BYTES", 100)
    watch = OutputWatch(first)
    assert watch._first._file is not None
    assert between(first, *others) == in_memory


def test_first_result_stays_in_memory_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("detlab.kernel.differences.first._MAX_IN_MEMORY", 0)
    monkeypatch.setattr("detlab.kernel.differences.first.tempfile.TemporaryFile", refuse)
    assert between(torch.zeros(3), torch.ones(3)).elements_different == 3


def test_quantum_coarser_than_the_outputs_names_the_accumulator() -> None:
    first = torch.full((20,), 2.0**-20)
    second = first + 2.0**-37 * torch.arange(1, 21)  # float32 of that magnitude has a spacing of 2^-43
    text = between(first, second).quantum_text
    assert text == "2^-37: one unit in the last place of a float32 accumulator of magnitude 2^-14..2^-13"


def test_quantum_of_a_wide_output_names_the_narrow_accumulator_too() -> None:
    first = torch.ones(20, dtype=torch.float64)
    text = between(first, first + 2.0**-20 * torch.arange(1, 21)).quantum_text
    assert (
        "a float64 accumulator of magnitude 2^32..2^33 or a float32 accumulator of magnitude 2^3..2^4" in text
    )


def test_quantum_no_coarser_than_the_spacing_says_nothing_of_the_accumulator() -> None:
    first = torch.ones(20)
    text = between(first, first + 2.0**-23 * torch.arange(1, 21)).quantum_text
    assert "no coarser than the spacing of the float32 numbers that differ" in text
    assert text.endswith("so it says nothing of what was added up")


def test_quantum_of_few_differences_is_doubted() -> None:
    first = torch.full((3,), 2.0**-20)
    assert between(first, first + 2.0**-37).quantum_text.endswith(
        "from only 3 differences, the true one may be finer"
    )


def test_line_of_an_output_names_what_differs_and_how_far() -> None:
    first = torch.ones(100, 8)
    second = first.clone()
    second[-10:] += 2.0**-20
    assert describe(between(first, second)) == (
        "2 distinct (most frequent 50.0 %); the last 10 of 100 rows; up to 8 ULP;"
        " always by a multiple of 2^-20"
    )
    assert describe(between(first)) == "1 distinct"
    zeros = torch.zeros(2)
    assert "2 times 0.0 and -0.0" in describe(between(zeros, -zeros))
    assert "2 times a NaN" in describe(between(zeros, zeros / 0))


def test_details_spread_the_distances() -> None:
    first = torch.ones(4)
    second = first + 2.0**-23 * torch.tensor([1, 1, 2, 1023])
    assert details(between(first, second))[:2] == [
        "in ULP: 1 50.0 %, 2..3 25.0 %, 512..1,023 25.0 %",
        "largest difference 0.000122, as a share of the first 0.000122",
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any))
def test_histogram_in_words_keeps_to_one_line(counts: list[int]) -> None:
    assert len(histogram_text(tuple(counts))) < 220


def test_first_result_need_not_be_added_to_be_measured_against() -> None:
    watch = OutputWatch(torch.zeros(4))
    watch.add(torch.tensor([0.0, 1.0, 0.0, 0.0]))
    assert (watch.result(0).distinct, watch.result(0).elements_different) == (1, 1)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int64], ids=str)
def test_nans_are_counted_piece_by_piece(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    values = torch.tensor([math.nan, 1.0, 2.0, math.nan, math.nan])
    has_nan = dtype.is_floating_point or dtype.is_complex
    values = values.to(dtype) if has_nan else values.nan_to_num().to(dtype)
    monkeypatch.setattr("detlab.kernel.differences.bits._PIECE", 2)
    assert count_nan(values) == (3 if has_nan else 0)


def test_numbers_of_very_many_differences_are_of_the_first_results_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("detlab.kernel.differences._MAX_PAIRS", 3)
    last = torch.tensor([9.0, 9.0, 9.0, 9.0])
    result = between(torch.zeros(4), torch.tensor([1.0, 1.0, 1.0, 0.0]), last)
    assert (result.distinct, result.elements_different, result.num_measured) == (3, 4, 1)
    assert result.max_abs == 1.0
    assert details(result)[-1] == "these numbers are of 1 of the 2 other results"
    assert between(torch.zeros(4), last).num_measured is None


def test_histogram_counts_distances_that_float64_would_round_up() -> None:
    first = torch.zeros(1, dtype=torch.float64)
    second = torch.tensor([2**62 - 1]).view(torch.float64)
    assert len(between(first, second).ulp_histogram) == 62

"""Numbers as text: floats written to their last bit are told from rounded ones."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.readers.metrics.numbers import native_width, written_metrics

MANY = 60

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([1e-6, 0.003, 0.1, 1.0, 2.2, 8.0, 10.6, 145.0, 14_577.0])


def curve(seed: int, size: float, number: int = MANY) -> np.ndarray:
    """Numbers of about one size, as a metric has them."""
    return size * np.random.default_rng(seed).uniform(0.7, 1.3, number)


def width(texts: list[str]) -> int | None:
    return native_width(pl.Series(texts, dtype=pl.String))


@given(seeds, sizes)
def test_64_bit_floats_written_shortest_are_recognised(seed: int, size: float) -> None:
    assert width([repr(float(value)) for value in curve(seed, size)]) == 64


@given(seeds, sizes)
def test_32_bit_floats_written_as_64_bit_ones_are_recognised(seed: int, size: float) -> None:
    assert width([repr(float(np.float32(value))) for value in curve(seed, size)]) == 32


@given(seeds, sizes)
def test_32_bit_floats_written_shortest_are_never_taken_for_64_bit_ones(seed: int, size: float) -> None:
    assert width([str(np.float32(value)) for value in curve(seed, size)]) != 64


@given(seeds)
def test_32_bit_floats_written_shortest_are_recognised_over_a_decade(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(1, 10, 400).astype(np.float32)
    assert width([str(value) for value in values]) == 32


@given(seeds, sizes, st.integers(4, 7), st.integers(1, 200))
def test_numbers_rounded_to_decimals_are_never_exact(
    seed: int, size: float, places: int, number: int
) -> None:
    values = curve(seed, size, number)
    assert width([repr(round(float(value), places)) for value in values]) in (0, None)
    assert width([f"{value:.{places}f}" for value in values]) in (0, None)


@given(seeds, sizes, st.integers(4, 7), st.integers(1, 200))
def test_32_bit_floats_rounded_to_decimals_are_exact_only_where_these_show_every_bit(
    seed: int, size: float, places: int, number: int
) -> None:
    values = curve(seed, size, number).astype(np.float32)
    texts = [repr(round(float(value), places)) for value in values]
    rows = written_metrics(pl.DataFrame({"step": range(number), "name": "loss", "text": texts}))
    assert set(rows["width"]) <= {0, 32}
    for known, bits in zip(rows["bits"], values.view(np.uint32).tolist(), strict=True):
        assert known in (None, bits)


@given(seeds, sizes, st.integers(3, 15))
def test_numbers_rounded_to_digits_are_never_exact(seed: int, size: float, digits: int) -> None:
    values = curve(seed, size)
    assert width([f"{value:.{digits}g}" for value in values]) in (0, None)
    few = min(digits, 7)  # more may be all that a 32-bit float needs
    assert width([f"{np.float32(value):.{few}g}" for value in values]) in (0, None)


@given(seeds, sizes)
def test_17_digits_are_exact(seed: int, size: float) -> None:
    assert width([f"{value:.17g}" for value in curve(seed, size)]) == 64
    assert width([f"{value:.18e}" for value in curve(seed, size)]) == 64


@given(seeds, sizes)
def test_the_bits_are_those_that_were_written(seed: int, size: float) -> None:
    values = curve(seed, size)
    for texts, bits in (
        ([repr(float(value)) for value in values], values.view(np.uint64)),
        ([repr(float(np.float32(value))) for value in values], values.astype(np.float32).view(np.uint32)),
    ):
        fields = pl.DataFrame({"step": range(MANY), "name": "loss", "text": texts})
        assert written_metrics(fields)["bits"].to_list() == bits.tolist()


def test_whole_numbers_show_nothing() -> None:
    assert width(["2098.0", "2869.0", "0.0", "-7", "nan", "inf"]) is None


def test_a_short_number_among_long_ones_is_as_exact_as_they_are() -> None:
    assert width(["0.5", "8.296810150146484", "2.0"]) == 32
    assert width(["0.5", "0.1", "0.30000000000000004"]) == 64


def test_a_constant_is_one_number_however_often_it_is_written() -> None:
    assert width(["0.0003"] * 1000) == 0


def test_a_padded_number_is_rounded() -> None:
    assert width([f"{value:.10f}0" for value in np.float32(curve(1, 2.2))]) == 0


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity"])
def test_a_text_for_no_number_has_no_width_in_an_exact_metric(text: str) -> None:
    fields = pl.DataFrame({"step": [1, 2], "name": "loss", "text": ["8.296810150146484", text]})
    rows = written_metrics(fields)
    assert rows["width"].to_list() == [32, 0]
    assert rows["state"][1] == ("nan" if text.lower() == "nan" else "inf")


def test_metrics_of_one_file_keep_their_order_and_have_each_its_own_width() -> None:
    fields = pl.DataFrame(
        [(1, "loss", "2.1234"), (1, "norm", "8.296810150146484"), (1, "rate", "0.30000000000000004")] * 2,
        ["step", "name", "text"],
        orient="row",
    )
    rows = written_metrics(fields)
    assert rows["name"].cast(pl.String).to_list() == ["loss", "norm", "rate"] * 2
    assert rows["width"].to_list() == [0, 32, 64] * 2
    assert rows["resolution"].to_list() == [1e-4, None, None] * 2


def resolutions(texts: list[str]) -> list[float | None]:
    fields = pl.DataFrame({"step": range(len(texts)), "name": "loss", "text": texts})
    return written_metrics(fields)["resolution"].to_list()


def test_trailing_zeros_that_were_dropped_belong_to_the_precision() -> None:
    assert resolutions(["2.1234", "2.5", "0.0", "3", "nan"]) == [1e-4, 1e-4, 1e-4, 1e-4, None]


def test_a_fixed_number_of_digits_is_another_precision_at_another_size() -> None:
    assert resolutions(["1234.5", "0.00012345", "1.2"]) == [1e-1, 1e-8, 1e-4]


def test_whole_numbers_without_a_point_are_exact() -> None:
    assert resolutions(["12", "1000"]) == [None, None]


@given(seeds, sizes, st.integers(1, 7))
def test_numbers_rounded_to_decimals_have_that_resolution(seed: int, size: float, places: int) -> None:
    texts = [repr(round(float(value), places)) for value in [*curve(seed, size), size + 10.0**-places]]
    assert set(resolutions(texts)) == {float(f"1e-{places}")}

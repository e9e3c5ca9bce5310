"""Rows of foreign records: sums without their order, sizes by dtype, and formats that are told apart."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import load_run
from detlab.errors import TraceError
from detlab.readers.rows import num_bytes, order_free
from detlab.schema import TensorMeta


def test_no_order_of_additions_shows_in_a_sum():
    generator = np.random.default_rng(0)
    values = generator.standard_normal(1000)
    bound = float(np.abs(values).max()) * len(values)
    sums = {float(sum(generator.permutation(values).tolist())) for _ in range(50)}
    assert len(sums) > 1
    assert len({order_free(each, bound) for each in sums}) == 1


def test_one_changed_element_shows_in_a_sum():
    values = [0.5] * 1_000_000
    assert order_free(sum(values), 1e6) != order_free(sum(values) + 0.5, 1e6)


@given(st.floats(), st.floats(min_value=0))
def test_any_sum_and_bound_can_be_written(value, scale):
    assert order_free(value, scale) == order_free(value, scale)


@pytest.mark.parametrize(("value", "scale", "text"), [
    (math.nan, 1.0, "nan"), (math.inf, 1.0, "inf"), (-math.inf, 1.0, "-inf"),
    (5.0, math.inf, ""), (math.nan, math.nan, ""), (0.0, 0.0, "0"), (-0.0, 0.0, "0"),
])  # fmt: skip
def test_sums_that_are_not_finite_have_a_text_of_their_own(value, scale, text):
    assert order_free(value, scale) == text


@pytest.mark.parametrize(("dtype", "shape", "size"), [
    ("float32", (2, 3), 24), ("bfloat16", (2, 3), 12), ("bool", (5,), 5), ("int64", (), 8),
    ("complex64", (2,), 16), ("float8_e4m3fn", (3,), 3), ("uint4", (3,), 2), ("", (7,), 0),
    ("float16", (0,), 0),
])  # fmt: skip
def test_the_size_of_a_tensor_follows_from_its_dtype(dtype, shape, size):
    assert num_bytes(TensorMeta(dtype, shape, ())) == size


def test_a_folder_of_no_known_format_is_refused_with_the_list_of_formats(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(TraceError, match=r"\*\.fp.*rank_\*\.jsonl"):
        load_run(tmp_path)

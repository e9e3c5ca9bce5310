"""Numbers that a page carries: whatever was written is read back, bit for bit."""

import zlib
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from detlab.views import encoded
from detlab.views.encoded import encode_numbers, encode_plane, varints

small_planes = arrays(
    np.uint8, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=40), elements=st.integers(0, 8)
)
any_planes = arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.integers(0, 255))


def read_varints(content, count=None):
    """Read some varints; give them and what stands behind them."""
    numbers, at = [], 0
    while at < len(content) and (count is None or len(numbers) < count):
        number = shift = 0
        while True:
            number |= (content[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if content[at - 1] < 128:
                break
        numbers.append(number)
    return numbers, content[at:]


def read_plane(content, shape):
    """Read a plane as the browser does, only slower."""
    (kind, count), rest = read_varints(zlib.decompress(content), 2)
    skips, rest = read_varints(rest, count)
    lengths, values = read_varints(rest, count)
    flat, at = np.zeros((shape[0] + 1 - kind) * shape[1], np.uint8), 0
    for skip, length, value in zip(skips, lengths, values, strict=True):
        flat[at + skip : at + skip + length] = value
        at += skip + length
    plane = flat.reshape(shape[0] + 1 - kind, shape[1])
    for row in range(1, len(plane)):
        plane[row] ^= plane[row - 1 if kind else 0]
    return plane[1 - kind :]


@given(small_planes)
def test_a_map_is_read_back_as_it_was(plane):
    assert (read_plane(encode_plane(plane), plane.shape) == plane).all()


@given(any_planes)
def test_any_bytes_are_read_back_whichever_row_they_are_counted_from(plane):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoded, "_FEW_RUNS", -1)
        assert (read_plane(encode_plane(plane), plane.shape) == plane).all()


def test_cells_that_differ_alone_are_written_once():
    plane = np.ones((2_000, 4_000), np.uint8)
    plane[np.arange(0, 2_000, 3), np.arange(0, 4_000, 6)] = 3
    content = encode_plane(np.tile(plane, (4, 4)))
    (kind, count), _ = read_varints(zlib.decompress(content), 2)
    assert (kind, count) == (0, 1 + 16 * 667)


def test_a_map_without_any_order_is_not_written(monkeypatch):
    monkeypatch.setattr(encoded, "MAX_RUNS", 10)
    plane = np.zeros((1, 40), np.uint8)
    plane[0, ::4] = 1
    assert encode_plane(plane) is not None
    plane[0, 2] = 1
    assert encode_plane(plane) is None


def test_ranks_that_differ_alike_take_next_to_nothing():
    plane = np.ones((2_432, 2_000), np.uint8)
    plane[1_000:, 700:] = 3
    plane[1_000, 700] = 8
    assert len(encode_plane(plane)) < 60


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_varints_are_read_back(numbers):
    assert read_varints(varints(numbers)) == (numbers, b"")


@given(arrays(np.int64, array_shapes(max_dims=2, max_side=9), elements=st.integers(-(2**40), 2**40)))
def test_whole_numbers_of_any_sign_are_read_back(numbers):
    steps, _ = read_varints(zlib.decompress(encode_numbers(numbers)))
    found = list(accumulate(-(each + 1) // 2 if each % 2 else each // 2 for each in steps))
    assert found == numbers.ravel().tolist()

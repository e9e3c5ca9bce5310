"""Which elements differ, in words: what was planted is named, and chance is never given a shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.captures import Capture
from detlab.kernel import replay
from detlab.kernel.differences import OutputResult
from detlab.kernel.patterns import MIN_GAIN_BITS, Mask, log2_choose, pattern


def planted(shape: tuple[int, ...], *place: Any, share: float = 1.0) -> Mask:
    """Give a mask in which a share of the elements of one place differ."""
    mask = np.zeros(shape, dtype=bool)
    mask[place] = np.random.default_rng(7).random(mask[place].shape) < share
    return mask


def tiled(coarse: Mask, side: int, share: float = 1.0) -> Mask:
    mask = np.kron(coarse, np.ones((side, side), dtype=bool)).astype(bool)
    chosen: Mask = mask & (np.random.default_rng(7).random(mask.shape) < share)
    return chosen


EVERY = slice(None)


@pytest.mark.parametrize(
    ("mask", "kind", "text"),
    [
        (planted((1000, 64), slice(976, None)), "end", "the last 24 of 1,000 rows"),
        (planted((1000, 64), slice(3)), "range", "the first 3 of 1,000 rows"),
        (planted((1000, 64), [3, 99, 500]), "slices", "rows 3, 99, 500 of 1,000"),
        (planted((1000, 64), 5), "slices", "row 5 of 1,000"),
        (planted((1024, 256), EVERY, slice(64, 128)), "range", "columns 64..127 of 256"),
        (
            planted((1024, 256), EVERY, slice(None, None, 16)),
            "period",
            "every 16th of 256 columns from 0 to 240",
        ),
        (
            np.tile(np.arange(50) < 7, 100),
            "period",
            "blocks of 7 of 5,000 elements, every 50 from 0 to 4,956",
        ),
        (
            planted((64, 64), slice(8, 16), slice(32, 40)),
            "range",
            "rows 8..15 of 64 x columns 32..39 of 64",
        ),
        (planted((4, 128, 64), EVERY, slice(100, None)), "end", "the last 28 of 128 slices on axis 1"),
        (planted((100_000,), slice(5000, 7000)), "range", "elements 5,000..6,999 of 100,000"),
        (planted((100_000,), slice(99_000, None)), "end", "the last 1,000 of 100,000 elements"),
        (
            planted((100_000,), slice(3, None, 16)),
            "period",
            "every 16th of 100,000 elements from 3 to 99,987",
        ),
        (
            np.tile(np.arange(512) < 128, 100),
            "tiles",
            "100 of 400 blocks of 128 elements (every 4th of 400 blocks from 0 to 396)",
        ),
    ],
    ids=str,
)
def test_planted_place_is_named(mask: Mask, kind: str, text: str) -> None:
    found = pattern(mask)
    assert (found.kind, found.text, found.share) == (kind, text, 1.0)
    assert found.gain_bits > MIN_GAIN_BITS


@pytest.mark.parametrize(
    ("mask", "start"),
    [
        (planted((1000, 64), slice(976, None), share=0.8), "the last 24 of 1,000 rows, 80 "),
        (planted((1024, 256), EVERY, slice(64, 128), share=0.9), "columns 64..127 of 256, 90 % of their"),
        (planted((1024, 64), slice(None, None, 32), share=0.5), "every 32nd of 1,024 rows from 0 to 992, "),
    ],
    ids=str,
)
def test_place_of_which_only_a_part_differs_says_how_much_of_it(mask: Mask, start: str) -> None:
    assert pattern(mask).text.startswith(start)
    assert pattern(mask).text.endswith("% of their elements")


def test_tiles_are_named_by_their_size_and_number() -> None:
    coarse = np.random.default_rng(3).random((8, 8)) < 0.4
    found = pattern(tiled(coarse, 128, share=0.6))
    assert found.kind == "tiles"
    assert found.text == f"{coarse.sum()} of 64 tiles of 128 x 128, 60 % of their elements"


def test_period_of_tiles_is_named() -> None:
    coarse = np.zeros((16, 16), dtype=bool)
    coarse[::2, ::4] = True
    found = pattern(tiled(coarse, 64, share=0.7))
    assert found.text == (
        "32 of 256 tiles of 64 x 64 (every 2nd of 16 rows of tiles from 0 to 14"
        " x every 4th of 16 columns of tiles from 0 to 12), 70 % of their elements"
    )


def test_blocks_of_one_axis_are_named_by_their_length() -> None:
    chosen = np.random.default_rng(3).random(1000) < 0.05
    found = pattern(np.repeat(chosen, 32))
    assert (found.kind, found.text) == ("tiles", f"{chosen.sum()} of 1,000 blocks of 32 elements")


def test_stride_that_leaves_some_out_says_how_many() -> None:
    found = pattern(planted((100_000,), slice(0, None, 8), share=0.5))
    assert found.kind == "period"
    assert "of those 12," in found.text


def test_all_and_none_are_said_plainly() -> None:
    assert pattern(np.ones((3, 4), dtype=bool)).text == "all 12 elements"
    assert pattern(np.zeros((3, 4), dtype=bool)).text == "no element differs"
    assert pattern(np.ones((), dtype=bool)).text == "the only element"
    assert pattern(np.zeros((0, 4), dtype=bool)).kind == "none"


def test_few_elements_are_listed_by_their_index() -> None:
    mask = np.zeros((9, 9), dtype=bool)
    mask[3, 7] = mask[8, 0] = True
    assert pattern(mask).text == "elements [3, 7], [8, 0]"
    assert pattern(planted((9,), 4)).text == "element [4]"


def test_share_is_never_rounded_to_none_or_all_of_it() -> None:
    mask = np.zeros(1_000_000, dtype=bool)
    mask[np.random.default_rng(1).permutation(mask.size)[:9]] = True
    assert pattern(mask).text == "scattered, 0.1 % of 1,000,000 elements"
    assert pattern(~mask).text == "scattered, 99.9 % of 1,000,000 elements"


SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)


@given(SHAPES, st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_elements_thrown_at_random_have_no_pattern(shape: tuple[int, ...], seed: int, share: float) -> None:
    mask = np.random.default_rng(seed).random(shape) < share
    assert pattern(mask).kind in {"none", "all", "scattered"}


@given(SHAPES, st.integers(0, 2**32 - 1), st.data())
def test_share_counts_the_elements_that_differ(
    shape: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    mask = np.zeros(shape, dtype=bool)
    chosen = np.random.default_rng(seed).random(shape[axis]) < 0.3
    np.moveaxis(mask, axis, 0)[chosen] = True
    found = pattern(mask)
    assert 0.0 <= found.share <= 1.0
    if found.kind not in {"none", "all", "scattered"}:
        assert found.share == 1.0


@given(st.integers(0, 300), st.integers(0, 300))
def test_number_of_choices_is_that_of_the_binomial(n: int, k: int) -> None:
    exact = math.comb(n, k)
    assert log2_choose(n, k) == pytest.approx(math.log2(exact) if exact else math.inf, abs=1e-6)


@pytest.mark.parametrize("transform", [np.flip, lambda mask: mask[:, ::-1], lambda mask: mask[::-1]], ids=str)
def test_mirrored_place_saves_as_much(transform: Callable[[Mask], Mask]) -> None:
    mask = planted((64, 64), slice(8, 16), slice(32, 40))
    assert pattern(transform(mask)).gain_bits == pytest.approx(pattern(mask).gain_bits)


def raced(capture: Capture, is_seen: Callable[[OutputResult], bool]) -> OutputResult:
    """Replay a call that races until its output shows something, a few times at most."""
    for _ in range(5):
        (output,) = replay(capture, trials=20, threads=4).outputs
        if is_seen(output):
            break
    return output


def test_rows_that_a_real_race_adds_into_are_named(captured: Callable[..., Capture]) -> None:
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(0, 16, (20_000,), generator=generator)
    values = torch.randn(20_000, 64, generator=generator)
    call = captured(torch.ops.aten.index_put_.default, torch.zeros(64, 64), [index], values, True)
    output = raced(call, lambda output: output.elements_different > 900)
    assert output.pattern_kind == "range"
    assert output.pattern.startswith("the first 16 of 64 rows")


def test_quantum_of_a_real_race_names_an_accumulator_larger_than_the_outputs(
    captured: Callable[..., Capture],
) -> None:
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(0, 1000, (500_000,), generator=generator)
    whole = (torch.randn(500_000, generator=generator).abs() * 2**20).round()
    values = torch.cat([whole, -whole])  # every sum comes down to what rounding left of it
    call = captured(torch.ops.aten.index_put_.default, torch.zeros(1000), [index.repeat(2)], values, True)
    output = raced(call, lambda output: output.quantum_log2 is not None)
    assert output.quantum_log2 is not None
    assert output.quantum_log2 >= 0  # no partial sum of whole numbers is finer
    assert "one unit in the last place of a float32 accumulator of magnitude 2^" in output.quantum_text

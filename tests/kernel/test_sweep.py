"""The same call at reduced sizes: what was cut, what was seen at each size, and what that proves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from detlab.captures import Capture
from detlab.errors import CaptureError, InputError
from detlab.kernel.ops import find_op
from detlab.kernel.statistics import upper_bound_95
from detlab.kernel.sweep import SizeSweep, replay_sizes
from detlab.kernel.sweep.cut import cut_capture, find_cut

aten = torch.ops.aten
Captured = Callable[..., Capture]


@pytest.fixture(scope="module")
def swept(racing: Capture) -> SizeSweep:
    """Give the sweep of a kernel that races from 32,768 adds on: below that torch runs it on one thread."""
    for _ in range(5):
        sweep = replay_sizes(racing, sizes=[1 / 50, 1], trials=20, threads=4)
        if sweep.sizes[-1].mismatches:
            break
    return sweep


def test_race_at_full_size_stands_beside_none_at_reduced_size(swept: SizeSweep) -> None:
    small, full = swept.sizes
    assert (small.rows, full.rows, swept.rows) == (20_000, 1_000_000, 1_000_000)
    assert (small.mismatches, small.distinct, small.upper_bound_95) == (0, 1, upper_bound_95(20))
    assert full.mismatches > 0
    assert full.upper_bound_95 is None
    assert full.interval_95 is not None
    assert full.interval_95[0] > 0


def test_table_shows_every_size_with_what_it_proves(swept: SizeSweep) -> None:
    lines = repr(swept).splitlines()
    assert lines[0] == "aten.index_put_.default with the first rows of indices, values (4 threads)"
    assert "   20,000 of 1,000,000 rows" in lines[1]
    assert "0/20  a rate above 13.9 % is excluded at 95 %" in lines[1]
    assert "/20" in lines[2]
    assert "the rate of others lies between" in lines[2]
    assert "deterministic" not in repr(swept)


def test_frame_has_one_row_per_size(swept: SizeSweep) -> None:
    frame = swept.frame
    assert frame["rows"].to_list() == [20_000, 1_000_000]
    assert frame["share"].to_list() == [0.02, 1.0]
    assert frame["mismatches"].to_list()[0] == 0
    assert frame["upper_bound_95"].to_list()[1] is None
    assert frame["interval_low"].to_list()[1] > 0
    assert replace(swept, sizes=()).frame.schema == frame.schema


def test_sweep_is_plain_json(swept: SizeSweep) -> None:
    body = json.loads(json.dumps(swept.to_json(), allow_nan=False))
    assert (body["cut"], [size["rows"] for size in body["sizes"]]) == (
        ["indices", "values"],
        [20_000, 1_000_000],
    )


def cut_of(capture: Capture) -> tuple[tuple[str, ...], int]:
    found = find_cut(capture, find_op(capture), "cpu", 0.25)
    return found.names, found.rows


def test_what_indices_point_into_stays_whole(captured: Captured) -> None:
    index = torch.arange(64)
    call = captured(aten.index_add_.default, torch.zeros(64, 3), 0, index, torch.ones(64, 3))
    assert cut_of(call) == (("index", "source"), 64)


def test_batch_is_cut_in_every_tensor_that_has_it(captured: Captured) -> None:
    x, weight = torch.randn(32, 8), torch.ones(8)
    _, mean, rstd = aten.native_layer_norm.default(x, [8], weight, weight, 1e-5)
    call = captured(
        aten.native_layer_norm_backward.default,
        torch.randn(32, 8),
        x,
        [8],
        mean,
        rstd,
        weight,
        weight,
        [True] * 3,
    )
    assert cut_of(call) == (("grad_out", "input", "mean", "rstd"), 32)


def test_square_matrices_are_cut_where_the_product_still_fits(captured: Captured) -> None:
    call = captured(aten.mm.default, torch.randn(16, 16), torch.randn(16, 16))
    assert cut_of(call) == (("self",), 16)


def test_tensors_of_a_list_are_cut_together(captured: Captured) -> None:
    lists = [torch.ones(8, 2), torch.ones(8)], [torch.ones(8, 2), torch.ones(8)]
    assert cut_of(captured(aten._foreach_add_.List, *lists)) == (("self", "other"), 8)


def test_cut_call_is_the_call_of_the_first_rows(captured: Captured) -> None:
    x, y = torch.randn(16, 5).t().contiguous().t(), torch.randn(16, 5)
    capture = captured(aten.add.Tensor, x, y)
    func = find_op(capture)
    cut = find_cut(capture, func, "cpu", 0.25)
    expected = captured(aten.add.Tensor, x[:4], y[:4])
    assert cut_capture(capture, cut, 4, func, "cpu").input_digests == expected.input_digests
    assert cut_capture(capture, cut, 16, func, "cpu") is capture


@pytest.mark.parametrize(
    ("func", "arguments", "finding"),
    [
        (aten.expand_copy.default, (torch.ones(4, 1), [4, 3]), r"gets sizes as numbers \(size\)"),
        (
            aten._embedding_bag.default,
            (torch.ones(8, 2), torch.arange(8), torch.tensor([0, 4])),
            "takes offsets that point into its rows",
        ),
        (aten.neg.default, (torch.ones(()),), "no tensor that it could do with fewer rows of"),
        (
            aten.index_add.default,
            (torch.zeros(2, 8), 1, torch.arange(8), torch.ones(2, 8)),
            "with fewer rows: ",
        ),
    ],
    ids=str,
)
def test_call_that_cannot_do_with_fewer_rows_is_refused(
    captured: Captured, func: torch._ops.OpOverload, arguments: tuple[object, ...], finding: str
) -> None:
    with pytest.raises(CaptureError, match=finding):
        replay_sizes(captured(func, *arguments), trials=2)


@pytest.mark.parametrize("sizes", [[], [0.0], [2.0], [-1.0]], ids=str)
def test_size_that_is_no_share_is_refused(racing: Capture, sizes: list[float]) -> None:
    with pytest.raises(InputError, match="not shares of the rows"):
        replay_sizes(racing, sizes=sizes)


def test_sizes_that_give_the_same_rows_count_once(captured: Captured) -> None:
    sweep = replay_sizes(captured(aten.neg.default, torch.ones(4)), trials=2)
    assert [size.rows for size in sweep.sizes] == [1, 2, 4]


def test_sweep_leaves_the_default_generator_alone(captured: Captured) -> None:
    capture = captured(aten.bernoulli_.float, torch.ones(8), 0.5)
    before = torch.get_rng_state()
    replay_sizes(capture, trials=2)
    assert torch.get_rng_state().tolist() == before.tolist()

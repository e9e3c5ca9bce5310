"""Calls in an order fixed by hand, on a device: one result where the op may give several, and its price."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.kernel import ReplayReport, fixed, replay
from detlab.kernel.fixed import in_triton
from tests.gpu.kernels import KERNELS, aten
from tests.gpu.sightings import Sightings

CapturedThere = Callable[..., Capture]
MAX_TRIES = 10

ALTERNATIVES: dict[str, Callable[..., Any]] = {
    "index_add_": fixed.index_add_,
    "scatter_add_": fixed.scatter_add_,
    "index_put_ (accumulate)": fixed.index_put_,
    "index_put_ (last writer wins)": fixed.index_put_,
    "embedding backward": fixed.embedding_dense_backward,
    "split-K matmul": fixed.split_k_mm,
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_alternative_in_a_fixed_order_gives_one_result(
    name: str, device: str, captured_there: CapturedThere, sightings: Sightings
) -> None:
    capture = captured_there(KERNELS[name].op, *KERNELS[name].make())
    trials = 3 if device == "cpu" else 20  # sorting a million rows takes a CPU long
    report = replay(capture, call=ALTERNATIVES[name], trials=trials)
    sightings.add_result(device, f"{name}, in a fixed order", report.conditions[0])
    assert report.num_distinct == 1, repr(report)


def test_price_of_a_fixed_order_is_measured_on_the_device(
    device: str, captured_there: CapturedThere, sightings: Sightings
) -> None:
    generator = torch.Generator().manual_seed(1)
    rows, places = torch.randn(20_000, 64, generator=generator), torch.arange(20_000) % 100
    capture = captured_there(aten.index_add_.default, torch.zeros(100, 64), 0, places, rows)
    report = replay(capture, trials=6, against=[fixed.index_add_])
    sightings.add(device, "index_add_, against a fixed order", report)
    assert report.alternatives is not None
    op, alternative = report.alternatives.contenders
    assert (op.is_captured_op, op.problem, alternative.problem) == (True, "", "")
    assert alternative.distinct == 1
    assert op.time is not None
    assert alternative.time is not None
    assert min(op.time.median_ms, alternative.time.median_ms) > 0.0
    assert alternative.closeness is not None
    assert alternative.closeness.relative_l2 is not None
    assert alternative.closeness.relative_l2 < 1e-6


def rows_to_add() -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(2)
    rows, places = torch.randn(100_000, 64, generator=generator), torch.arange(100_000) % 100
    return torch.zeros(100, 64), 0, places, rows


def long_matmul() -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(128, 16_384, generator=generator), torch.randn(16_384, 128, generator=generator)


TRITON: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], Any, Any]] = {
    "Triton index_add_": (
        aten.index_add_.default,
        rows_to_add,
        in_triton.index_add_atomic_,
        in_triton.index_add_,
    ),
    "Triton split-K matmul": (
        aten.mm.default,
        long_matmul,
        partial(in_triton.split_k_mm_atomic, num_splits=32),
        partial(in_triton.split_k_mm, num_splits=32),
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", TRITON)
def test_triton_kernel_with_atomics_races_and_its_fixed_twin_is_not_seen_to(
    name: str, captured: Callable[..., Capture], sightings: Sightings
) -> None:
    op, make, atomic, in_order = TRITON[name]
    device = "cuda:0"
    given = [arg.to(device) if isinstance(arg, torch.Tensor) else arg for arg in make()]
    capture = captured(op, *given)
    racing = until_two_differ(capture, atomic)
    held = replay(capture, call=in_order, trials=60)
    sightings.add_result(device, f"{name}, atomics", racing.conditions[0])
    sightings.add_result(device, f"{name}, in a fixed order", held.conditions[0])
    assert racing.num_distinct >= 2, repr(racing)
    assert held.num_distinct == 1, repr(held)


def until_two_differ(capture: Capture, call: Callable[..., Any]) -> ReplayReport:
    report: ReplayReport
    for _ in range(MAX_TRIES):
        report = replay(capture, call=call, trials=20)
        if report.num_distinct >= 2:
            break
    return report


@pytest.mark.gpu
@pytest.mark.parametrize("name", TRITON)
def test_triton_kernels_compute_what_torch_does(name: str) -> None:
    op, make, *kernels = TRITON[name]
    exact = op(
        *(
            arg.double() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
            for arg in make()
        )
    )
    for kernel in kernels:
        given = [arg.to("cuda:0") if isinstance(arg, torch.Tensor) else arg for arg in make()]
        found = kernel(*given).cpu().double()
        assert float((found - exact).norm() / exact.norm()) < 1e-5

"""Calls whose order is fixed by hand, on a device: one result, where the op may give several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.digest import tensor_digest
from detlab.kernel import fixed
from detlab.kernel.restore import RestoredCall
from detlab.kernel.statistics import ConditionResult, summarize
from tests.gpu.kernels import KERNELS
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


def results_of(func: Callable[..., Any], capture: Capture, device: str, trials: int = 20) -> ConditionResult:
    """Make a captured call with another function than the op."""
    call, results = RestoredCall(capture, func, device), []
    for _ in range(trials):
        call.reset()
        results.append(tuple(map(tensor_digest, call.run())))
    return summarize(device, results)


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_alternative_in_a_fixed_order_gives_one_result(
    name: str, device: str, captured_there: CapturedThere
) -> None:
    capture = captured_there(KERNELS[name].op, *KERNELS[name].make())
    trials = 3 if device == "cpu" else 20  # sorting a million rows takes a CPU long
    assert results_of(ALTERNATIVES[name], capture, device, trials).distinct == 1


@pytest.mark.gpu
def test_triton_kernel_with_atomics_races_and_its_fixed_twin_is_not_seen_to(
    captured: Callable[..., Capture], sightings: Sightings
) -> None:
    from tests.gpu.triton_kernels import add_atomically, add_in_order

    kernel, device = KERNELS["index_add_"], "cuda:0"
    zeros, dim, *tensors = kernel.make()
    index, values = (tensor.to(device) for tensor in tensors)
    capture = captured(kernel.op, zeros.to(device), dim, index, values)
    found = (results_of(add_atomically, capture, device) for _ in range(MAX_TRIES))
    racing = next((result for result in found if result.distinct >= 2), None)
    assert racing is not None, f"no two of 20 results differed in {MAX_TRIES} tries"
    held = results_of(add_in_order, capture, device)
    assert held.distinct == 1
    sightings.add_result(device, "Triton atomic add", racing)
    sightings.add_result(device, "Triton add in a fixed order", held)


@pytest.mark.gpu
def test_triton_kernels_add_up_what_they_should() -> None:
    from tests.gpu.triton_kernels import add_atomically, add_in_order

    index = torch.tensor([0, 2, 0, 2], device="cuda:0")
    values = torch.tensor([1.0, 2.0, 4.0, 8.0], device="cuda:0")
    for add in (add_atomically, add_in_order):
        ones = torch.ones(3, device="cuda:0")
        assert add(ones, 0, index, values).tolist() == [6.0, 1.0, 11.0]

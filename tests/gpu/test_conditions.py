"""Conditions of a replay on a device: each is had there, told in the report, and put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from detlab.captures import Capture
from detlab.kernel import ReplayClass, ReplayReport, replay
from detlab.kernel.conditions import Condition
from detlab.kernel.perturb.settings import settings_for
from detlab.kernel.verdict.training import changes_since_training
from tests.gpu.kernels import KERNELS, aten
from tests.gpu.sightings import Sightings

CapturedThere = Callable[..., Capture]

HERE = (
    "baseline",
    "cold caches",
    "warm caches",
    "poisoned with nan",
    "poisoned with zeros",
    "competing load",
    "offset 64 bytes",
    "tf32 on",
    "tf32 off",
    "cudnn benchmark on",
    "blas cublas",
    "blas cublaslt",
    "deterministic algorithms with memory fill",
    "deterministic algorithms without memory fill",
)
"""Conditions that are had in this process."""

EXPERIMENTAL_BLAS = pytest.mark.filterwarnings(
    "ignore:torch.backends.cuda.preferred_blas_library:UserWarning"
)


def settings() -> dict[str, object]:
    """Read all that a condition may set in this process."""
    cudnn = torch.backends.cudnn
    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        "precision": torch.get_float32_matmul_precision(),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32),
        "cudnn": (cudnn.benchmark, cudnn.deterministic),
        "blas": str(torch.backends.cuda.preferred_blas_library()) if torch.cuda.is_available() else "",
    }


@pytest.fixture
def matmul(captured_there: CapturedThere) -> Capture:
    a, b = (torch.randn(192, 160, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    return captured_there(aten.mm.default, a, b.t())


@pytest.fixture
def elementwise(captured_there: CapturedThere) -> Capture:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    return captured_there(aten.mul.Tensor, values, values)


@EXPERIMENTAL_BLAS
@pytest.mark.parametrize("name", HERE)
def test_condition_is_had_on_the_device_and_put_back(name: str, elementwise: Capture, device: str) -> None:
    before = settings()
    report = replay(elementwise, conditions=name, trials=3)
    (row,) = report.conditions
    assert (row.name, row.trials, row.status, row.distinct) == (name, 3, "done", 1), repr(report)
    assert report.place is not None
    assert report.place.device == device
    assert settings() == before


def test_load_competes_under_deterministic_algorithms_too(elementwise: Capture, device: str) -> None:
    (row,) = replay(elementwise, conditions="competing load", deterministic=True, trials=3).conditions
    assert (row.status, row.trials, row.distinct) == ("done", 3, 1), row.note


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("name", ["tf32 on", "tf32 off"])
def test_tf32_is_set_whatever_training_had(
    name: str, precision: str, device: str, captured_there: CapturedThere
) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        capture = captured_there(aten.mm.default, torch.ones(16, 16), torch.ones(16, 16))
    finally:
        torch.set_float32_matmul_precision(before)
    (row,) = replay(capture, conditions=name, trials=2).conditions
    assert (row.status, row.distinct) == ("done", 1)
    assert torch.get_float32_matmul_precision() == before


def test_tf32_chooses_another_kernel_and_is_no_race(
    matmul: Capture, device: str, sightings: Sightings
) -> None:
    report = replay(matmul, conditions=["tf32 off", "tf32 on"], trials=20)
    sightings.add(device, "float32 matmul", report)
    assert [row.distinct for row in report.conditions] == [1, 1]
    few_know_it = {ReplayClass.NOT_SEEN} if device == "cpu" else set()
    assert report.outcome in {ReplayClass.SELECTION} | few_know_it, repr(report)


def test_empty_memory_of_the_device_is_found_by_what_fills_it(
    device: str, captured_there: CapturedThere, sightings: Sightings
) -> None:
    capture = captured_there(aten.empty_like.default, torch.ones(100_000))
    report = replay(capture, conditions=["poisoned with nan", "poisoned with zeros"], trials=20)
    sightings.add(device, "empty", report)
    assert report.outcome is ReplayClass.UNINITIALISED, repr(report)


def test_race_is_a_race_whatever_competes_with_it(
    device: str, captured_there: CapturedThere, sightings: Sightings
) -> None:
    name = "index_put_ (accumulate)" if device == "cpu" else "index_add_"
    capture = captured_there(KERNELS[name].op, *KERNELS[name].make())
    asked = ["baseline", "competing load", "cold caches"]
    report = until_race(capture, asked)
    sightings.add(device, f"{name}, conditions", report)
    assert report.outcome is ReplayClass.RACE, repr(report)
    assert [row.name for row in report.conditions] == asked
    assert set(report.decided_by) <= set(asked)


def until_race(capture: Capture, conditions: list[str]) -> ReplayReport:
    report: ReplayReport
    for _ in range(10):
        report = replay(capture, conditions=conditions, trials=20)
        if report.outcome is ReplayClass.RACE:
            break
    return report


def test_workspace_of_cublas_is_set_in_a_process_of_its_own_and_the_report_says_so(
    matmul: Capture, device: str, sightings: Sightings
) -> None:
    names = ["cublas workspace :16:8", "cublas workspace :4096:8"]
    names = names[:1] if device == "cpu" else names  # a process takes seconds, and there is nothing to see
    report = replay(matmul, conditions=names, trials=20, time_limit_s=120)
    sightings.add(device, "float32 matmul, workspaces", report)
    assert [(row.name, row.status, row.distinct) for row in report.conditions] == [
        (name, "done", 1) for name in names
    ]
    assert report.outcome in (ReplayClass.NOT_SEEN, ReplayClass.SELECTION), repr(report)
    assert any("CUBLAS_WORKSPACE_CONFIG" in problem for problem in report.problems), repr(report)


def test_fresh_process_restores_and_calls_on_the_device(elementwise: Capture, device: str) -> None:
    report = replay(elementwise, conditions="fresh process", trials=4, time_limit_s=120)
    (row,) = report.conditions
    assert (row.status, row.trials, row.distinct) == ("done", 4, 1), repr(report)
    assert report.traced_output_seen is True
    assert report.place is not None
    assert report.place.device == device


def test_device_without_a_number_is_the_first_one_and_no_change(elementwise: Capture, device: str) -> None:
    report = replay(elementwise, device=device.partition(":")[0], trials=2)
    assert report.traced_output_seen is True
    assert report.other_conditions == "", repr(report)
    assert report.is_place_of_training is not False


def test_number_of_the_device_is_no_condition_where_its_model_is_the_same(
    elementwise: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = dict(elementwise.state)
    monkeypatch.setattr("detlab.kernel.verdict.training.torch_state", lambda device: state)
    on_another = tuple(dataclasses.replace(storage, device="cuda:5") for storage in elementwise.storages)
    capture = dataclasses.replace(elementwise, storages=on_another)
    here = dataclasses.replace(settings_for(elementwise, Condition(name="")), device="cpu")
    there = dataclasses.replace(here, device="cuda:0")
    assert changes_since_training(capture, there) == []
    assert [change.name for change in changes_since_training(capture, here)] == ["device"]


@pytest.mark.gpu
def test_standard_conditions_of_a_device_are_all_had(
    captured_there: CapturedThere, device: str, sightings: Sightings
) -> None:
    values = torch.randn(4096, generator=torch.Generator().manual_seed(5))
    report = replay(captured_there(aten.mul.Tensor, values, values), conditions="standard", trials=4)
    sightings.add(device, "elementwise product, standard conditions", report)
    assert {row.status for row in report.conditions} == {"done"}, repr(report)
    assert report.outcome is ReplayClass.NOT_SEEN, repr(report)

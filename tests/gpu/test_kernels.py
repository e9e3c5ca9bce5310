"""Known kernels on a device: captured, restored, and repeated until the known is seen, within a bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from detlab.captures import Capture, load_capture
from detlab.errors import CaptureError
from detlab.kernel import ReplayClass, ReplayReport, replay
from detlab.kernel.restore import RestoredCall
from tests.gpu.kernels import KERNELS, Kernel
from tests.gpu.sightings import Sightings

CapturedThere = Callable[..., Capture]
MAX_TRIES = 10


@pytest.fixture(params=KERNELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kernel(name: str) -> Kernel:
    return KERNELS[name]


@pytest.fixture
def capture(kernel: Kernel, captured_there: CapturedThere) -> Capture:
    return captured_there(kernel.op, *kernel.make())


def replay_until(wanted: set[ReplayClass], capture: Capture) -> ReplayReport:
    """Replay again and again until the report is of one of the classes; give the last report."""
    report: ReplayReport
    for _ in range(MAX_TRIES):
        report = replay(capture, trials=20)
        if report.outcome in wanted:
            break
    return report


def test_kernel_shows_what_is_known_of_it(
    name: str, kernel: Kernel, device: str, capture: Capture, sightings: Sightings
) -> None:
    assert capture.device == device
    report = replay_until(kernel.expected(device), capture)
    sightings.add(device, name, report)
    assert report.outcome in kernel.expected(device), repr(report)
    if report.num_distinct > 1:  # a race may also show in that the captured call gave something else
        (output,) = report.outputs
        assert output.elements_different > 0
        assert output.distinct == report.num_distinct


def test_deterministic_algorithms_give_one_result_or_refuse(
    name: str, device: str, capture: Capture, sightings: Sightings
) -> None:
    try:
        report = replay(capture, trials=20, deterministic=True)
    except CaptureError as error:
        assert device != "cpu"
        assert "deterministic" in str(error)
        return
    sightings.add(device, name, report)
    assert report.num_distinct == 1, repr(report)


def test_capture_of_a_device_is_whole_on_the_disk(device: str, kernel: Kernel, capture: Capture) -> None:
    again = load_capture(capture.path)
    assert again.input_digests == capture.input_digests
    call = RestoredCall(again, kernel.op, device)  # hashes what it restores
    assert {tensor.device.type for tensor in call.tensors} == {torch.device(device).type}


def test_capture_of_a_device_is_replayed_on_the_cpu_and_the_report_says_so(
    device: str, capture: Capture
) -> None:
    report = replay(capture, trials=2, device="cpu")
    assert ("another device" in report.other_conditions or device in report.other_conditions) == (
        device != "cpu"
    ), repr(report)


def test_whole_numbers_hide_the_race_and_the_report_warns_of_it(captured_there: CapturedThere) -> None:
    zeros, dim, index, values = KERNELS["index_add_"].make()
    report = replay(captured_there(KERNELS["index_add_"].op, zeros, dim, index, values.round()), trials=20)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert "whole numbers" in repr(report)

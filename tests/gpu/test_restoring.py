"""What a call starts from is put back on the device: bytes, layouts and generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.digest import tensor_digest
from detlab.kernel import ReplayClass, replay
from detlab.kernel.restore import RestoredCall
from tests.gpu.test_recorder import on_side_stream

aten = torch.ops.aten
CapturedThere = Callable[..., Capture]
Captured = Callable[..., Capture]


def default_generator_of(device: str) -> torch.Generator:
    if device == "cpu":
        return torch.default_generator
    return torch.cuda.default_generators[torch.device(device).index]


RANDOM_CALLS: dict[str, tuple[Any, ...]] = {
    "bernoulli_": (aten.bernoulli_.float, torch.zeros(1000), 0.3),
    "native_dropout": (aten.native_dropout.default, torch.ones(1000), 0.5, True),
    "normal_": (aten.normal_.default, torch.zeros(1001)),
    "rand_like": (aten.rand_like.default, torch.zeros(1000)),
    "multinomial": (aten.multinomial.default, torch.arange(1.0, 101.0), 50),
}


@pytest.mark.parametrize("name", RANDOM_CALLS)
def test_default_generator_of_the_device_is_put_back_before_every_trial(
    name: str, device: str, captured_there: CapturedThere
) -> None:
    op, *args = RANDOM_CALLS[name]
    report = replay(captured_there(op, *args), trials=5)
    assert report.num_distinct == 1, repr(report)
    assert report.traced_output_seen is True


def test_replay_leaves_the_default_generators_as_they_were(
    device: str, captured_there: CapturedThere
) -> None:
    capture = captured_there(*RANDOM_CALLS["bernoulli_"])
    before = default_generator_of(device).get_state()
    replay(capture, trials=3)
    assert tensor_digest(default_generator_of(device).get_state()) == tensor_digest(before)


def test_generator_given_as_an_argument_is_put_back(device: str, captured: Captured) -> None:
    generator = torch.Generator(device).manual_seed(7)
    torch.empty(13, device=device).normal_(generator=generator)  # somewhere within its sequence
    ones = torch.ones(1000, device=device)
    capture = captured(aten.bernoulli_.float, ones, 0.5, generator=generator)
    report = replay(capture, trials=5)
    assert (report.num_distinct, report.traced_output_seen) == (1, True)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[::2, 1:],
    "expanded": lambda x: x[:1].expand(5, -1),
    "channels last": lambda x: x.view(1, 4, 4, 9).to(memory_format=torch.channels_last),
    "conjugated": lambda x: torch.complex(x, x).conj(),
    "negated": lambda x: torch.complex(x, x).conj().imag,
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "no dimension": lambda x: x[0, 0],
    "nothing in it": lambda x: x[:0],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_on_the_device_is_restored_exactly(name: str, device: str, captured: Captured) -> None:
    base = torch.randn(16, 9, generator=torch.Generator().manual_seed(0)).to(device)
    given = LAYOUTS[name](base)
    capture = captured(aten.clone.default, given)
    (restored,) = RestoredCall(capture, aten.clone.default, device).tensors
    assert (restored.shape, restored.stride()) == (given.shape, given.stride())
    assert restored.storage_offset() == given.storage_offset()
    assert (restored.dtype, restored.device) == (given.dtype, given.device)
    assert (restored.is_conj(), restored.is_neg()) == (given.is_conj(), given.is_neg())
    assert tensor_digest(restored) == tensor_digest(given)


def test_arguments_that_share_memory_share_it_again(device: str, captured: Captured) -> None:
    base = torch.arange(8.0, device=device)
    capture = captured(aten.add.Tensor, base[:4], base[2:6])
    call = RestoredCall(capture, aten.add.Tensor, device)
    a, b = call.tensors
    assert b.data_ptr() - a.data_ptr() == 2 * a.element_size()


def test_argument_that_the_call_changes_is_put_back(device: str, captured_there: CapturedThere) -> None:
    report = replay(captured_there(aten.mul_.Scalar, torch.full((1000,), 0.1), 0.7), trials=5)
    assert (report.outcome, report.num_distinct) == (ReplayClass.NOT_SEEN, 1)
    assert report.traced_output_seen is True


def test_capture_and_replay_on_a_stream_of_its_own_give_the_same_bits(
    device: str, captured_there: CapturedThere
) -> None:
    values = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    plain = captured_there(aten.neg.default, values)
    with on_side_stream(device):
        aside = captured_there(aten.neg.default, values)
        report = replay(aside, trials=5)
    assert aside.input_digests == plain.input_digests
    assert aside.output_digests == plain.output_digests
    assert (report.num_distinct, report.traced_output_seen) == (1, True)

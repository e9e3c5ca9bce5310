"""A captured call is made by the op or by any callable that takes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from detlab.captures import Capture
from detlab.digest import tensor_digest
from detlab.errors import CaptureError
from detlab.kernel.restore import RestoredCall

aten = torch.ops.aten
Captured = Callable[..., Capture]


def digests(call: RestoredCall) -> list[int]:
    call.reset()
    return [tensor_digest(tensor) for tensor in call.run()]


def test_python_function_gets_the_arguments_of_an_op_by_name(captured: Captured) -> None:
    capture = captured(aten.add.Tensor, torch.ones(3), torch.tensor([0.1]), alpha=2)

    def fixed(self: torch.Tensor, other: torch.Tensor, *, alpha: float) -> torch.Tensor:
        return self + alpha * other

    assert digests(RestoredCall(capture, fixed, "cpu")) == list(capture.output_digests)


def test_function_that_writes_what_the_schema_names_is_reset(captured: Captured) -> None:
    capture = captured(aten.add_.Tensor, torch.ones(3), torch.tensor([0.1]))

    def fixed(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.add_(other)

    call = RestoredCall(capture, fixed, "cpu")
    assert digests(call) == digests(call) == list(capture.output_digests)


def test_call_of_a_python_function_knows_what_it_writes(captured: Captured) -> None:
    source = captured(aten.add.Tensor, torch.zeros(3), torch.ones(3))
    capture = replace(source, op="somewhere:add", schema="", num_positional=2, mutates=("self",))

    def launch(out: torch.Tensor, values: torch.Tensor) -> None:
        out.add_(values)

    call = RestoredCall(capture, launch, "cpu")
    assert digests(call) == digests(call) == [tensor_digest(torch.ones(3))]


def test_undeclared_write_of_a_function_is_found(captured: Captured) -> None:
    source = captured(aten.add.Tensor, torch.zeros(3), torch.ones(3))
    capture = replace(source, op="somewhere:add", schema="", num_positional=2)
    call = RestoredCall(capture, lambda out, values: out.add_(values).sum(), "cpu")
    call.run()
    assert call.adopt_silent_writes() == ["self"]
    assert digests(call)[1:] == [tensor_digest(torch.ones(3))]


def test_python_function_runs_with_gradients_where_training_did(captured: Captured) -> None:
    source = captured(aten.mul.Tensor, torch.ones(3, requires_grad=True), torch.full((3,), 0.1))
    capture = replace(source, op="somewhere:gradient", schema="")

    def gradient(self: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = self * other
        return product, torch.autograd.grad(product.sum(), self)[0]

    product, found = RestoredCall(capture, gradient, "cpu").run()
    assert found.tolist() == product.tolist()
    assert not product.requires_grad


def test_number_keeps_its_precision(captured: Captured) -> None:
    capture = captured(aten._local_scalar_dense.default, torch.tensor(0.1, dtype=torch.float64))
    (found,) = RestoredCall(capture, aten._local_scalar_dense.default, "cpu").run()
    assert found.dtype == torch.float64
    assert found.item() == 0.1  # the same bits


def test_result_without_bits_is_refused(captured: Captured) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    with pytest.raises(CaptureError, match="gave a str"):
        RestoredCall(capture, lambda self: "text", "cpu").run()

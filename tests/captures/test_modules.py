"""Forward and backward of a module as one captured call, with everything that it holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import detlab as dl
from detlab.digest import tensor_digest
from detlab.errors import CaptureError
from detlab.kernel.modules import ModuleCall
from tests.megatron_cpu.processes import run_on_ranks


class Quantized(nn.Module):
    """A linear layer that quantises its input with a scale of the call before, as delayed scaling does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.num_calls = 0
        self.quantizer = SimpleNamespace(scale=torch.ones(1), history=[torch.zeros(1), torch.zeros(1)])

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        scale = self.quantizer.scale
        self.quantizer.history[self.num_calls % 2].copy_(values.detach().abs().max())
        self.quantizer.scale = 448 / torch.stack(self.quantizer.history).max().reshape(1)
        self.num_calls += 1
        coarse = (values.detach() * scale).to(torch.float8_e4m3fn).float() / scale
        result: torch.Tensor = self.linear(values + (coarse - values).detach())
        return result


class Rows(nn.Module):
    """An embedding that indexes its weight, whose backward races on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 64))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.weight[index]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 4))


def held(module: nn.Module) -> list[Any]:
    """Everything that a module holds, as lists."""
    call = ModuleCall(module)
    tensors = [tensor.tolist() for tensor in (*call.parameters().values(), *call.state().values())]
    return [*tensors, call.numbers(), torch.get_rng_state().tolist()]


def values() -> torch.Tensor:
    return torch.randn(32, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_module_with_dropout_gives_again_what_it_gave(tmp_path: Path) -> None:
    capture = dl.capture_module(network(), values(), path=tmp_path)
    report = dl.replay(capture, call=network(), trials=3)  # other weights: they come from the capture
    assert report.traced_output_seen is True
    assert report.num_distinct == 1


def test_module_is_left_as_it_was(tmp_path: Path) -> None:
    module = network()
    before = held(module)
    dl.replay(dl.capture_module(module, values(), path=tmp_path), call=module, trials=3)
    assert held(module) == before
    assert all(parameter.grad is None for parameter in module.parameters())


def test_gradients_of_inputs_and_parameters_are_among_the_results(tmp_path: Path) -> None:
    module = nn.Linear(8, 4)
    given = values()
    gradient = torch.randn(32, 4)
    capture = dl.capture_module(module, given, gradients=[gradient], path=tmp_path)
    output = module(given)
    output.backward(gradient)
    tensors = [output, given.grad, module.weight.grad, module.bias.grad]
    assert capture.output_digests == tuple(tensor_digest(tensor) for tensor in tensors)


def test_forward_alone_has_no_gradients(tmp_path: Path) -> None:
    capture = dl.capture_module(nn.Linear(8, 4), values(), backward=False, path=tmp_path)
    assert len(capture.output_digests) == 1


def test_state_of_a_quantizer_is_captured_and_put_back_before_every_trial(tmp_path: Path) -> None:
    module = Quantized()
    for _ in range(3):
        module(values() * 3)
    capture = dl.capture_module(module, values(), path=tmp_path)
    assert capture.mutates == ("state",)
    (state,) = [value for name, value in capture.arguments if name == "state"]
    assert set(state) == {"quantizer.scale", "quantizer.history.0", "quantizer.history.1"}
    report = dl.replay(capture, call=Quantized(), trials=3)
    assert (report.traced_output_seen, report.num_distinct) == (True, 1)


def test_what_a_module_makes_at_its_first_call_is_made_again_every_time(tmp_path: Path) -> None:
    class Lazy(nn.Linear):
        scale = None

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            if self.scale is None:
                self.scale = given.detach().abs().max()
                self.register_buffer("offset", torch.zeros(1))
            return super().forward(given * self.scale)

    module = Lazy(8, 4)
    capture = dl.capture_module(module, values(), path=tmp_path)
    assert dl.replay(capture, call=module, trials=3).traced_output_seen is True
    assert (module.scale, dict(module.named_buffers())) == (None, {})


def test_mode_of_training_is_captured(tmp_path: Path) -> None:
    capture = dl.capture_module(network().eval(), values(), path=tmp_path)
    assert dl.replay(capture, call=network().train(), trials=3).traced_output_seen is True


def test_module_of_another_configuration_is_refused(tmp_path: Path) -> None:
    capture = dl.capture_module(nn.Linear(8, 4), values(), path=tmp_path)
    with pytest.raises(CaptureError, match="not the captured one: among its parameters, it has no bias"):
        dl.replay(capture, call=nn.Linear(8, 4, bias=False), trials=1)


def test_race_of_a_backward_is_seen_in_its_module(tmp_path: Path) -> None:
    index = torch.randint(0, 16, (40_000,), generator=torch.Generator().manual_seed(1))
    capture = dl.capture_module(Rows(), index, path=tmp_path)
    for _ in range(5):  # until it is seen, bounded
        report = dl.replay(capture, call=Rows(), trials=10, threads=4)
        if report.num_distinct > 1:
            break
    assert [row.distinct > 1 for row in report.outputs] == [
        False,
        True,
    ]  # rows, gradient


def megatron_layers(folder: str) -> dict[str, Any]:
    """Build two layers of Megatron-Core with dropout between them, and replay a capture of them."""
    from tests.megatron_cpu.training import Recipe, set_up

    set_up(Recipe(seed=3 if not Path(folder).exists() else 4))
    module = _layers()
    if Path(folder).exists():
        capture = dl.load_capture(folder)
    else:
        tokens = torch.randint(0, 64, (8, 256), generator=torch.Generator().manual_seed(1))
        capture = dl.capture_module(module, tokens, path=folder)
    before = held(module)
    report = dl.replay(capture, call=module, trials=3, threads=1)
    return {
        "seen": report.traced_output_seen,
        "distinct": report.num_distinct,
        "trackers": list(dict(capture.arguments)["trackers"]),  # type: ignore[arg-type]
        "is left": held(module) == before,
    }


def _layers() -> nn.Module:
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.tensor_parallel import ColumnParallelLinear, VocabParallelEmbedding
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            init = {
                "init_method": nn.init.normal_,
                "config": ModelParallelConfig(use_cpu_initialization=True),
            }
            self.embedding = VocabParallelEmbedding(64, 32, **init)
            self.linear = ColumnParallelLinear(32, 16, skip_bias_add=True, **init)

        def forward(self, tokens: torch.Tensor) -> Any:
            embedded = self.embedding(tokens)
            with get_cuda_rng_tracker().fork():
                embedded = torch.nn.functional.dropout(embedded, 0.1)
            return self.linear(embedded)

    return Layers()


def test_megatron_layers_are_replayed_with_their_random_trackers(tmp_path: Path) -> None:
    folder = str(tmp_path / "capture")
    expected = {"seen": True, "distinct": 1, "is left": True}
    for _ in ("where it was captured", "in a fresh process with other weights and seeds"):
        (found,) = run_on_ranks(1, megatron_layers, folder)
        assert "model-parallel-rng" in found.pop("trackers")
        assert found == expected


def gpt_and_one_of_its_layers(folder: str) -> list[tuple[bool | None, int, tuple[str, ...]]]:
    """Capture a GPT in its data-parallel wrapper and its first layer; replay that with the second one."""
    from tests.megatron_cpu.training import Recipe, build, set_up

    set_up(Recipe())
    model = build(Recipe())[0].module
    tokens = torch.randint(0, 64, (2, 17), generator=torch.Generator().manual_seed(1))
    position = torch.arange(16)[None].expand(2, -1)
    mask = torch.triu(torch.ones(1, 1, 16, 16, dtype=torch.bool), 1)
    labels = tokens[:, 1:].contiguous()
    whole = dl.capture_module(model, tokens[:, :-1], position, mask, labels=labels, path=f"{folder}/gpt")
    first, second = model.decoder.layers
    hidden = torch.randn(16, 2, 32).requires_grad_()
    layer = dl.capture_module(first, hidden, mask, path=f"{folder}/layer")
    found = []
    for capture, module in ((whole, model), (layer, second)):
        report = dl.replay(capture, call=module, trials=3)
        found.append((report.traced_output_seen, report.num_distinct, capture.mutates))
    return found


def test_whole_gpt_of_megatron_and_any_of_its_layers_are_replayed(tmp_path: Path) -> None:
    (found,) = run_on_ranks(1, gpt_and_one_of_its_layers, str(tmp_path))
    assert found == [(True, 1, ()), (True, 1, ())]

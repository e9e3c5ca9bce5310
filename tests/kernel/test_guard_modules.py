"""The guard of a module: races in its backward, state that leaks between passes, and emulated FP8 and FP4."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

import pytest
import torch

from detlab.errors import InputError
from detlab.testing import assert_module_repeatable
from tests.kernel.emulated import Fp4, Fp8Linear, Fp8LinearWithExtraState

FOUR_THREADS = [{"threads": 4}]


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def failure_of(module: torch.nn.Module, *inputs: torch.Tensor, **kwargs: object) -> str:
    with pytest.raises(AssertionError) as failure:
        assert_module_repeatable(module, *inputs, **kwargs)  # type: ignore[arg-type]
    return str(failure.value)


class Gather(torch.nn.Module):
    """An embedding by indexing, whose backward adds up in any order; Megatron's in deterministic mode."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(seeded(64, 64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.weight[tokens]


def tokens() -> torch.Tensor:
    return torch.randint(0, 64, (40_000,), generator=torch.Generator().manual_seed(1))


def test_race_in_a_backward_is_caught_in_the_gradient_alone() -> None:
    message = failure_of(Gather(), tokens(), conditions=FOUR_THREADS)
    assert re.search(
        r"gradient of weight \(float32\[64, 64\]\) differs from trial 1 in \d of 5 trials", message
    )
    assert re.search(r"element \[\d+, \d+\] is .* ULP apart", message)
    assert len(message.splitlines()) == 2


def test_quiet_module_passes_and_is_left_as_it_was() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.5))
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    parameter = next(module.parameters())
    parameter.grad = torch.full_like(parameter, 7.0)
    generator = torch.get_rng_state()
    (row,) = assert_module_repeatable(module, seeded(2, 3, 8, 8))
    assert (row.trials, row.distinct) == (5, 1)
    assert all((tensor == state[name]).all() for name, tensor in module.state_dict().items())
    assert parameter.grad.unique().tolist() == [7.0]
    assert all(each.grad is None for each in list(module.parameters())[1:])
    assert torch.get_rng_state().tolist() == generator.tolist()


def test_same_module_passes_where_the_order_is_fixed() -> None:
    conditions = [{"threads": 1}, {"threads": 4, "deterministic": True}]
    assert len(assert_module_repeatable(Gather(), tokens(), conditions=conditions)) == 2


@pytest.mark.parametrize(
    "make", [lambda: Fp8Linear("buffers"), Fp8LinearWithExtraState], ids=["buffers", "extra"]
)
def test_fp8_state_that_is_saved_is_put_back_and_compared(make: Callable[[], Fp8Linear]) -> None:
    module = make()
    assert_module_repeatable(module, seeded(8, 32) * 100)
    assert (module.scale.item(), module.amax_history.tolist()) == (1.0, [0.0] * 4)


@pytest.mark.parametrize(("keeps", "place"), [("attributes", "0"), ("helper", "0.quantizer")])
def test_fp8_state_that_leaks_into_the_next_pass_is_caught_and_named(keeps: str, place: str) -> None:
    message = failure_of(torch.nn.Sequential(Fp8Linear(keeps)), seeded(8, 32) * 100)
    assert "output (float32[8, 16]) differs from trial 1 in 4 of 5 trials" in message
    assert f"  {place}.amax_history, {place}.scale changed from pass to pass" in message
    assert "Hint: register it with register_buffer" in message


def test_scale_that_leaks_only_into_later_passes_is_caught_before_an_output_differs() -> None:
    class Counting(torch.nn.Module):
        total = 0.0
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += 0.5
            self.calls += 1
            return x * 2

    message = failure_of(Counting(), seeded(3), trials=2)
    assert "attribute total (float64[]) differs from trial 1 in 1 of 2 trials" in message
    assert "output" not in message
    assert "calls" not in message
    assert_module_repeatable(Counting(), seeded(3), ignore=["attribute total"])


def test_history_in_a_queue_of_an_object_that_holds_itself_is_found() -> None:
    class Recipe:
        def __init__(self) -> None:
            self.me, self.history = self, deque([0.0, 0.0], maxlen=2)

    class Delayed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recipe = Recipe()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.recipe.history.append(self.recipe.history[-1] + 0.5)
            return x * 2

    message = failure_of(Delayed(), seeded(3), trials=2)
    assert "attribute recipe.history[1] (float64[]) differs from trial 1 in 1 of 2 trials" in message
    assert "  recipe.history[1] changed from pass to pass" in message
    assert "recipe.me" not in message


def test_fp4_rounding_to_the_nearest_and_at_random_pass_with_their_generator_put_back() -> None:
    x = seeded(4, 64)
    assert_module_repeatable(Fp4(), x)
    assert_module_repeatable(Fp4(stochastic=True), x)
    generator = torch.Generator().manual_seed(2)
    module = Fp4(stochastic=True, generator=generator)
    assert "output (float32[4, 64]) differs" in failure_of(module, x)  # nobody knows of this generator
    own = (generator.get_state, generator.set_state)
    assert assert_module_repeatable(module, x, more_state=[own])


def test_fp4_holds_only_what_the_format_holds() -> None:
    quantised = Fp4()(torch.tensor([0.3, 0.2, -6.0, 5.1, 2.6] + [0.0] * 11))
    assert quantised[:5].tolist() == [0.5, 0.0, -6.0, 6.0, 3.0]


def test_gradient_of_an_input_is_compared() -> None:
    class Pick(torch.nn.Module):
        def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
            return x[tokens]

    x = seeded(64, 64)
    message = failure_of(Pick(), x, tokens(), conditions=FOUR_THREADS)
    assert "gradient of input 0 (float32[64, 64]) differs" in message
    assert x.grad is None
    assert not x.requires_grad
    assert assert_module_repeatable(Pick(), x, tokens(), conditions=FOUR_THREADS, input_gradients=False)


def test_main_grad_that_a_fused_backward_adds_to_is_put_back() -> None:
    class Accumulate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            ctx.weight = weight  # type: ignore[attr-defined]
            return x * weight.detach()

        @staticmethod
        def backward(ctx: object, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            ctx.weight.main_grad.add_(gradients[0].sum(0))  # type: ignore[attr-defined]
            return gradients[0], None

    class Fused(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(seeded(5))
            self.weight.main_grad = torch.ones(5)  # type: ignore[attr-defined]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Accumulate.apply(x, self.weight)  # type: ignore[no-any-return]

    module = Fused()
    assert_module_repeatable(module, seeded(3, 5))
    assert module.weight.main_grad.tolist() == [1.0] * 5  # type: ignore[attr-defined]


def test_buffer_that_is_replaced_is_put_back() -> None:
    module = Fp8Linear("buffers")
    buffer = module.amax_history
    assert_module_repeatable(module, seeded(8, 32))
    assert module.amax_history is buffer


def test_one_pass_has_nothing_to_differ_from() -> None:
    with pytest.raises(InputError, match="nothing to differ from"):
        assert_module_repeatable(Gather(), tokens(), trials=1)

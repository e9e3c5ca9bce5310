"""Emulated FP8 and FP4 layers, as mixed-precision training quantises on hardware that has the formats.

FP8: per-tensor delayed scaling, whose scale comes from the largest value of the last passes (NVIDIA
Transformer Engine, "Using FP8", DelayedScaling). FP4: e2m1 values with a float8 scale for each block of 16
(NVFP4), rounded to the nearest or at random.
"""

from __future__ import annotations

from typing import Any, Final

import torch

_E4M3_MAX: Final = 448.0
_E2M1: Final = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_BLOCK: Final = 16


class _RoundTrip(torch.autograd.Function):
    """Quantise and dequantise; the gradient goes straight through."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        clamped = (x * scale).clamp(-_E4M3_MAX, _E4M3_MAX)
        return clamped.to(torch.float8_e4m3fn).to(x.dtype) / scale

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


class Fp8Linear(torch.nn.Module):
    """A linear layer whose input is quantised with a delayed scale.

    Parameters
    ----------
    keeps
        Where amax history and scale live: ``buffers``, ``extra state``, ``attributes`` (which leaks), or
        ``helper``, an object of its own (which leaks too).
    """

    def __init__(self, keeps: str, length: int = 4) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 16)
        self.keeps = keeps
        history, scale = torch.zeros(length), torch.ones(())
        if keeps == "buffers":
            self.register_buffer("amax_history", history)
            self.register_buffer("scale", scale)
        elif keeps == "helper":
            self.quantizer = type("Quantizer", (), {})()
            self.quantizer.amax_history, self.quantizer.scale = history, scale
        else:
            self.amax_history, self.scale = history, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place: Any = self.quantizer if self.keeps == "helper" else self
        quantised = _RoundTrip.apply(x, place.scale)
        place.amax_history = torch.cat([x.detach().abs().max().view(1), place.amax_history[:-1]])
        place.scale = _E4M3_MAX / place.amax_history.max()
        out: torch.Tensor = self.linear(quantised)
        return out


class Fp8LinearWithExtraState(Fp8Linear):
    """The same, with the state where ``state_dict`` takes it from."""

    def __init__(self) -> None:
        super().__init__("extra state")

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        return {"amax_history": self.amax_history, "scale": self.scale}

    def set_extra_state(self, state: dict[str, torch.Tensor]) -> None:
        self.amax_history, self.scale = state["amax_history"], state["scale"]


class Fp4(torch.nn.Module):
    """Quantise to e2m1 in blocks of 16 and back, rounding to the nearest or at random."""

    def __init__(self, *, stochastic: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.stochastic, self.generator = stochastic, generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocks = x.detach().reshape(-1, _BLOCK)
        scale = (blocks.abs().amax(1, keepdim=True) / 6.0).to(torch.float8_e4m3fn).float().clamp_min(2**-9)
        magnitude = (blocks.abs() / scale).clamp_max(6.0)
        upper = torch.searchsorted(_E2M1, magnitude).clamp(1, 7)
        low, high = _E2M1[upper - 1], _E2M1[upper]
        share = (magnitude - low) / (high - low)
        cut = torch.rand(share.shape, generator=self.generator) if self.stochastic else torch.tensor(0.5)
        quantised = torch.where(share > cut, high, low) * blocks.sign() * scale
        return x + (quantised.reshape(x.shape) - x).detach()

"""Calls that are known to race, known not to, or said to depend on the device; made the same on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload

from detlab.kernel import ReplayClass

aten = torch.ops.aten

NUM_ADDS: Final = 1_000_000
NUM_ROWS: Final = 1000


@dataclass(frozen=True)
class Kernel:
    """One call.

    Attributes
    ----------
    op
        The op, with its overload.
    make
        Gives its arguments on the CPU.
    races_on
        Kinds of device, such as ``cuda``, on which enough trials always show a race.
    may_race_on
        Kinds of device on which it is documented as nondeterministic, or rumoured, without a sure sign.
    """

    op: OpOverload
    make: Callable[[], tuple[Any, ...]]
    races_on: frozenset[str] = frozenset()
    may_race_on: frozenset[str] = frozenset()

    def expected(self, device: str) -> set[ReplayClass]:
        """Give the classes that a replay on a device may report."""
        kind = torch.device(device).type
        if kind in self.races_on:
            return {ReplayClass.RACE}
        return {ReplayClass.NOT_SEEN} | ({ReplayClass.RACE} if kind in self.may_race_on else set())


def _seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def _rows() -> torch.Tensor:
    return torch.randint(0, NUM_ROWS, (NUM_ADDS,), generator=_seeded(1))


def _values() -> torch.Tensor:
    return torch.randn(NUM_ADDS, generator=_seeded(2))


def _embedding_backward() -> tuple[Any, ...]:
    gradient = torch.randn(20_000, 64, generator=_seeded(3))
    return gradient, torch.randint(0, 64, (20_000,), generator=_seeded(4)), 64, -1, False


def _interpolate_backward() -> tuple[Any, ...]:
    gradient = torch.randn(2, 16, 256, 256, generator=_seeded(5))
    return gradient, [256, 256], [2, 16, 16, 16], False, None, None


def _tall_matmul() -> tuple[Any, ...]:
    """Give matrices whose product is small and whose inner dimension is long, which cuBLAS splits."""
    shape = (64, 65_536)
    a, b = (torch.randn(shape, generator=_seeded(number)).to(torch.bfloat16) for number in (6, 7))
    return a, b.t()


CPU, CUDA, BOTH = frozenset({"cpu"}), frozenset({"cuda"}), frozenset({"cpu", "cuda"})

KERNELS: Final = {
    "index_add_": Kernel(
        aten.index_add_.default, lambda: (torch.zeros(NUM_ROWS), 0, _rows(), _values()), races_on=CUDA
    ),
    "scatter_add_": Kernel(
        aten.scatter_add_.default, lambda: (torch.zeros(NUM_ROWS), 0, _rows(), _values()), races_on=CUDA
    ),
    "index_put_ (accumulate)": Kernel(
        aten.index_put_.default,
        lambda: (torch.zeros(NUM_ROWS), [_rows()], _values(), True),
        races_on=CPU,
        may_race_on=CUDA,
    ),
    "index_put_ (last writer wins)": Kernel(
        aten.index_put_.default,
        lambda: (torch.zeros(NUM_ROWS), [_rows()], _values(), False),
        may_race_on=BOTH,
    ),
    "embedding backward": Kernel(
        aten.embedding_dense_backward.default, _embedding_backward, may_race_on=CUDA
    ),
    "cumsum": Kernel(
        aten.cumsum.default, lambda: (torch.randn(1 << 22, generator=_seeded(8)), 0), may_race_on=CUDA
    ),
    "interpolate backward": Kernel(
        aten.upsample_bilinear2d_backward.default, _interpolate_backward, races_on=CUDA
    ),
    "split-K matmul": Kernel(aten.mm.default, _tall_matmul, may_race_on=CUDA),
}

"""Whether the trials of a call could have shown a race at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import torch

from detlab.captures import Capture
from detlab.kernel.differences.bits import precision
from detlab.kernel.power.exact import exact_in_any_order
from detlab.kernel.restore import RestoredCall
from detlab.kernel.statistics import percent, upper_bound_95

_ADDS_UP: Final = re.compile(
    "index_add|index_reduce|scatter_add|scatter_reduce|embedding|bincount|sum|mean|mm|mv|dot|matmul|linear|conv|"
    "norm(?!al)|softmax|attention"
)
"""Parts of the names of ops that add up floats."""

_NO_ORDER: Final = re.compile("index_add|scatter_add|embedding|bincount|put")
"""Parts of the names of ops that add into places which indices name, where no order is given by itself."""

_MULTIPLIES: Final = re.compile("mm|mv|dot|matmul|linear|conv|attention")

_GRAIN: Final = 32_768
"""From so many elements on torch spreads work over CPU threads (at::internal::GRAIN_SIZE)."""

_FEW_TRIALS: Final = 20
_FLOAT32_BITS: Final = 24


def what_hides_a_race(capture: Capture, call: RestoredCall, trials: int) -> list[str]:
    """Say what may have kept a race from showing, one sentence each.

    Parameters
    ----------
    call
        The call after a reset. It is made once more where its outputs may be too coarse to show a race.
    """
    found = ["one trial has nothing to differ from; make more"] if trials == 1 else []
    if adds_up(capture) or not capture.is_op:  # a Python function may do anything
        found += [
            *_of_threads(capture, call),
            *_of_values(capture, call),
            *_of_outputs(capture, call, trials),
        ]
    if not found and 1 < trials < _FEW_TRIALS and capture.is_op and _in_no_order(capture):
        rate = percent(upper_bound_95(trials))
        found.append(
            f"{trials} trials miss a race that shows in {rate} of them once in twenty times; make more"
        )
    return found


def adds_up(capture: Capture) -> bool:
    """Say whether an op adds up floats, so that its result depends on the order of the sum."""
    if not capture.is_op:
        return False
    name = capture.op.split(".")[1]
    if name.rstrip("_").endswith("put"):
        return dict(capture.arguments).get("accumulate") is True
    return bool(_ADDS_UP.search(name))


def _in_no_order(capture: Capture) -> bool:
    return adds_up(capture) and bool(_NO_ORDER.search(capture.op.split(".")[1]))


def _of_threads(capture: Capture, call: RestoredCall) -> Iterator[str]:
    """Say where no two threads can have met; only of the CPU."""
    tensors = call.tensors
    if not all(tensor.is_cpu for tensor in tensors):
        return
    if torch.get_num_threads() == 1:
        yield "with 1 thread a CPU kernel adds in one order: a race between threads would not show"
    elif capture.is_op and _in_no_order(capture) and "put" in capture.op:
        added = max((tensor.numel() for tensor in tensors[1:]), default=0)
        if added < _GRAIN:
            yield (
                f"{added:,} elements are added, and torch spreads them over CPU threads from {_GRAIN:,} on:"
                " a race would not show"
            )


def _of_values(capture: Capture, call: RestoredCall) -> Iterator[str]:
    """Say where every sum is exact, so that no order can be told from another."""
    floats = [tensor for tensor in call.tensors if tensor.is_floating_point() and tensor.numel()]
    multiplies = capture.is_op and bool(_MULTIPLIES.search(capture.op.split(".")[1]))
    indices = [tensor for tensor in call.tensors if tensor.dtype == torch.int64]
    index = indices[0] if indices and _in_no_order(capture) else None  # else it may be anything
    unit = exact_in_any_order(floats, index, multiplies=multiplies) if floats else None
    if unit is not None and unit >= 0:
        yield "all float inputs hold whole numbers, whose sums are exact in any order: a race would not show"
    elif unit is not None:
        yield (
            f"all float inputs are multiples of 2^{unit} with sums that stay exact in any order:"
            " a race would not show"
        )


def _of_outputs(capture: Capture, call: RestoredCall, trials: int) -> Iterator[str]:
    """Say where outputs are so coarse that they round away what a race does to the float32 sums behind them.

    Of the steps from one float32 to the next, one in 2**(24 - p) is also one of a float of p bits. A race
    that moves a sum by one step changes the rounded one with that probability.
    """
    if capture.is_op and not any(map(_is_coarse, call.tensors)):
        return
    coarse = [output for output in call.run() if _is_coarse(output)]
    steps = min((2 ** (_FLOAT32_BITS - precision(output.dtype)) for output in coarse), default=0)
    elements = sum(output.numel() for output in coarse)
    if coarse and elements and trials * elements < 3 * steps:
        name = str(coarse[0].dtype).removeprefix("torch.")
        yield (
            f"outputs in {name} keep one in {steps:,} of the steps of float32: a race that moves each of the"
            f" {elements:,} sums by one step would show once in {_times(steps, elements)} trials"
        )


def _times(steps: int, elements: int) -> str:
    return f"{max(round(steps / elements), 1):,}"


def _is_coarse(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _COARSE


_COARSE: Final[Sequence[torch.dtype]] = (
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)

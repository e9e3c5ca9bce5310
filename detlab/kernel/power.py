"""Whether the trials of a call could have shown a race at all."""

from __future__ import annotations

import re
from typing import Final

import torch

from detlab.captures import Capture
from detlab.kernel.restore import RestoredCall

_ADDS_UP: Final = re.compile(
    "index_add|index_reduce|scatter_add|scatter_reduce|embedding|bincount|sum|mean|mm|mv|dot|matmul|linear|conv|"
    "norm(?!al)|softmax|attention"
)
"""Parts of the names of ops that add up floats."""


def what_hides_a_race(capture: Capture, call: RestoredCall, trials: int) -> list[str]:
    """Say what may have kept a race from showing, one sentence each."""
    found = []
    if trials == 1:
        found.append("one trial has nothing to differ from; make more")
    floats = [tensor for tensor in call.tensors if tensor.is_floating_point() and tensor.numel()]
    may_add = adds_up(capture) or not capture.is_op  # a Python function may do anything
    if may_add and floats and all(map(_is_integer_valued, floats)):
        found.append(
            "all float inputs hold whole numbers, whose sums are exact in any order: a race would not show"
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


def _is_integer_valued(tensor: torch.Tensor) -> bool:
    values = tensor.detach().double()  # trunc knows no float8
    return bool((values.trunc() == values).all())

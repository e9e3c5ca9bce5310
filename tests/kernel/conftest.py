"""Captured calls for the tests of replay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch

from detlab.captures import Capture, load_capture, save_capture
from detlab.captures.values import leaves

SITE = "1/0/backward/embedding/aten.index_put_.default#0"


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Capture]:
    """Give a function that captures a call as the recorder does, makes it, and loads the capture."""
    root, number = tmp_path_factory.mktemp("captures"), count()

    def capture(func: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Capture:
        folder = root / str(next(number))
        pending = save_capture(folder, func, args, kwargs, site=SITE, rank=0)
        with torch.no_grad():
            returned = func(*args, **kwargs)
        written = [arg.name for arg in func._schema.arguments if arg.alias_info and arg.alias_info.is_write]
        named = dict(zip((arg.name for arg in func._schema.arguments), args, strict=False)) | kwargs
        found = [*leaves(returned), *leaves([named[name] for name in written])]
        tensors = {id(leaf): leaf for leaf in found if isinstance(leaf, torch.Tensor)}
        pending.complete(list(tensors.values()))
        return load_capture(folder)

    return capture


@pytest.fixture(scope="session")
def racing(captured: Callable[..., Capture]) -> Capture:
    """Give a call that races for real: a million float32 adds into a thousand rows."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 1000, (1_000_000,), generator=generator)
    values = torch.randn(1_000_000, generator=generator)
    return captured(torch.ops.aten.index_put_.default, torch.zeros(1000), [index], values, True)

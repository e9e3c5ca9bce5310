"""The device that a test runs on, and the file with what was seen there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from detlab.captures import Capture
from tests.gpu.sightings import Sightings
from tests.kernel.conftest import captured

__all__ = ["captured"]

_SIGHTINGS = pytest.StashKey[Sightings]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty list."""
    config.stash[_SIGHTINGS] = Sightings()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was seen where ``make gpu``, or the user, wants it."""
    path, sightings = os.environ.get("DETLAB_GPU_JSON"), session.config.stash[_SIGHTINGS]
    if path and sightings:
        sightings.write(Path(path))


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Give the CPU and a CUDA device, one after the other."""
    return str(request.param)


@pytest.fixture(scope="session")
def sightings(request: pytest.FixtureRequest) -> Sightings:
    """Give the list of what was seen, to add to."""
    return request.config.stash[_SIGHTINGS]


@pytest.fixture
def captured_there(captured: Callable[..., Capture], device: str) -> Callable[..., Capture]:
    """Give a function that moves tensors to the device, captures a call of them, and makes it there."""

    def capture(func: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Capture:
        there = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, copy=True), (args, kwargs))
        return captured(func, *there[0], **there[1])

    return capture

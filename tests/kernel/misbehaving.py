"""Functions that end badly once the environment says so, as a broken kernel does to its process."""

from __future__ import annotations

import os
import signal
import time

import torch

SWITCH = "DETLAB_TEST_MISBEHAVES"


def _is_on() -> bool:
    return SWITCH in os.environ


def is_killed(x: torch.Tensor) -> torch.Tensor:
    """Run into a wild pointer."""
    if _is_on():
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * 0.5


def is_killed_at_its_third_call(x: torch.Tensor) -> torch.Tensor:
    """Give two results before it runs into a wild pointer."""
    calls = getattr(is_killed_at_its_third_call, "calls", 0) + 1
    is_killed_at_its_third_call.calls = calls  # type: ignore[attr-defined]
    return is_killed(x) if calls > 2 else x * 0.5


def hangs(x: torch.Tensor) -> torch.Tensor:
    """Wait for what never comes."""
    while _is_on():
        time.sleep(0.05)
    return x * 0.5


def hangs_after_three_calls(x: torch.Tensor) -> torch.Tensor:
    """Give three results before it waits for what never comes."""
    calls = getattr(hangs_after_three_calls, "calls", 0) + 1
    hangs_after_three_calls.calls = calls  # type: ignore[attr-defined]
    return hangs(x) if calls > 3 else x * 0.5


def raises(x: torch.Tensor) -> torch.Tensor:
    """Meet what it cannot do."""
    if _is_on():
        raise RuntimeError("no kernel image is available")
    return x * 0.5


def differs_between_processes(x: torch.Tensor) -> torch.Tensor:
    """Choose once a process, as an autotuner does."""
    return x * (0.5 + os.getpid())


def reads_what_nobody_wrote(x: torch.Tensor) -> torch.Tensor:
    """Write half of its output."""
    out = torch.empty(2, x.numel())
    out[0] = x
    return out


def refuses_one_thread(x: torch.Tensor) -> torch.Tensor:
    """Need another thread to wait for."""
    if torch.get_num_threads() == 1:
        raise RuntimeError("one thread is not enough")
    return x * 0.5

"""Other work that competes while the trials are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import torch

_BURNER: Final = """
import os, sys
parent, block = int(sys.argv[1]), bytearray(8 << 20)
sys.stdout.write("x"); sys.stdout.flush()
while os.getppid() == parent:
    for _ in range(16):
        block = bytearray(memoryview(block))
        sum(range(20_000))
"""
"""Keeps one core and the memory bus busy until it is ended or its parent is gone."""

_MAX_BURNERS: Final = 64
_NUM_STREAMS, _NUM_SPINS, _SPIN_CYCLES, _SIZE = 2, 8, 2_000_000, 2048


@contextmanager
def competing_load(device: str) -> Iterator[Callable[[], None]]:
    """Keep the device busy; give what is to be called just before every trial.

    On the CPU one process a core computes and copies, ended on leaving, also after an error. On CUDA two side
    streams multiply matrices and eight kernels of one block spin, each holding a place on an SM, so that the
    blocks of the call start in another order; they are launched anew before every trial and waited for on
    leaving.
    """
    if device == "cpu":
        with _burners(min(os.cpu_count() or 1, _MAX_BURNERS)):
            yield _nothing
        return
    streams = [torch.cuda.Stream(device) for _ in range(_NUM_STREAMS + _NUM_SPINS)]  # type: ignore[no-untyped-call]
    a = torch.ones(_SIZE, _SIZE, device=device)
    try:
        yield lambda: _launch(streams, a)
    finally:
        torch.cuda.synchronize(device)


@contextmanager
def _burners(number: int) -> Iterator[None]:
    with ExitStack() as stack:
        running = []
        for _ in range(number):
            command = [sys.executable, "-c", _BURNER, str(os.getpid())]
            process = subprocess.Popen(  # noqa: S603 - this interpreter, text of our own
                command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
            )
            stack.callback(_end, process)
            running.append(process)
        for process in running:
            assert process.stdout is not None
            process.stdout.read(1)  # it burns from here on
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _launch(streams: list[torch.cuda.Stream], a: torch.Tensor) -> None:
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            if number < _NUM_STREAMS:
                torch.mm(a, a)
            else:
                torch.cuda._sleep(_SPIN_CYCLES)  # type: ignore[no-untyped-call]


def _nothing() -> None:
    """On the CPU the load runs by itself."""

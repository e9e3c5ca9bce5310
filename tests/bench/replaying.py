"""Measure what replay adds to the bare kernel: ``python -m tests.bench replaying``.

Rates are those of `replay` and of a loop that restores the same tensors and calls the same kernel without
hashing or counting; both take turns, and the medians are compared. Memory is the largest resident size of a
process above what a replay of three numbers takes, one process a call, because it never falls. It is read
from VmHWM: ru_maxrss begins with the size of the process that started this one.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from detlab.captures import Capture, load_capture
from detlab.digest import tensor_digest
from detlab.kernel import capture as capture_call
from detlab.kernel import replay

aten = torch.ops.aten
ROUNDS: Final = 5
THREADS: Final = 2
MB: Final = 1e6
HALF_GB: Final = 1 << 27  # float32 elements


def adds() -> tuple[Any, ...]:
    """Give a million float32 adds into a thousand rows."""
    index = torch.randint(0, 1000, (1_000_000,))
    return aten.index_put_.default, torch.zeros(1000), [index], torch.randn(1_000_000), True


def product() -> tuple[Any, ...]:
    """Give a product of two matrices of 1024 x 1024."""
    return aten.mm.default, torch.randn(1024, 1024), torch.randn(1024, 1024)


def memory_bound() -> tuple[Any, ...]:
    """Give an addition of 16 million float32, which does nothing but read and write."""
    return aten.add.Tensor, torch.randn(1 << 24), torch.randn(1 << 24)


def large_in_place() -> tuple[Any, ...]:
    """Give an addition into one of two tensors of half a gigabyte each."""
    return aten.add_.Tensor, torch.ones(HALF_GB), torch.ones(HALF_GB)


def large_output() -> tuple[Any, ...]:
    """Give an addition of two tensors of half a gigabyte that gives a third."""
    return aten.add.Tensor, torch.ones(HALF_GB), torch.ones(HALF_GB)


def large_sum() -> tuple[Any, ...]:
    """Give a sum over a gigabyte."""
    return aten.sum.default, torch.ones(2 * HALF_GB)


RATES: Final = {
    "index_put_, 1M adds": (adds, 20),
    "matmul, 1024 x 1024": (product, 20),
    "add, 64 MB output": (memory_bound, 10),
}
LARGE: Final = {"add_, in place": large_in_place, "add": large_output, "sum": large_sum}


def captured(make: Callable[[], tuple[Any, ...]], folder: Path) -> Capture:
    """Capture a call."""
    torch.manual_seed(1)
    func, *arguments = make()
    return capture_call(func, *arguments, path=folder)


def bare_seconds(make: Callable[[], tuple[Any, ...]], trials: int) -> float:
    """Give the time of calls in a loop that copies the mutated argument back before each."""
    torch.manual_seed(1)
    func, *arguments = make()
    mutated = [arguments[0]] if func._schema.is_mutable else []
    pristine = [tensor.clone() for tensor in mutated]
    with torch.no_grad():
        func(*arguments)
        start = time.perf_counter()
        for _ in range(trials):
            for tensor, kept in zip(mutated, pristine, strict=True):
                tensor.copy_(kept)
            func(*arguments)
    return time.perf_counter() - start


def replay_seconds(capture: Capture, trials: int) -> float:
    """Give the time of the trials of a replay without its first, which also reads the capture from disk."""
    times: list[float] = []
    replay(capture, trials=trials + 1, threads=THREADS, progress=lambda _: times.append(time.perf_counter()))
    return times[-1] - times[1]  # the first is told before any trial


def hash_seconds(make: Callable[[], tuple[Any, ...]], trials: int) -> float:
    """Give the time of hashing what the call gives."""
    func, *arguments = make()
    output = func(*arguments)
    start = time.perf_counter()
    for _ in range(trials):
        tensor_digest(output)
    return time.perf_counter() - start


def print_rates(folder: Path) -> None:
    """Print trials per second over those of the bare kernel."""
    print(f"\nreplaying, {THREADS} threads, medians of {ROUNDS}: trials/s over the bare kernel in a loop")
    for number, (name, (make, trials)) in enumerate(RATES.items()):
        capture = captured(make, folder / f"rate{number}")
        taken: dict[str, list[float]] = {"bare": [], "replay": [], "hash": []}
        for _ in range(ROUNDS):
            taken["bare"].append(bare_seconds(make, trials))
            taken["replay"].append(replay_seconds(capture, trials))
            taken["hash"].append(hash_seconds(make, trials))
        bare, made, hashed = (1000 * statistics.median(times) / trials for times in taken.values())
        print(
            f"  {name:<22} {bare / made:>6.2f}   bare {bare:>6.1f} ms, replay {made:>6.1f} ms a trial,"
            f" of which hashing the output {hashed:>5.1f} ms"
        )


def print_memory(folder: Path) -> None:
    """Print the memory that replays of a gigabyte take over that of what they must hold."""
    print("\nreplaying 1 GB, largest resident memory over inputs + outputs + a copy of what is mutated")
    for number, (name, make) in enumerate(LARGE.items()):
        place = folder / f"large{number}"
        subprocess.run([sys.executable, "-m", __spec__.name, "capture", name, str(place)], check=True)
        command = [sys.executable, "-m", __spec__.name, "measure", str(place)]
        taken = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        held = must_hold(make)
        print(f"  {name:<22} {taken / held:>6.2f}   {taken / MB:>6,.0f} MB of {held / MB:,.0f} MB")


def must_hold(make: Callable[[], tuple[Any, ...]]) -> float:
    """Give the bytes of inputs, outputs and one copy of what the call mutates; nothing is allocated."""
    with torch.device("meta"):
        func, *arguments = make()
        output = func(*arguments)
    inputs = sum(tensor.nbytes for tensor in arguments)
    return float(inputs + output.nbytes)  # in place the output is an input, and its copy is held


def measure(place: str) -> None:
    """Print how many bytes a replay adds to the largest resident size of this process."""
    with tempfile.TemporaryDirectory() as folder:  # replay loads its libraries with the first call
        replay(capture_call(aten.neg.default, torch.ones(3), path=Path(folder) / "small"), trials=3)
    before = largest_resident()
    replay(load_capture(place), trials=3, threads=THREADS)
    print(largest_resident() - before)


def largest_resident() -> int:
    """Give the largest resident size of this process so far, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    assert found is not None
    return 1024 * int(found[1])


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        print_rates(Path(folder))
        print_memory(Path(folder))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["capture", name, place]:
            captured(LARGE[name], Path(place))
        case ["measure", place]:
            measure(place)
        case _:
            main()

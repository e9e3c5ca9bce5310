"""Measure a recorded training step against an untraced one: ``python -m tests.bench.recorder``.

A Megatron-Core GPT of 3.7 million parameters, one process, two threads, whole steps with the optimizer;
all ways of recording take turns in one process, and the medians are compared. Waiting threads sleep
instead of spinning, so that the figures mean something on a machine with other work.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detlab.record import Recorder
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.training import Recipe, build, random_batches, set_up, step

WAYS: dict[str, dict[str, Any] | None] = {
    "untraced": None,
    "inputs and outputs": {},
    "outputs only, no views": {"inputs": False, "views": False},
    "with statistics": {"stats": True},
}
RECIPE = Recipe(
    num_layers=4,
    hidden=256,
    num_heads=4,
    sequence=256,
    vocabulary=1024,
    num_microbatches=1,
    num_threads=2,
    distributed_optimizer=False,
    overlap=False,
)


def measure(num_rounds: int) -> dict[str, tuple[float, int, int]]:
    """Give for each way the median seconds of a step, its events and its bytes on disk."""
    set_up(RECIPE)
    chunk, optimizer = build(RECIPE)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    sizes: dict[str, tuple[int, int]] = dict.fromkeys(WAYS, (0, 0))
    for number in range(num_rounds + 1):
        for way, options in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                with _recording(folder, options, chunk, optimizer) as rec:
                    batches = random_batches(RECIPE)
                    step(RECIPE, chunk, optimizer, batches, rec)
                    start = time.perf_counter()
                    step(RECIPE, chunk, optimizer, batches, rec)
                    taken = time.perf_counter() - start
                sizes[way] = _size(Path(folder))
            if number:  # the first round warms up
                times[way].append(taken)
    return {way: (statistics.median(times[way]), *sizes[way]) for way in WAYS}


@contextmanager
def _recording(folder: str, options: dict[str, Any] | None, chunk: Any, optimizer: Any) -> Iterator[Recorder]:
    ranks = "9" if options is None else None  # a rank that is not selected is not traced
    with Recorder(folder, ranks=ranks, **(options or {})) as rec:
        rec.attach([chunk], optimizer)
        yield rec


def _size(folder: Path) -> tuple[int, int]:
    from detlab.store import open_rank

    if not (folder / "manifest.json").exists():
        return 0, 0
    num_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return open_rank(folder, 0).num_events // 2, num_bytes // 2


def main(num_rounds: int = 9) -> None:
    """Print the table."""
    os.environ["OMP_WAIT_POLICY"] = "passive"
    (rows,) = run_on_ranks(1, measure, num_rounds, timeout_s=600)
    base = rows["untraced"][0]
    print(f"{'':24} {'ms/step':>8} {'ratio':>6} {'events':>7} {'kB/step':>8}")
    for way, (seconds, num_events, num_bytes) in rows.items():
        print(f"{way:24} {seconds * 1e3:8.0f} {seconds / base:6.2f} {num_events:7} {num_bytes / 1e3:8.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""How fast console logs are read: beside ``grep -c`` and beside a loop over the lines in Python.

All figures are megabytes per CPU-second over all threads, the best of a few repeats. The logs are synthetic:
records as Megatron writes them with all fields, alone or one in twenty lines among those of other ranks.
"""

from __future__ import annotations

import itertools
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from detlab import load_run

LOG_BYTES = 200_000_000
REPEATS = 3

NOISE = [
    "[default0]:(min, max) time across ranks (ms):\n",
    "    forward-backward ...............................: (4687.59, 4725.48)\n",
    "[rank3]:W1130 12:00:00.000000 123 torch/distributed/run.py:766] one thread per process is the default\n",
    "nodeA:123:456 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n",
]

FIELD = re.compile(r"\| ([^|:]+): +([^|]+?) (?=\|)")


def write_log(path: Path, lines_per_record: int) -> Path:
    """Write a log of about `LOG_BYTES`."""
    rng = np.random.default_rng(0)
    losses, norms = rng.random(1_000_000) + 2, rng.random(1_000_000)
    written, noise = 0, itertools.cycle(NOISE)
    with path.open("w") as log:
        for step in itertools.count(1):
            record = (
                f" [2026-09-14 15:08:27.123456] iteration {step:8d}/ 1000000 |"
                f" consumed samples: {128 * step:12d} |"
                f" elapsed time per iteration (ms): 6922.3 | throughput per GPU (TFLOP/s/GPU): 62.0 |"
                f" learning rate: 1.289062E-04 | global batch size:   128 | lm loss: {losses[step]:.6E} |"
                f" loss scale: 1.0 | grad norm: {norms[step]:.3f} | num zeros: 760881152.0 |"
                f" params norm: 2241.466 |"
                f" number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            )
            written += log.write(record + "".join(itertools.islice(noise, lines_per_record - 1)))
            if written > LOG_BYTES:
                return path
    raise AssertionError("the steps never end")


def line_loop(path: Path) -> int:
    """Read the records as a script would: line by line, with a regular expression."""
    rows = []
    with path.open(encoding="utf-8", errors="replace") as log:
        for line in log:
            if found := re.search(r"iteration +(\d+)/", line):
                step = int(found[1])
                rows += [(step, name, float(text)) for name, text in FIELD.findall(line)]
    return len(rows)


def rate(work: Callable[[], object], who: int) -> float:
    """Give the best megabytes per CPU-second of this process or of its children."""

    def seconds() -> float:
        used = resource.getrusage(who)
        return used.ru_utime + used.ru_stime

    taken = []
    for _ in range(REPEATS):
        start = seconds()
        work()
        taken.append(seconds() - start)
    return LOG_BYTES / 1e6 / min(taken)


def main() -> None:
    """Print the table."""
    print(f"\nreading a log of {LOG_BYTES // 1_000_000} MB, MB per CPU-second, best of {REPEATS}")
    with tempfile.TemporaryDirectory() as folder:
        for what, lines_per_record in (("one line in twenty a record", 20), ("every line a record", 1)):
            path = write_log(Path(folder) / "train.log", lines_per_record)
            ours = rate(lambda path=path: load_run(path), resource.RUSAGE_SELF)
            loop = rate(lambda path=path: line_loop(path), resource.RUSAGE_SELF)
            count = ["grep", "-c", "iteration .*lm loss:", str(path)]
            grep = rate(
                lambda count=count: subprocess.run(count, check=True, capture_output=True),
                resource.RUSAGE_CHILDREN,
            )
            print(f"  {what}")
            for name, figure in (
                ("detlab.load_run", ours),
                ("a line loop in Python", loop),
                ("grep -c", grep),
            ):
                print(f"    {name:<40} {figure:>12.1f}")


if __name__ == "__main__":
    main()

"""How fast checkpoints are compared beside hashing the same files, and how much memory it takes.

All figures are gigabytes of both checkpoints per CPU-second, the best of a few repeats; the files are in the
page cache. The yardstick reads every file of both from its beginning to its end into one buffer of 1 MiB and
feeds it to xxh3-64. Peak memory is that of a process of its own that opens and compares 4 GB of checkpoint
with 4 GB; mapped pages count.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from xxhash import xxh3_64

from detlab.checks.checkpoints import compare_checkpoints, open_checkpoint
from tests.checks.checkpoints.saved import safetensors
from tests.megatron_cpu.processes import run_on_ranks

WIDTH = 4096
TENSOR_BYTES = WIDTH * WIDTH * 2
NUM_TENSORS = 16
LARGE_BYTES = 4_000_000_000
REPEATS = 3

PEAK = """
import resource, sys
from pathlib import Path
status = Path("/proc/self/status")  # there the peak is of this program, not of what started it
lines = status.read_text().splitlines() if status.exists() else []
peak = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
print(peak[0] if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
COMPARE = (
    """
import sys
from detlab.checks.checkpoints import compare_checkpoints, open_checkpoint
frame = compare_checkpoints(open_checkpoint(sys.argv[1]), open_checkpoint(sys.argv[2]))
assert frame["state"].to_list().count("different") == 1, frame
"""
    + PEAK
)
IMPORTS = "import torch, polars\n" + PEAK


def state(folder: Path, num_tensors: int, *, changed: bool, seed: int = 0) -> dict[str, torch.Tensor]:
    """Give tensors that each have a storage of their own, mapped from one file."""
    data = folder / f"data{seed}"
    if not data.exists():
        data.write_bytes(np.random.default_rng(seed).bytes(TENSOR_BYTES))
    tensors = {
        f"layers.{number}.weight": torch.from_file(
            str(data), shared=False, size=WIDTH * WIDTH, dtype=torch.bfloat16
        )
        for number in range(num_tensors)
    }
    if changed:  # a private page of one tensor
        tensors[f"layers.{num_tensors - 1}.weight"].view(torch.int16)[-1] ^= 1
    return {name: tensor.view(WIDTH, WIDTH) for name, tensor in tensors.items()}


def save_sharded(folder: str, data: str, axis: int) -> None:
    """Save on this rank of several, every tensor cut along an axis."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    whole = state(Path(data), NUM_TENSORS, changed=bool(axis))
    dcp.save(
        {name: distribute_tensor(each, mesh, [Shard(axis)]) for name, each in whole.items()},
        checkpoint_id=folder,
    )


def save_distributed(folder: Path, tensors: Mapping[str, Any]) -> Path:
    """Save in this one process."""
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(dict(tensors), checkpoint_id=str(folder), no_dist=True)
    return folder


def save(path: Path, tensors: Mapping[str, Any]) -> Path:
    """Save with torch.save."""
    torch.save(dict(tensors), path)
    return path


def files(*paths: Path) -> list[Path]:
    """Give the files of checkpoints."""
    return [
        each
        for path in paths
        for each in ([path] if path.is_file() else sorted(path.rglob("*")))
        if each.is_file()
    ]


def hash_files(paths: list[Path]) -> None:
    """Hash files from their beginnings to their ends."""
    buffer = memoryview(bytearray(1 << 20))
    for path in paths:
        digest = xxh3_64()
        with path.open("rb", buffering=0) as file:
            while num := file.readinto(buffer):
                digest.update(buffer[:num])
        digest.digest()


def rate(work: Callable[[], object], num_bytes: int) -> float:
    """Give the best gigabytes per CPU-second, over all threads."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return num_bytes / 1e9 / min(taken)


def pairs(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Write what is compared."""
    one, other = (state(folder, NUM_TENSORS, changed=changed) for changed in (False, True))
    noise = state(folder, NUM_TENSORS, changed=False, seed=1)
    run_on_ranks(4, save_sharded, str(folder / "rows"), str(folder), 0)
    run_on_ranks(2, save_sharded, str(folder / "columns"), str(folder), 1)
    plain, changed = save(folder / "a.pt", one), save(folder / "b.pt", other)
    dist = save_distributed(folder / "a", one)
    turned = save(folder / "turned.pt", {name: each.t().contiguous().t() for name, each in other.items()})
    return {
        "torch.save": (plain, changed),
        "torch.distributed.checkpoint": (dist, save_distributed(folder / "b", other)),
        "the same, 4 ranks by rows beside 2 by columns": (folder / "rows", folder / "columns"),
        "the same, one rank beside 2 by columns": (dist, folder / "columns"),
        "safetensors": tuple(
            safetensors(folder / f"{name}.safetensors", each) for name, each in (("a", one), ("b", other))
        ),  # type: ignore[dict-item]
        "one side lies transposed in its file": (plain, turned),
        "every element differs": (plain, save(folder / "noise.pt", noise)),
    }


def throughput(folder: Path) -> None:
    """Print how fast each pair is compared."""
    for what, (a, b) in pairs(folder).items():
        size = sum(path.stat().st_size for path in files(a, b))
        ours = rate(lambda a=a, b=b: compare_checkpoints(open_checkpoint(a), open_checkpoint(b)), size)
        theirs = rate(lambda a=a, b=b: hash_files(files(a, b)), size)
        print(f"    {what:<46} {ours:>8.2f} {theirs:>8.2f} {ours / theirs:>8.2f}")


def peak_mb(script: str, *paths: Path) -> float:
    """Give the peak resident memory of a process that runs a script."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)], check=True, capture_output=True, text=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * unit / 1e6


def memory(folder: Path) -> None:
    """Print the peak memory of comparing large checkpoints."""
    nothing, imports = peak_mb(PEAK), peak_mb(IMPORTS)
    print(f"    {'importing torch and polars alone':<46} {imports - nothing:>8.0f}")
    writers: dict[str, Callable[..., Path]] = {
        "torch.save": save,
        "torch.distributed.checkpoint": save_distributed,
    }
    for what, write in writers.items():
        with tempfile.TemporaryDirectory(dir=folder) as place:
            number = LARGE_BYTES // TENSOR_BYTES
            a, b = (write(Path(place) / str(c), state(Path(place), number, changed=c)) for c in (False, True))
            print(f"    {what:<46} {peak_mb(COMPARE, a, b) - nothing:>8.0f}")


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as name:
        size = 2 * NUM_TENSORS * TENSOR_BYTES / 1e9
        print(f"\ncomparing {size:.1f} GB of checkpoints, GB per CPU-second, best of {REPEATS}")
        print(f"    {'':<46} {'detlab':>8} {'xxh3':>8} {'ratio':>8}")
        throughput(Path(name))
    with tempfile.TemporaryDirectory() as name:
        print(f"  peak memory above the interpreter with {LARGE_BYTES / 1e9:.0f} GB beside as much, MB")
        memory(Path(name))


if __name__ == "__main__":
    main()

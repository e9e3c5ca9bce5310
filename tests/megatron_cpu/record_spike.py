"""Record sample_traces/spike/: a loss spike that a machine made, and one that the data made.

Both are real: one bit is flipped in memory while training, and one page of a shard is lost on its way
to the disk. Nothing in the logs is written by hand; the names of the hosts are made up.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl

from detlab import load_run
from tests.megatron_cpu.logged import Flip, Job, samples_per_step, train_logged
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.training import Recipe

README = Path(__file__).parent / "readmes" / "spike.md"
RECIPE = Recipe(
    distributed_optimizer=False,
    overlap=False,
    hidden=64,
    sequence=32,
    microbatch_size=32,
    num_microbatches=1,
    num_steps=320,
    learning_rate=4e-3,
    adam_beta2=0.95,
)
OTHER_SEED = 4
SAVE_INTERVAL = 50
STOP_AFTER = 209
"""Monday's first process is gone after this step; the second goes on from the checkpoint before it."""
FLIP = Flip(step=217, group=1, bit=55)
"""An exponent bit: the learning rate of norms and biases is 256 times as high for the update of one step."""
NUM_SHARDS = 4
PAGE_BYTES = 4096
DAMAGED_SHARD, DAMAGED_PAGE = 2, 9
"""The page that reads as zeros."""


def record_spike(folder: Path) -> None:
    """Train four times, check what the logs show, and describe it."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        shards = write_shards(Path(scratch))
        losses = {name: str(folder / f"{name}.losses.txt") for name in ("monday", "rerun")}
        losses.update({name: str(Path(scratch) / f"{name}.losses.txt") for name in ("data", "data_rerun")})

        def train(name: str, host: str, **changes: object) -> None:
            job = Job(RECIPE, shards, host, str(folder / f"{name}.log"), losses[name], scratch, SAVE_INTERVAL)
            run_on_ranks(1, train_logged, replace(job, **changes), timeout_s=600)  # type: ignore[arg-type]

        train("monday", "n1", stop_after=STOP_AFTER)
        train("monday", "n1", resume=True, flip=FLIP)
        train("rerun", "n2")
        lose_page(Path(shards[DAMAGED_SHARD]))
        other = replace(RECIPE, seed=OTHER_SEED)
        train("data", "n1", recipe=other)
        train("data_rerun", "n2", recipe=other)
    check_spike(folder)
    (folder / "README.md").write_text(describe(), "utf-8")


def write_shards(folder: Path) -> tuple[str, ...]:
    """Write tokens that can be learnt: each depends on the one before it."""
    rng = np.random.default_rng(1)
    chances = np.exp(3.5 * rng.normal(size=(RECIPE.vocabulary, RECIPE.vocabulary)))
    ends = (chances / chances.sum(axis=1, keepdims=True)).cumsum(axis=1)
    tokens = np.zeros(RECIPE.num_steps * tokens_per_step(), np.uint8)
    for place, draw in enumerate(rng.random(len(tokens) - 1)):
        tokens[place + 1] = min(np.searchsorted(ends[tokens[place]], draw), RECIPE.vocabulary - 1)
    paths = tuple(folder / f"shard_{number:02d}.bin" for number in range(NUM_SHARDS))
    for path, part in zip(paths, np.split(tokens, NUM_SHARDS), strict=True):
        path.write_bytes(part.tobytes())
    return tuple(map(str, paths))


def tokens_per_step() -> int:
    """Count the tokens that a step reads; each sequence has one more than the model is given."""
    return samples_per_step(RECIPE) * (RECIPE.sequence + 1)


def lose_page(shard: Path) -> None:
    """Overwrite one page of a file with zeros, as a lost write leaves it."""
    with shard.open("r+b") as file:
        file.seek(DAMAGED_PAGE * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))


def damaged_steps() -> range:
    """Give the steps that read from the lost page."""
    start = DAMAGED_SHARD * RECIPE.num_steps // NUM_SHARDS * tokens_per_step() + DAMAGED_PAGE * PAGE_BYTES
    return range(start // tokens_per_step() + 1, (start + PAGE_BYTES - 1) // tokens_per_step() + 2)


def printed(path: Path) -> pl.DataFrame:
    """Give the loss and grad norm of each step, as printed, from the process that came last."""
    rows = load_run(path).metrics.filter(pl.col("name").cast(pl.String).is_in(["lm loss", "grad norm"]))
    rows = rows.filter(pl.col("segment") == pl.col("segment").max().over("step"))
    return rows.pivot("name", index="step", values="value").sort("step")


def last_losses(path: Path) -> list[str]:
    """Give the text of each step's loss to its last bit, from the process that came last."""
    losses = dict(line.split() for line in path.read_text("utf-8").splitlines())
    return [losses[str(step)] for step in range(1, RECIPE.num_steps + 1)]


def check_spike(folder: Path) -> None:
    """Make sure that the logs show what the README says."""
    logs = {name: printed(folder / f"{name}.log") for name in ("monday", "rerun", "data", "data_rerun")}
    for name, log in logs.items():
        assert log["step"].to_list() == list(range(1, RECIPE.num_steps + 1)), f"{name} lacks steps"
    monday, rerun, data = logs["monday"], logs["rerun"], logs["data"]
    assert monday[: FLIP.step].equals(rerun[: FLIP.step]), "monday and rerun differ before the fault"
    assert data.equals(logs["data_rerun"]), "data and data_rerun differ"
    exact = {name: last_losses(folder / f"{name}.losses.txt") for name in ("monday", "rerun")}
    assert exact["monday"][: FLIP.step] == exact["rerun"][: FLIP.step], "the losses differ before the fault"
    expected = {"monday": FLIP.step + 1, "rerun": None, "data": damaged_steps()[0]}
    for name, step in expected.items():
        assert first_rise(logs[name]) == step, f"{name} rises at {first_rise(logs[name])}"
    end = abs(monday["lm loss"] - rerun["lm loss"])[-20:].max()
    assert isinstance(end, float) and end < 0.1, f"monday ends {end} from rerun: it has not recovered"


def first_rise(log: pl.DataFrame) -> int | None:
    """Give the first step whose loss and grad norm leave what they were in the 20 steps before, upwards."""
    before = {name: pl.col(name).shift(1).rolling_max(20) for name in ("lm loss", "grad norm")}
    far = [pl.col(name) > 1.15 * height for name, height in before.items()]
    steps = log.filter(far)["step"]
    return int(steps[0]) if len(steps) else None


def describe() -> str:
    """Write the README of the sample."""
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "megatron-core"))
    steps = damaged_steps()
    return README.read_text("utf-8").format(
        fault=FLIP.step,
        onset=FLIP.step + 1,
        stop_after=STOP_AFTER,
        checkpoint=STOP_AFTER // SAVE_INTERVAL * SAVE_INTERVAL,
        first_damaged=steps[0],
        last_damaged=steps[-1],
        page=DAMAGED_PAGE,
        shard=DAMAGED_SHARD,
        bit=FLIP.bit,
        other_seed=OTHER_SEED,
        num_tokens=samples_per_step(RECIPE) * RECIPE.sequence,
        versions=versions,
        **asdict(RECIPE),
    )

"""Some hundred steps of a tiny Megatron-Core GPT, logged as Megatron-LM's training loop logs them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import torch

from tests.megatron_cpu.training import Recipe, build, compute_gradients, set_up


@dataclass(frozen=True)
class Flip:
    """One bit that turns over in memory: of a learning rate, after the backward of a step, before its update.

    The schedule writes the learning rate anew after each step, so that it is gone with the step.

    Attributes
    ----------
    step
        The step in which it happens.
    group
        Which learning rate: 0 for weights, 1 for what has no weight decay, which are norms and biases.
    bit
        Which of its 64 bits, from the lowest.
    """

    step: int
    group: int
    bit: int


@dataclass(frozen=True)
class Job:
    """One process of training: what it starts from, and what it leaves.

    Attributes
    ----------
    recipe, shards
        What is trained, and the files of tokens, one byte each, that are read from the first to the last.
    host
        The name that stands before each line of the log.
    log, losses
        Files to append to: the console log, and the losses to their last bit.
    checkpoints, save_interval
        Folder to save in, and after how many steps.
    resume
        Whether to go on from the last checkpoint.
    stop_after
        The step after which the process is gone, as if it were killed; 0 for the end of the recipe.
    flip
        The bit that turns over, if one does.
    """

    recipe: Recipe
    shards: tuple[str, ...]
    host: str
    log: str
    losses: str
    checkpoints: str
    save_interval: int
    resume: bool = False
    stop_after: int = 0
    flip: Flip | None = None


def train_logged(job: Job) -> None:
    """Train in this process, and write the log."""
    set_up(job.recipe)
    chunk, optimizer = build(job.recipe)
    schedule = build_schedule(job.recipe, optimizer)
    with Path(job.log).open("a") as log, Path(job.losses).open("a") as losses:
        console = Console(log, job.host)
        console.say_arguments(job.recipe)
        done = load(job, chunk, optimizer, schedule, console) if job.resume else 0
        batches = read_batches(job, done)
        console.say_when("[before the start of training step]")
        for step in range(done + 1, (job.stop_after or job.recipe.num_steps) + 1):
            start = time.perf_counter()
            loss = compute_gradients(job.recipe, chunk, optimizer, batches)
            if job.flip and job.flip.step == step:
                turn_over(job.flip, optimizer)
            _, grad_norm, _ = optimizer.step()
            schedule.step(increment=samples_per_step(job.recipe))
            losses.write(f"{step} {loss!r}\n")
            times_and_rate = (time.perf_counter() - start) * 1e3, optimizer.param_groups[0]["lr"]
            console.say(record(job.recipe, step, *times_and_rate, loss, float(grad_norm)))
            if step % job.save_interval == 0:
                save(job, step, chunk, optimizer, schedule, console)
        if not job.stop_after:
            console.say_when("[after training is done]")


class Console:
    """A log whose lines name the host and the process on it."""

    def __init__(self, file: TextIO, host: str) -> None:
        self.file, self.prefix = file, f"[{host}:0]: "

    def say(self, text: str) -> None:
        """Write one line."""
        self.file.write(f"{self.prefix}{text}\n")

    def say_when(self, text: str) -> None:
        """Write one line with the time."""
        self.say(f"{text} datetime: {datetime.now():%Y-%m-%d %H:%M:%S} ")

    def say_arguments(self, recipe: Recipe) -> None:
        """List the recipe."""
        self.say("------------------------ arguments ------------------------")
        for name, value in sorted(asdict(recipe).items()):
            self.say(f"  {name} {'.' * (48 - len(name))} {value}")
        self.say("-------------------- end of arguments ---------------------")


def record(recipe: Recipe, step: int, elapsed_ms: float, rate: float, loss: float, grad_norm: float) -> str:
    """Write one record as Megatron-LM's ``training_log`` does."""
    size = samples_per_step(recipe)
    fields = [
        f" [{datetime.now():%Y-%m-%d %H:%M:%S.%f}] iteration {step:8d}/{recipe.num_steps:8d}",
        f"consumed samples: {step * size:12d}",
        f"elapsed time per iteration (ms): {elapsed_ms:.1f}",
        f"learning rate: {rate:.6E}",
        f"global batch size: {size:5d}",
        f"lm loss: {loss:.6E}",
        "loss scale: 1.0",
        f"grad norm: {grad_norm:.3f}",
        "number of skipped iterations:   0",
        "number of nan iterations:   0",
    ]
    return " | ".join(fields) + " |"


def samples_per_step(recipe: Recipe) -> int:
    """Count the sequences of one step."""
    return recipe.microbatch_size * recipe.num_microbatches


def build_schedule(recipe: Recipe, optimizer: Any) -> Any:
    """Build Megatron's schedule of the learning rate: a short warm-up, then a cosine."""
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    num_samples = recipe.num_steps * samples_per_step(recipe)
    return OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=recipe.learning_rate,
        min_lr=recipe.learning_rate / 10,
        lr_warmup_steps=num_samples // 20,
        lr_decay_steps=num_samples,
        lr_decay_style="cosine",
        start_wd=0.01,
        end_wd=0.01,
        wd_incr_steps=0,
        wd_incr_style="constant",
    )


def read_batches(job: Job, num_done: int) -> Iterator[torch.Tensor]:
    """Give the microbatches in the order of the shards, from the first that no step has consumed."""
    recipe = job.recipe
    size = recipe.microbatch_size * (recipe.sequence + 1)
    content = bytearray(b"".join(Path(shard).read_bytes() for shard in job.shards))
    tokens = torch.frombuffer(content, dtype=torch.uint8)
    for start in range(num_done * recipe.num_microbatches * size, len(tokens) - size + 1, size):
        yield tokens[start : start + size].view(recipe.microbatch_size, -1).long()


def turn_over(flip: Flip, optimizer: Any) -> None:
    """Flip one bit of a learning rate in memory."""
    group = optimizer.param_groups[flip.group]
    (bits,) = struct.unpack("<Q", struct.pack("<d", group["lr"]))
    (group["lr"],) = struct.unpack("<d", struct.pack("<Q", bits ^ (1 << flip.bit)))


def save(job: Job, step: int, chunk: Any, optimizer: Any, schedule: Any, console: Console) -> None:
    """Save all that the next step depends on."""
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    console.say(f"saving checkpoint at iteration {step:7d} to checkpoints in torch format")
    content = {
        "step": step,
        "model": chunk.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "generators": {**get_cuda_rng_tracker().get_states(), "default": torch.get_rng_state()},
    }
    torch.save(content, Path(job.checkpoints) / "last.pt")
    console.say(f"  successfully saved checkpoint from iteration {step:7d} to checkpoints [ t 1/1, p 1/1 ]")


def load(job: Job, chunk: Any, optimizer: Any, schedule: Any, console: Console) -> int:
    """Load the last checkpoint; give its step."""
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    content = torch.load(Path(job.checkpoints) / "last.pt", weights_only=True)
    step: int = content["step"]
    console.say(f" loading checkpoint from checkpoints at iteration {step}")
    chunk.module.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    schedule.load_state_dict(content["schedule"])
    generators = content["generators"]
    torch.set_rng_state(generators.pop("default"))
    get_cuda_rng_tracker().set_states(generators)
    console.say(f"  successfully loaded checkpoint from checkpoints [ t 1/1, p 1/1 ] at iteration {step}")
    return step

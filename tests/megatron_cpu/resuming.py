"""Train a tiny Megatron-Core GPT, save it with Megatron's own checkpoints, and go on in new processes.

What a resume has to bring back is brought back component by component, so that each can be left out: such
a resume trains on without an error, and is what a check has to catch.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from detlab.record import Recorder
from tests.megatron_cpu.logged import build_schedule, samples_per_step
from tests.megatron_cpu.training import Recipe, build, compute_gradients, random_batches, set_up

COMPONENTS: Final = (
    "parameters",
    "master weights",
    "moments",
    "optimizer step",
    "param groups",
    "rng",
    "scheduler",
    "loss scale",
    "data position",
)
"""What can be left out of a resume; there is a loss scale in fp16 alone."""


@dataclass(frozen=True)
class Job:
    """One process of training on every rank: what it starts from, and what it leaves in its folder.

    Attributes
    ----------
    recipe
        What is trained; its steps are those of the whole training.
    folder
        Where the trace goes, and checkpoints in a folder for each sharding: of the step ``save_at``
        (``checkpoint``), of the state right after loading (``loaded``) and of the end (``end``).
    shardings
        What to save as: Megatron's ``distrib_optim_sharding_type``; the first is that of ``load``.
    save_at
        Save after this step; 0: only at the end.
    load
        The checkpoint to go on from; empty to start anew.
    without
        Components that are not brought back.
    seeds_again
        Seed torch's generator once more when everything is loaded, as the start of a data loader can.
    options
        Arguments of the recorder.
    """

    recipe: Recipe
    folder: str
    shardings: tuple[str, ...] = ("dp_reshardable",)
    save_at: int = 0
    load: str = ""
    without: tuple[str, ...] = ()
    seeds_again: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Training:
    """Everything that a step depends on and changes.

    Attributes
    ----------
    chunk, optimizer, schedule
        Megatron's model in its wrapper, optimizer and schedule of the learning rate.
    iteration, consumed
        How many steps are done, and how many sequences they have read on all data-parallel ranks.
    is_fresh
        Whether it was saved or loaded, and nothing was computed since.
    """

    recipe: Recipe
    chunk: Any
    optimizer: Any
    schedule: Any
    iteration: int = 0
    consumed: int = 0
    is_fresh: bool = False


def run(job: Job) -> list[float]:
    """Train in this process, from the start or from a checkpoint; give the losses of its steps."""
    torch.use_deterministic_algorithms(True)  # also fills what Megatron pads its saved buffers with
    set_up(job.recipe)
    random.seed(job.recipe.seed)
    np.random.seed(job.recipe.seed)
    chunk, optimizer = build(job.recipe)
    training = Training(job.recipe, chunk, optimizer, build_schedule(job.recipe, optimizer))
    folder = Path(job.folder)
    if job.load:
        load(training, job.load, job.shardings[0], job.without)
        save(training, folder / "loaded", job.shardings)
    with Recorder(folder / "trace", start_step=training.iteration + 1, **job.options) as rec:
        rec.attach([chunk], optimizer)
        losses = list(train(training, job, rec))
    save(training, folder / "end", job.shardings)
    return losses


def train(training: Training, job: Job, rec: Recorder) -> Iterator[float]:
    """Make the steps that are left, and give the loss of each."""
    recipe = training.recipe
    if job.load:
        snapshot(rec, "loaded", training)
    if job.seeds_again:
        torch.manual_seed(recipe.seed)
    batches = batches_from(training, rec)
    while training.iteration < recipe.num_steps:
        loss = compute_gradients(recipe, training.chunk, training.optimizer, batches)
        _, grad_norm, _ = training.optimizer.step()
        training.schedule.step(increment=samples_per_step(recipe))
        training.iteration += 1
        training.consumed += samples_per_step(recipe) * data_parallel_size()
        rec.metric("lm loss", loss)
        rec.metric("grad norm", float(grad_norm))
        rec.metric("learning rate", training.optimizer.param_groups[0]["lr"])
        if training.iteration == job.save_at:
            save(training, Path(job.folder) / "checkpoint", job.shardings)
            snapshot(rec, "saved", training)
        yield loss


def snapshot(rec: Recorder, moment: str, training: Training) -> None:
    """Write the state that the next step begins with."""
    rec.snapshot(
        moment,
        [training.chunk],
        training.optimizer,
        scheduler=training.schedule.state_dict(),
        data_position={"iteration": training.iteration, "consumed_train_samples": training.consumed},
    )
    training.is_fresh = True


def data_parallel_size() -> int:
    """Count the data-parallel ranks."""
    from megatron.core import parallel_state

    return int(parallel_state.get_data_parallel_world_size())


def batches_from(training: Training, rec: Recorder) -> Iterator[torch.Tensor]:
    """Give the microbatches that no step has read; write the first of them after saving and loading."""
    batches = random_batches(training.recipe)
    for _ in range(training.consumed // (training.recipe.microbatch_size * data_parallel_size())):
        next(batches)
    for tokens in batches:
        if training.is_fresh:
            rec.snapshot("first use", data_order={"tokens": tokens})
            training.is_fresh = False
        yield tokens


def save(training: Training, folder: Path, shardings: tuple[str, ...]) -> None:
    """Save with Megatron's distributed checkpoints, in the shape of Megatron-LM's."""
    from megatron.core import dist_checkpointing

    for sharding in shardings:
        if torch.distributed.get_rank() == 0:
            (folder / sharding).mkdir(parents=True)
        torch.distributed.barrier()
        state = sharded_state(training, sharding, is_loading=False)
        dist_checkpointing.save(state, str(folder / sharding))


def sharded_state(training: Training, sharding: str, *, is_loading: bool) -> dict[str, Any]:
    """Give everything to be saved, or the places that a checkpoint is loaded into."""
    metadata = {"distrib_optim_sharding_type": sharding}
    model = training.chunk.module.sharded_state_dict(metadata=metadata)
    done = Namespace(iteration=training.iteration, consumed_train_samples=training.consumed)
    return {
        "args": done,
        "iteration": training.iteration,
        "model": model,
        "optimizer": training.optimizer.sharded_state_dict(model, is_loading=is_loading, metadata=metadata),
        "opt_param_scheduler": training.schedule.state_dict(),
        "rng_state": sharded_rng_state(),
    }


def sharded_rng_state() -> Any:
    """Give the states of all generators as Megatron-LM saves them: once for every pp and tp rank."""
    from megatron.core import parallel_state as mpu
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    states = {
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.cuda.get_rng_state(),
        "rng_tracker_states": get_cuda_rng_tracker().get_states(),
    }
    sizes = (mpu.get_pipeline_model_parallel_world_size(), mpu.get_tensor_model_parallel_world_size())
    place = (mpu.get_pipeline_model_parallel_rank(), mpu.get_tensor_model_parallel_rank())
    return ShardedObject("rng_state", [states], sizes, place, replica_id=mpu.get_data_parallel_rank())


def load(training: Training, folder: str, sharding: str, without: tuple[str, ...]) -> None:
    """Bring back what a checkpoint holds, but for some components."""
    from megatron.core import dist_checkpointing

    optimizers = training.optimizer.chained_optimizers
    for each in optimizers:
        each._init_optimizer_states_with_dummy_values()  # torch's Adam has no state before its first step
    built = [built_state(each) for each in optimizers]
    places = sharded_state(training, sharding, is_loading=True)
    for component, name in (("rng", "rng_state"), ("parameters", "model")):
        if component in without:  # what is asked for is loaded in place
            del places[name]
    state = dist_checkpointing.load(places, folder)
    if "parameters" not in without:
        training.chunk.module.load_state_dict(state["model"])
    with nullcontext() if "optimizer step" in without else steps_are_loaded():
        training.optimizer.load_state_dict(state["optimizer"])
    for each, before in zip(optimizers, built, strict=True):
        put_back(each, before, without)
    if "scheduler" not in without:
        training.schedule.load_state_dict(state["opt_param_scheduler"])
    if "rng" not in without:
        set_rng_state(state["rng_state"][0])
    training.iteration = state["iteration"]
    if "data position" not in without:
        training.consumed = state["args"].consumed_train_samples


@contextmanager
def steps_are_loaded() -> Iterator[None]:
    """Let torch's own Adam, which Megatron takes without Transformer Engine and Apex, load its steps.

    Megatron-Core 0.16.1 does not do so. It hands the number of the checkpoint to one tensor that then
    counts for all parameters, once for each; and where the checkpoint is ``dp_reshardable`` it copies the
    number from before the loading over it, where it is ``fully_reshardable`` it ends with a KeyError.
    """
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    original = DistributedOptimizer._set_main_param_and_optimizer_states

    def put(self: Any, model_param: Any, tensors: Any) -> None:
        group, place = self.model_param_group_index_map[model_param]
        group = self.optimizer.param_groups[group]
        state = self.optimizer.state[group["params"][place]]
        del state["step"]
        original(self, model_param, tensors)
        state["step"] = torch.tensor(group["step"])

    DistributedOptimizer._set_main_param_and_optimizer_states = put
    try:
        yield
    finally:
        DistributedOptimizer._set_main_param_and_optimizer_states = original


def built_state(optimizer: Any) -> dict[str, Any]:
    """Keep what the optimizer was built with, of what a checkpoint can replace."""
    inner = optimizer.optimizer
    return {
        "masters": [param.detach().clone() for group in inner.param_groups for param in group["params"]],
        "groups": [
            {name: value for name, value in group.items() if name != "params"} for group in inner.param_groups
        ],
        "scaler": optimizer.grad_scaler.state_dict() if optimizer.grad_scaler else {},
    }


def put_back(optimizer: Any, built: Mapping[str, Any], without: tuple[str, ...]) -> None:
    """Leave components as if no checkpoint had been loaded."""
    inner = optimizer.optimizer
    params = [param for group in inner.param_groups for param in group["params"]]
    states = [inner.state[param] for param in params if param in inner.state]
    if "master weights" in without:
        for param, value in zip(params, built["masters"], strict=True):
            param.detach().copy_(value)
    if "moments" in without:
        for state in states:
            state["exp_avg"].zero_()
            state["exp_avg_sq"].zero_()
    if "param groups" in without:
        for group, before in zip(inner.param_groups, built["groups"], strict=True):
            group.update(before)
    if "loss scale" in without:
        optimizer.grad_scaler.load_state_dict(built["scaler"])


def set_rng_state(states: Mapping[str, Any]) -> None:
    """Set the states of all generators."""
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    random.setstate(states["random_rng_state"])
    np.random.set_state(states["np_rng_state"])
    torch.set_rng_state(states["torch_rng_state"])
    torch.cuda.set_rng_state(states["cuda_rng_state"])
    get_cuda_rng_tracker().set_states(states["rng_tracker_states"])

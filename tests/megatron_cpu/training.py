"""A few steps of a tiny Megatron-Core GPT on the CPU, recorded or not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from detlab.record import Recorder


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how."""

    tp: int = 1
    sequence_parallel: bool = False
    distributed_optimizer: bool = True
    overlap: bool = True
    recompute: bool = False
    deterministic_mode: bool = False
    dropout: float = 0.1
    num_layers: int = 2
    hidden: int = 32
    num_heads: int = 4
    sequence: int = 16
    vocabulary: int = 64
    num_tokens_in_use: int = 64
    microbatch_size: int = 2
    num_microbatches: int = 2
    num_steps: int = 3
    num_threads: int = 1
    seed: int = 3
    learning_rate: float = 1e-3
    adam_beta2: float = 0.999
    precision: str = "fp32"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters that the forward computes with; the optimizer's are float32."""
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]


def train(recipe: Recipe, folder: str, recorder: Mapping[str, Any]) -> list[float]:
    """Train on this rank inside a recorder; give the loss of every step."""
    set_up(recipe)
    chunk, optimizer = build(recipe)
    with Recorder(folder, arguments=asdict(recipe), **recorder) as rec:
        rec.attach([chunk], optimizer)
        batches = random_batches(recipe)
        return [step(recipe, chunk, optimizer, batches, rec) for _ in range(recipe.num_steps)]


def set_up(recipe: Recipe) -> None:
    """Prepare this process: threads, the shim, Megatron's groups and seeds."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    from tests.megatron_cpu.shim import install

    torch.set_num_threads(recipe.num_threads)
    install()
    parallel_state.initialize_model_parallel(recipe.tp, 1)
    torch.manual_seed(recipe.seed)
    model_parallel_cuda_manual_seed(recipe.seed)


def build(recipe: Recipe) -> tuple[Any, Any]:
    """Build the model in its data-parallel wrapper, and its optimizer."""
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    config = _model_config(recipe)
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=recipe.vocabulary,
        max_sequence_length=recipe.sequence,
        parallel_output=True,
        share_embeddings_and_output_weights=True,
    )
    wrapping = DistributedDataParallelConfig(
        overlap_grad_reduce=recipe.overlap,
        use_distributed_optimizer=recipe.distributed_optimizer,
        grad_reduce_in_fp32=True,
        check_for_nan_in_grad=True,
        bucket_size=20_000 if recipe.overlap else None,
    )
    inner = model if recipe.precision == "fp32" else Float16Module(config, model)
    chunk = DistributedDataParallel(config, wrapping, inner)
    settings = OptimizerConfig(
        optimizer="adam",
        lr=recipe.learning_rate,
        min_lr=recipe.learning_rate / 10,
        adam_beta2=recipe.adam_beta2,
        use_distributed_optimizer=recipe.distributed_optimizer,
        clip_grad=1.0,
        params_dtype=recipe.dtype,
        initial_loss_scale=2.0**10,  # of fp16 alone; it doubles after every second step without an overflow
        loss_scale_window=2,
        **_precision(recipe),
    )
    optimizer = get_megatron_optimizer(settings, [chunk])
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if recipe.overlap:
        config.no_sync_func = chunk.no_sync
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch names the user in it; nothing is compiled here
    return chunk, optimizer


def _precision(recipe: Recipe) -> dict[str, bool]:
    return {name: recipe.precision == name for name in ("bf16", "fp16")}


def _model_config(recipe: Recipe) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=recipe.num_layers,
        hidden_size=recipe.hidden,
        num_attention_heads=recipe.num_heads,
        use_cpu_initialization=True,
        pipeline_dtype=recipe.dtype,
        params_dtype=recipe.dtype,
        **_precision(recipe),
        tensor_model_parallel_size=recipe.tp,
        sequence_parallel=recipe.sequence_parallel,
        hidden_dropout=recipe.dropout,
        attention_dropout=recipe.dropout,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        persist_layer_norm=False,
        deterministic_mode=recipe.deterministic_mode,
        **(recompute if recipe.recompute else {}),
    )


def random_batches(recipe: Recipe) -> Iterator[torch.Tensor]:
    """Give microbatches of random tokens without end; every data-parallel rank has its own."""
    from megatron.core import parallel_state

    generator = torch.Generator().manual_seed(1_000 + parallel_state.get_data_parallel_rank())
    shape = (recipe.microbatch_size, recipe.sequence + 1)
    while True:
        yield torch.randint(0, recipe.num_tokens_in_use, shape, generator=generator)


def step(recipe: Recipe, chunk: Any, optimizer: Any, batches: Iterator[torch.Tensor], rec: Recorder) -> float:
    """Run one step as Megatron's training loop does, and write its loss and gradient norm."""
    loss = compute_gradients(recipe, chunk, optimizer, batches)
    _, grad_norm, _ = optimizer.step()
    rec.metric("lm loss", loss)
    rec.metric("grad norm", float(grad_norm))
    return loss


def compute_gradients(recipe: Recipe, chunk: Any, optimizer: Any, batches: Iterator[torch.Tensor]) -> float:
    """Run forward and backward of one step, all but the optimizer; give the loss."""
    from megatron.core.pipeline_parallel import get_forward_backward_func

    chunk.zero_grad_buffer()
    optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=batches,
        model=[chunk],
        num_microbatches=recipe.num_microbatches,
        seq_length=recipe.sequence,
        micro_batch_size=recipe.microbatch_size,
        forward_only=False,
    )
    return float(sum(item["loss"] for item in losses) / len(losses))


def forward_step(batches: Iterator[torch.Tensor], chunk: Any) -> tuple[torch.Tensor, Any]:
    """Run the model on the next microbatch, as Megatron's schedule wants it."""
    tokens = next(batches)
    size = tokens.shape[1] - 1
    position = torch.arange(size)[None].expand(len(tokens), -1)
    mask = torch.triu(torch.ones(1, 1, size, size, dtype=torch.bool), 1)
    output = chunk(tokens[:, :-1], position, mask, labels=tokens[:, 1:])

    def loss_function(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = losses.float().mean()
        return loss, {"loss": loss.detach().clone()}

    return output, loss_function

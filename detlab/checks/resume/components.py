"""Which part of the training state a leaf belongs to: one table of names, from many frameworks."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

BOOKKEEPING: Final = "bookkeeping"
OTHER: Final = "other"
RECIPE: Final = "recipe"
POSITION: Final = "data position"
ORDER: Final = "data order"
PARAMETERS: Final = "parameters"
MASTER: Final = "master weights"
MOMENTS: Final = "moments"
STEP: Final = "optimizer step"
RNG: Final = "rng"
LOSS_SCALE: Final = "loss scale"
LOSS_MASK: Final = "loss mask"
FP8: Final = "fp8 state"

COMPONENTS: Final = (
    PARAMETERS,
    MASTER,
    MOMENTS,
    STEP,
    "param groups",
    RNG,
    "scheduler",
    LOSS_SCALE,
    POSITION,
    ORDER,
    LOSS_MASK,
    FP8,
    OTHER,
    RECIPE,
    BOOKKEEPING,
)
"""Parts of a training state, in the order in which they are told of."""

OPTIMIZER: Final = (MASTER, MOMENTS, STEP, "param groups")
"""What an optimizer holds: where some of it is recorded, the rest was asked for too."""


class Rule(NamedTuple):
    """Names of one component.

    Attributes
    ----------
    component
        One of `COMPONENTS`.
    pattern
        Searched in the name in lower case, of which every word is bounded by dots or underscores.
    only
        ``tensor`` or ``scalar`` where it holds for these alone.
    spelled_by
        Whose names these are.
    """

    component: str
    pattern: str
    only: str = ""
    spelled_by: str = ""


_NO_WORD: Final = r"(?:^|[._/\[\]'\"-])"
_END: Final = r"(?:$|[._/\[\]'\"-])"


def _word(*names: str) -> str:
    return f"{_NO_WORD}(?:{'|'.join(names)}){_END}"


RULES: Final = (
    # Apex, and Megatron's FusedAdam, keep the number of steps in the groups.
    Rule(STEP, r"param_groups?\b.*[._]step$", spelled_by="Megatron, Apex"),
    Rule("param groups", r"param_groups?\b", spelled_by="torch, Megatron, DeepSpeed, torchtitan"),
    Rule(LOSS_SCALE, _word("grad_scaler", "loss_scaler", "loss_scale", "scaler", "cur_scale"), "",
         "Megatron, torch.amp, DeepSpeed"),
    Rule(LOSS_SCALE, _word("_?growth_tracker", "hysteresis_tracker", "dynamic_loss_scale"), "",
         "Megatron, torch.amp, DeepSpeed"),
    Rule(LOSS_SCALE, r"^scale$|growth_factor|backoff_factor|growth_interval", "scalar", "torch.amp"),
    Rule(LOSS_MASK, _word("loss_mask"), "", "Megatron"),
    Rule(MASTER, _word("fp32_param", "fp32_params", "fp32_from_fp16", "fp32_from_fp16_params",
                       "fp32_from_float16_groups", "main_params?", "master_params?", "master_weights?",
                       "single_partition_of_fp32_groups", "fp32_flat_groups", "fp32_groups"), "",
         "Megatron, Apex, DeepSpeed"),
    Rule(MASTER, r"optim.*\.state\.param\.", "tensor", "Megatron fully_reshardable"),
    Rule(MASTER, r"^(?:.*[._])?(?:chained_)?optim(?:izer)?s?\b.*\.param$", "tensor",
         "Megatron dp_reshardable, mp_rank_*/distrib_optim.pt"),
    Rule(MOMENTS, _word("exp_avgs?", "exp_avg_sqs?", "max_exp_avg_sqs?", "exp_inf", "momentum_buffer",
                        "square_avg", "acc_delta", "grad_avg"), "",
         "torch.optim, Megatron, DeepSpeed"),
    Rule(MOMENTS, r"optim.*[._](?:momentum|mu|nu|m|v)(?:$|\.)", "", "Muon, optax, Lion"),
    Rule(STEP, r"optim.*[._](?:common_)?steps?$", spelled_by="torch.optim, DeepSpeed, torchtitan"),
    Rule(STEP, r"(?:^|\.)state\.[^.]+\.step$", "", "torch.optim, Hugging Face optimizer.pt"),
    Rule(ORDER, r"sampler|shuffle|permutation|sampling_seed|data_seed|sample_order|data_order", "",
         "Megatron, torchdata, Accelerate"),
    Rule(RNG, _word("rng", "rng_states?", "random_rng_state", "np_rng_state", "torch_rng_state",
                    "cuda_rng_state", "cpu_rng_state", "rng_tracker_states", "random_states?",
                    "generators?", "generator_state", "random_state", "numpy_rng", "rng_state_\\d+"), "",
         "Megatron, Hugging Face rng_state.pth, Accelerate"),
    Rule("scheduler", r"opt_param_scheduler|lr_scheduler|(?:^|[._/])schedulers?(?:$|[._/])", "",
         "Megatron, torch, Hugging Face scheduler.pt, torchtitan"),
    Rule("scheduler", r"^_?(?:last_lr|last_epoch|base_lrs|step_count|lr_lambdas)(?:$|\.)", "scalar",
         "torch, Hugging Face scheduler.pt"),
    Rule(RNG, r"^(?:python|numpy|cpu|cuda)(?:$|\.)", "", "Hugging Face rng_state.pth"),
    Rule(POSITION, _word("consumed_train_samples", "consumed_valid_samples", "consumed_samples",
                         "skipped_train_samples", "dataloaders?", "data_loaders?", "data_iterators?",
                         "data_iter", "dataset_state",
                         "data_iterator_checkpoints", "_?num_batches_fetched", "_?num_yielded",
                         "samples_yielded", "samples_seen", "ntokens_seen", "tokens_seen", "consumed_tokens",
                         "cursor", "batch_idx", "batches_seen", "global_steps?", "global_samples",
                         "skipped_steps", "train_state"), "",
         "Megatron, torchdata, torchtitan, DeepSpeed, Hugging Face trainer_state.json"),
    Rule(POSITION, r"(?:^|\.)(?:data_)?position$", "scalar", "detlab's own snapshots"),
    Rule(POSITION, r"^(?:(?!args)[\w-]+[./])?(?:iteration|epoch|step)$", "", "Megatron, torchtitan"),
    Rule(FP8, r"_?extra_state|fp8|quantizer|scale_inv|amax", "", "Transformer Engine, torchao"),
    Rule(BOOKKEEPING, r"timestamp|(?:^|[._])(?:date|time|host|hostname|user|uuid|pid|commit|created|version|"
         r"url|rank|local_rank|name|comment|log|logs)(?:$|[._])|version|paths?(?:$|[._])|_at$|"
         r"(?:^|[._])(?:dir|directory|folder|file)s?(?:$|[._])|_dir$|wandb|tensorboard|content_metadata|"
         r"floating_point_operations|run_id|elapsed|duration|sharded_state_dict|buffer_names|param_shapes",
         "scalar", "all"),
    Rule(BOOKKEEPING, r"^(?:[\w-]+\.)*(?:args|run_config|ds_config)\..*(?:load|save|exit|interval|profile|"
         r"timing|log|rank|world_size|iteration|cache|ckpt|checkpoint|one_logger|train_iters|finetune$)",
         "scalar", "Megatron"),
    Rule(RECIPE, r"^(?:[\w-]+\.)*(?:args|run_config|ds_config|config|hparams|hyper_parameters)(?:\.|$)",
         "scalar", "Megatron, DeepSpeed"),
    Rule(RECIPE, r"(?:^|\.)(?:dp|mp|tp|pp)_world_size$", "", "DeepSpeed"),
    Rule(BOOKKEEPING, r"param_state_sharding_type|per_bucket_numel", "scalar", "Megatron"),
    Rule(BOOKKEEPING, r"rerun_state_machine", "scalar", "Megatron"),
    Rule(BOOKKEEPING, r"log_history", "scalar", "Hugging Face trainer_state.json"),
    Rule(OTHER, r"^(?:[\w-]+\.)?(?:chained_)?optim(?:izer)?s?(?:[._]|$)", "", "what an optimizer has beside"),
    Rule(PARAMETERS, r"^(?:model\d*|module|state_dict|network|net)(?:\.|$)", "",
         "Megatron, DeepSpeed, torch"),
    Rule(PARAMETERS, r"(?:^|[._])(?:weights?|bias(?:es)?|gamma|beta|kernel|embeddings?|running_(?:mean|var)|"
         r"num_batches_tracked|scale|lora_[ab]|layer_norm_\w+|a_log|d|dt_bias|logit_scale|inv_freq)(?:\d*$)",
         "tensor", "torch, torchtitan, Hugging Face"),
    Rule(PARAMETERS, r"^(?:encoder|decoder|embedding|output_layer|layers?|transformer|lm_head|"
         r"tok_embeddings|norm)\.", "tensor", "Megatron, torchtitan, Hugging Face"),
)  # fmt: skip
"""Names of components, in the order in which they are tried; a tensor is never bookkeeping.

Sources: the state of ``megatron.training.checkpointing`` (``generate_state_dict``) and of
``megatron.core.optimizer``; ``torch.optim.Optimizer.state_dict``; ``deepspeed.runtime`` engine and ZeRO
optimizers; ``transformers.Trainer`` (optimizer.pt, scheduler.pt, rng_state.pth); ``accelerate.checkpointing``
(random_states); ``torchtitan`` (model, optimizer, lr_scheduler, dataloader, train_state).
"""

_FILE_OF_RANK: Final = re.compile(r"^(?:(?:rank|mp_rank|zero_pp_rank|bf16_zero_pp_rank|common)[\w-]*\.)+")


def without_file(name: str) -> str:
    """Give a name without the file of one rank that it begins with, such as ``mp_rank_00.``."""
    return _FILE_OF_RANK.sub("", name)


_COMPILED: Final = tuple((rule, re.compile(rule.pattern)) for rule in RULES)


@lru_cache(maxsize=1 << 16)
def component_of(name: str, *, is_tensor: bool) -> str:
    """Give the component of a leaf or of a recorded state by its name; ``other`` for one that is unknown.

    Parameters
    ----------
    name
        Dotted name, such as ``optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight``.
    is_tensor
        Whether it is a tensor; a date is bookkeeping, a tensor of that name is not.
    """
    lowered = without_file(name.lower())
    for rule, pattern in _COMPILED:
        if rule.only and (rule.only == "tensor") is not is_tensor:
            continue
        if pattern.search(lowered):
            return rule.component
    return OTHER

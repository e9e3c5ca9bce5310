"""Seeds and data, what is set too late or reaches nothing, and ranks that do not agree."""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.megatron import MODE
from detlab.checks.recipe.rules.requirements import Before, MoreThan, Number, Same
from detlab.checks.recipe.rules.rule import ON, Need, Rule
from detlab.checks.recipe.rules.sources import (
    AUTOTUNE_CACHE,
    CUBLAS_DOCS,
    HASH_SEED,
    LATE_FLAG,
    LOADER_DOCS,
    MEGATRON_GUIDE,
    TORCH_NOTES,
    TORCHTITAN,
    github,
)

SEEDS_AND_DATA: Final = (
    Rule(
        "DET060",
        ("args.seed",),
        Number(),
        "rejected",
        "error",
        "without a seed torchtitan takes the one that rank 0 draws",
        "weights, dropout and the order of the data are others in the next run",
        "--debug.seed 42",
        (TORCHTITAN,),
        ("torchtitan",),
    ),
    Rule(
        "DET061",
        ("env.PYTHONHASHSEED",),
        Number(),
        "rejected",
        "note",
        "unset or `random`, Python draws another salt for the hashes of texts in each process, and the order "
        "of a set of texts follows it",
        "whatever is ordered by such a set, files or parameters, is ordered otherwise in the next run",
        "export PYTHONHASHSEED=0",
        (HASH_SEED, TORCHTITAN),
        ("torch", ""),
    ),
    Rule(
        "DET062",
        ("args.*in_order",),
        ON,
        "accepted",
        "error",
        "a data loader that need not keep its order gives the batches as its workers finish them",
        "batches come in another order in the next run",
        "in_order: true",
        (LOADER_DOCS,),
    ),
)
"""Seeds, and the order of the data."""

EFFECTIVE: Final = (
    Rule(
        "DET070",
        ("time.env.CUBLAS_WORKSPACE_CONFIG", "time.env.NCCL_*"),
        Before("time.cuda_initialized"),
        "accepted",
        "warning",
        "cuBLAS reads its variable when it makes a handle, NCCL its own with the first communicator",
        "the value stands in the recipe and is not in force",
        "export it in the launcher, before Python starts",
        (MEGATRON_GUIDE, CUBLAS_DOCS, github("pytorch/pytorch!156381")),
        finding="set after CUDA was initialised:",
    ),
    Rule(
        "DET071",
        ("time.env.NVTE_*", "time.torch.deterministic", "time.args.deterministic_mode"),
        Before("time.model_built"),
        "accepted",
        "warning",
        "modules such as the vocabulary-parallel embedding and Transformer Engine's attention copy the "
        "setting when they are built",
        "half of the deterministic mode is on: gradients differ between repeats though the flag is set",
        "set it before the model is built",
        (LATE_FLAG, MEGATRON_GUIDE),
        finding="set after the model was built:",
    ),
    Rule(
        "DET072",
        ("module.*.deterministic_mode", "module.*.deterministic"),
        ON,
        "accepted",
        "warning",
        "these modules were built before the flag was set, or with a configuration of their own",
        "they go on with the kernels that vary: the backward of the embedding adds with atomics",
        "set deterministic_mode in the configuration that the model is built from",
        (LATE_FLAG,),
        when=(MODE,),
        finding="requested but not effective for",
    ),
    Rule(
        "DET073",
        (
            "env.NCCL_ALGO",
            "env.NCCL_PROTO",
            "env.NCCL_NVLS_ENABLE",
            "env.NCCL_M*_NCHANNELS",
            "env.NVTE_*",
            "env.CUBLAS_WORKSPACE_CONFIG",
            "env.MAMBA_DETERMINISTIC",
            "env.CAUSAL_CONV1D_DETERMINISTIC",
            "env.TRITON_CACHE_AUTOTUNING",
            "env.TORCHINDUCTOR_*",
            "torch.deterministic*",
            "torch.cudnn_*",
            "torch.float32_matmul_precision",
            "torch.threads",
            "version.*",
            "args.deterministic_mode",
            "args.seed",
            "args.*_batch_size",
        ),
        Same(),
        "accepted",
        "error",
        "ranks that are set up in two ways compute with two sets of kernels",
        "replicas part, and what they exchange hangs on which rank had which setting",
        "give all ranks the same launcher, container and environment",
        (AUTOTUNE_CACHE, TORCH_NOTES),
        when=(Need(("place.world_size",), MoreThan(1)),),
        finding="ranks do not agree on",
    ),
)
"""Whether settings reach what they are for."""

"""The flags of torch."""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.megatron import MODE
from detlab.checks.recipe.rules.requirements import OneOf
from detlab.checks.recipe.rules.rule import (
    CPU_ONLY,
    OFF,
    ON,
    OTHERS,
    Filled,
    Need,
    Rule,
    Versions,
)
from detlab.checks.recipe.rules.sources import (
    CUBLAS_DOCS,
    CUDA_NOTES,
    MEGATRON_GUIDE,
    PRECISION_DOCS,
    TE_DOCS,
    TORCH_DOCS,
    TORCH_NOTES,
    TORCHTITAN,
    github,
)

IS_ON: Final = Need(("torch.deterministic", "args.deterministic_mode"), ON)
"""Torch's deterministic algorithms are on, or the framework is asked to turn them on."""


_TURNS_ON: Final = ("megatron-lm", "megatron-bridge", "torchtitan")
"""Frameworks whose deterministic mode turns torch's on; NeMo has a flag of its trainer for it."""


def _mode(value: str) -> tuple[Filled, ...]:
    by = "the framework's deterministic mode"
    return (Filled(value, by, (MODE,), overwrites=True, frameworks=_TURNS_ON),)


_TORCHTITAN_SETS: Final = Filled(
    "", "torchtitan's deterministic mode", (MODE,), overwrites=True, frameworks=("torchtitan",)
)

TORCH_FLAGS: Final = (
    Rule(
        "DET030",
        ("torch.deterministic",),
        ON,
        _mode("on"),
        "error",
        "without it torch uses kernels that add with atomics, such as those of `index_put_`, `scatter_add_` "
        "and the backward of embeddings",
        "these calls vary; with it torch takes a deterministic kernel or raises",
        "torch.use_deterministic_algorithms(True)",
        (TORCH_DOCS, TORCH_NOTES),
    ),
    Rule(
        "DET031",
        ("torch.deterministic_warn_only",),
        OFF,
        (*_mode("off"), Filled("off", "torch")),
        "error",
        "a call that has no deterministic kernel then runs with the other one and only warns",
        "the recipe looks deterministic and is not",
        "torch.use_deterministic_algorithms(True, warn_only=False)",
        (TORCH_DOCS, TORCHTITAN),
    ),
    Rule(
        "DET032",
        ("torch.fill_uninitialized_memory",),
        OFF,
        (
            Filled(
                "off",
                "the framework's deterministic mode",
                (MODE,),
                Versions("version.megatron_core", since="0.20"),
                overwrites=True,
            ),
        ),
        "note",
        "fresh memory is filled with NaN or the largest integer, so that a kernel that reads what nobody "
        "wrote reads the same in every run: the read is hidden, not mended",
        "a run that is stable under the flag shows nothing about the order of its sums; the fill costs about "
        "15 % of speed in Megatron's measurement",
        "torch.utils.deterministic.fill_uninitialized_memory = False",
        (MEGATRON_GUIDE, github("NVIDIA/Megatron-LM!7093"), github("pytorch/pytorch#193317"), TORCHTITAN),
        when=(IS_ON,),
        unless=(Need(("torch.deterministic",), OFF),),
    ),
    Rule(
        "DET033",
        ("torch.cudnn_benchmark",),
        OFF,
        (_TORCHTITAN_SETS._replace(value="off"), Filled("off", "torch")),
        "error",
        "cuDNN then measures its algorithms and takes the fastest, which is another one when the machine is "
        "otherwise busy",
        "convolutions are of another algorithm in the next run",
        "torch.backends.cudnn.benchmark = False",
        (TORCH_NOTES, TORCHTITAN),
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET034",
        ("torch.cudnn_deterministic",),
        ON,
        "rejected",
        "warning",
        "cuDNN has algorithms that add with atomics; where nothing is known of torch's own flag, which rules "
        "them out too, this one must",
        "gradients of convolutions vary",
        "torch.backends.cudnn.deterministic = True",
        (TORCH_NOTES,),
        OTHERS,
        unless=(CPU_ONLY, IS_ON, Need(("torch.deterministic",), OFF)),
    ),
    Rule(
        "DET035",
        ("torch.float32_matmul_precision",),
        OneOf(("highest",)),
        "accepted",
        "note",
        "with `high` or `medium` float32 products use TF32 or bfloat16 where the device has a fast way to, "
        "and float32 elsewhere",
        "the same recipe gives other bits on another kind of device",
        'torch.set_float32_matmul_precision("highest")',
        (PRECISION_DOCS,),
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET036",
        ("torch.allow_*_reduced_precision_reduction",),
        OFF,
        "accepted",
        "note",
        "products of half precision may then add partial sums in half precision when they are split",
        "bits hang on how cuBLAS splits a product, which follows its shape and the batch",
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
        (CUDA_NOTES, TORCHTITAN),
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET037",
        ("args.deterministic_mode",),
        ON,
        "rejected",
        "error",
        "only under this flag torchtitan turns on torch's deterministic algorithms and turns off the fill of "
        "fresh memory and the autotuning of flex attention",
        "the same step gives other bits each time",
        "--debug.deterministic",
        (TORCHTITAN,),
        ("torchtitan",),
    ),
    Rule(
        "DET038",
        ("env.CUBLAS_WORKSPACE_CONFIG",),
        OneOf((":4096:8", ":16:8")),
        (
            _TORCHTITAN_SETS._replace(value=":4096:8"),
            Filled(
                "a workspace of torch's own for each stream",
                "torch from 2.10 on",
                versions=Versions("version.torch", since="2.10"),
                must_know=True,
            ),
        ),
        "error",
        "with its own choice of workspaces cuBLAS may pick another implementation for the same product when "
        "streams share a handle; torch before 2.10 refuses to run without it in deterministic mode",
        "matrix products vary, or raise",
        "export CUBLAS_WORKSPACE_CONFIG=:4096:8",
        (CUBLAS_DOCS, github("pytorch/pytorch!161749"), TORCHTITAN),
        OTHERS,
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET039",
        ("env.NVTE_ALLOW_NONDETERMINISTIC_ALGO",),
        OneOf(("0",)),
        "accepted",
        "error",
        "another value allows Transformer Engine an attention whose backward adds with atomics; unset it "
        "follows torch's flag in recent versions",
        "gradients of attention vary",
        "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0",
        (TE_DOCS, github("NVIDIA/TransformerEngine!3407")),
        OTHERS,
        unless=(CPU_ONLY,),
    ),
)
"""Flags of torch and of the libraries under it."""

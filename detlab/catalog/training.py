"""What is published of training at scale: Megatron-Core, Transformer Engine, Mamba, layers of experts."""

from __future__ import annotations

from typing import Final

from detlab.catalog.entry import (
    COMPARE,
    MEGATRON_GUIDE,
    MEGATRON_OPS,
    REPLAY,
    Entry,
    Source,
    aten,
    github,
)

TRAINING: Final = (
    Entry(
        "te-attention",
        (),
        "Transformer Engine `DotProductAttention`",
        "CUDA",
        "race",
        "left free, Transformer Engine may choose a backward that adds with atomics",
        "`NVTE_ALLOW_NONDETERMINISTIC_ALGO=0` before Transformer Engine is used; on Blackwell its fused "
        "attention needs a recent cuDNN for it (see the pull request)",
        REPLAY,
        (MEGATRON_OPS, github("NVIDIA/TransformerEngine!2584"), github("areal-project/AReaL!1544")),
    ),
    Entry(
        "moe-aux-loss",
        (),
        "Transformer Engine `fused_moe_aux_loss`",
        "CUDA",
        "race",
        "it adds up the loss with `atomicAdd`: 7 of 7 repeats of one input differed",
        "the unfused loss: `moe_router_aux_loss_fusion` off",
        REPLAY,
        (github("NVIDIA/Megatron-LM!6967"), github("NVIDIA/Megatron-LM#7221")),
    ),
    Entry(
        "grouped-mlp-dprob",
        (),
        "routing-probability gradient of the fused grouped MLP",
        "CUDA",
        "race",
        "several blocks add to one gradient in no order",
        "a slot of its own for every writer, added in a fixed order: `detlab.kernel.fixed.grouped_mm_add` "
        "shows how",
        REPLAY,
        (
            Source(
                "Megatron-Bridge root-cause branch",
                "https://github.com/NVIDIA-NeMo/Megatron-Bridge/tree/zhiyul/determinism-mxfp8-moe-root-cause",
            ),
            github("NVIDIA/Megatron-LM!7441"),
        ),
    ),
    Entry(
        "sparse-attention-backward",
        (),
        "backward of sparse attention (DSA) and of its indexer",
        "CUDA",
        "race",
        "gradients of keys and values are added with atomics",
        "none published in general; the pull request works on this one model, which has four sources",
        REPLAY,
        (github("NVIDIA/Megatron-LM!7441"),),
    ),
    Entry(
        "grouped-gemm-padding",
        aten("_grouped_mm _scaled_grouped_mm"),
        "grouped matrix products with padding rows or experts without tokens",
        "CUDA",
        "uninitialised",
        "rows beyond the last offset are never written, and a later call that reads them varies with the "
        "allocator, up to NaN",
        "zero the padding, or never read it",
        REPLAY,
        (
            github("AMD-AGI/Primus-Turbo#397"),
            github("pytorch/pytorch#193633"),
            github("tgale96/grouped_gemm#36"),
        ),
    ),
    Entry(
        "causal-conv1d",
        (),
        "weight and bias gradients of Dao-AILab's `causal_conv1d` below 1.6.0",
        "CUDA",
        "race",
        "they are added up with `atomicAdd`",
        "1.6.0 or later, `CAUSAL_CONV1D_DETERMINISTIC` unset or 1: a workspace for each block, summed in "
        "order",
        REPLAY,
        (
            MEGATRON_OPS,
            MEGATRON_GUIDE,
            github("Dao-AILab/causal-conv1d#80"),
            github("Dao-AILab/causal-conv1d!88"),
        ),
    ),
    Entry(
        "mamba",
        (),
        "Triton kernels of Mamba",
        "CUDA",
        "race",
        "atomics, and a cumulative sum whose order follows the autotuned block size",
        "`MAMBA_DETERMINISTIC` unset or 1 under deterministic algorithms: one configuration, and a zeroed "
        "workspace summed in order",
        REPLAY,
        (MEGATRON_OPS, github("state-spaces/mamba!827")),
    ),
    Entry(
        "gated-delta-net",
        (),
        "fused gated delta rule and causal convolution of flash-linear-attention",
        "CUDA",
        "race",
        "Megatron counts the fused kernels as not deterministic; the catalogue gives no reason",
        "`torch_chunk_gated_delta_rule` and `F.conv1d`, as Megatron's deterministic mode does; packed "
        "sequences have no such path",
        REPLAY,
        (MEGATRON_OPS,),
    ),
    Entry(
        "fused-cross-entropy",
        (),
        "`--cross-entropy-loss-fusion`",
        "CUDA",
        "race",
        "Megatron counts the fused kernel as not deterministic; the catalogue gives no reason",
        "the native vocabulary-parallel loss, as `--deterministic-mode` demands",
        REPLAY,
        (MEGATRON_OPS, MEGATRON_GUIDE),
    ),
    Entry(
        "tp-comm-overlap",
        (),
        "`--tp-comm-overlap`",
        "CUDA, several devices",
        "collective",
        "the order of overlapped collectives does not repeat",
        "leave it off, as `--deterministic-mode` demands",
        COMPARE,
        (MEGATRON_OPS, MEGATRON_GUIDE),
    ),
    Entry(
        "completion-order",
        (),
        "data-parallel scheduling of inference, rollouts of reinforcement learning",
        "CPU, CUDA",
        "collective",
        "requests are taken up in the order in which they complete",
        "sort by a stable key",
        COMPARE,
        (MEGATRON_OPS,),
    ),
    Entry(
        "flag-too-late",
        (),
        "modules that copy the setting when they are built, such as `VocabParallelEmbedding`",
        "CUDA",
        "race",
        "set after the model is built, the flag engages only a part of it",
        "set flags and variables before the model is built and before Transformer Engine is imported",
        COMPARE,
        (
            github("areal-project/AReaL!1544"),
            MEGATRON_GUIDE,
        ),
    ),
)
"""Training at scale."""

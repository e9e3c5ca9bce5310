"""What Megatron's deterministic mode asks for, and what it does not ask for and needs."""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.requirements import NoneOf, OneOf, StartsWith, Tokens
from detlab.checks.recipe.rules.rule import (
    CPU_ONLY,
    MEGATRON,
    OFF,
    ON,
    Filled,
    Need,
    Rule,
    Versions,
)
from detlab.checks.recipe.rules.sources import (
    BRIDGE_CHECKS,
    BRIDGE_GAP,
    CUBLAS_DOCS,
    MEGATRON_ARGUMENTS,
    MEGATRON_CODE,
    MEGATRON_GUIDE,
    MEGATRON_OPS,
    TE_DOCS,
    github,
)

MODE: Final = Need(("args.deterministic_mode",), ON)
"""Deterministic mode is asked for."""

_MODE_FILLS: Final = "Megatron's deterministic mode"
_SINCE: Final = Versions("version.megatron_core", since="0.20")
_OLD: Final = Versions("version.megatron_core", before="0.19")


def _filled(value: str) -> tuple[Filled, ...]:
    return (Filled(value, _MODE_FILLS, (MODE,), _SINCE),)


ENVIRONMENT: Final = (
    Rule(
        "DET001",
        ("args.deterministic_mode",),
        ON,
        "rejected",
        "error",
        "without it Megatron-Core takes the faster branch of every operation that has two: the backward of "
        "the embedding, the combine of experts and attention add with atomics",
        "the same step gives other bits each time, from the first backward on",
        "--deterministic-mode",
        (MEGATRON_GUIDE, MEGATRON_OPS),
        MEGATRON,
    ),
    Rule(
        "DET002",
        ("env.NCCL_ALGO",),
        Tokens(("Ring", "CollnetDirect", "CollnetChain", "^NVLS")),
        _filled("Ring"),
        "error",
        "left free, NCCL may add in the switch (NVLS), whose order differs from call to call; the topology "
        "of Tree varies between runs unless a file pins it",
        "all ranks agree on a sum that is another one in the next run; Megatron refuses a value that is not "
        "in the list",
        "export NCCL_ALGO=Ring",
        (MEGATRON_GUIDE, MEGATRON_CODE, github("NVIDIA/nccl#1497")),
        MEGATRON,
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET003",
        ("env.NVTE_ALLOW_NONDETERMINISTIC_ALGO",),
        OneOf(("0",)),
        _filled("0"),
        "error",
        "Transformer Engine takes 1 where nothing is set, and may then choose an attention whose backward "
        "adds with atomics",
        "gradients of attention vary; deterministic mode refuses to start",
        "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0",
        (MEGATRON_GUIDE, TE_DOCS),
        MEGATRON,
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET004",
        ("env.CUBLAS_WORKSPACE_CONFIG",),
        OneOf((":4096:8", ":16:8")),
        _filled(":4096:8"),
        "error",
        "with its own choice of workspaces cuBLAS may pick another implementation for the same product when "
        "streams share a handle, and products split along their inner dimension add in another order",
        "matrix products vary, those with small outputs and a long inner dimension first",
        "export CUBLAS_WORKSPACE_CONFIG=:4096:8",
        (MEGATRON_GUIDE, CUBLAS_DOCS, github("NVIDIA/CUDALibrarySamples#243")),
        MEGATRON,
        unless=(CPU_ONLY,),
    ),
    Rule(
        "DET005",
        ("env.MAMBA_DETERMINISTIC",),
        StartsWith("1"),
        "accepted",
        "error",
        "any other value turns off the ordered sums of Mamba's kernels, which unset follow torch's flag",
        "gradients of state-space layers vary; deterministic mode refuses to start",
        "export MAMBA_DETERMINISTIC=1",
        (MEGATRON_GUIDE, github("state-spaces/mamba!827")),
    ),
    Rule(
        "DET006",
        ("env.CAUSAL_CONV1D_DETERMINISTIC",),
        StartsWith("1"),
        "accepted",
        "error",
        "any other value lets the backward of the convolution add its weight gradient with atomics; unset "
        "it follows torch's flag",
        "the weight gradient of the convolution varies in step 1, all after it in step 2",
        "export CAUSAL_CONV1D_DETERMINISTIC=1",
        (MEGATRON_GUIDE, github("Dao-AILab/causal-conv1d#80")),
    ),
)
"""Environment of Megatron's deterministic mode."""

ARGUMENTS: Final = (
    Rule(
        "DET007",
        ("args.cross_entropy_loss_fusion",),
        OFF,
        "accepted",
        "error",
        "the fused cross entropy does not repeat its bits",
        "the loss and all gradients vary; deterministic mode refuses to start",
        "drop --cross-entropy-loss-fusion",
        (MEGATRON_GUIDE, MEGATRON_OPS),
        MEGATRON,
    ),
    Rule(
        "DET008",
        ("args.tp_comm_overlap",),
        OFF,
        "accepted",
        "error",
        "collectives that overlap with the products around them add in the order in which parts arrive",
        "tensor-parallel layers vary; deterministic mode refuses to start",
        "drop --tp-comm-overlap",
        (MEGATRON_GUIDE, MEGATRON_OPS),
        MEGATRON,
    ),
    Rule(
        "DET009",
        ("args.moe_router_aux_loss_fusion", "args.moe_aux_loss_fusion"),
        OFF,
        "accepted",
        "error",
        "Transformer Engine's fused auxiliary loss adds with `atomicAdd`: 7 of 7 repeats differed",
        "the loss enters the gradients of the router: 222 of 256 ranks first differed there in one report",
        "moe_router_aux_loss_fusion: false",
        (github("NVIDIA/Megatron-LM!6967"), github("NVIDIA/Megatron-LM#7221"), MEGATRON_CODE),
        MEGATRON,
    ),
    Rule(
        "DET010",
        ("args.moe_router_fusion",),
        OFF,
        "accepted",
        "error",
        "the fusion of the auxiliary loss follows this one where it has no setting of its own, and it adds "
        "with `atomicAdd`",
        "the loss enters the gradients of the router; choosing experts by the fused kernel is not the cause",
        "moe_router_aux_loss_fusion: false (or moe_router_fusion: false where the former is not known)",
        (github("NVIDIA/Megatron-LM!6967"), MEGATRON_CODE, github("NVIDIA/Megatron-LM#6254")),
        MEGATRON,
        unless=(
            Need(("args.moe_router_aux_loss_fusion", "args.moe_aux_loss_fusion"), OFF),
            Need(("args.moe_router_aux_loss_fusion", "args.moe_aux_loss_fusion"), ON),
        ),
    ),
    Rule(
        "DET011",
        ("args.use_flash_attn",),
        OFF,
        "accepted",
        "error",
        "before version 0.19 deterministic mode rejects flash attention; newer versions accept it, for under "
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 Transformer Engine takes its deterministic backward",
        "the run does not start",
        "drop --use-flash-attn, or use a newer Megatron",
        (MEGATRON_ARGUMENTS, MEGATRON_GUIDE),
        ("megatron-lm",),
        _OLD,
    ),
    Rule(
        "DET012",
        ("args.attention_backend",),
        NoneOf(("flash", "AttnBackend.flash")),
        "accepted",
        "error",
        "before version 0.6 Megatron-Bridge rejects flash attention in deterministic mode",
        "the run does not start",
        "attention_backend: unfused, or use a newer Megatron-Bridge",
        (BRIDGE_CHECKS, BRIDGE_GAP),
        ("megatron-bridge",),
        Versions("version.megatron_bridge", before="0.6"),
    ),
)
"""Arguments of Megatron."""

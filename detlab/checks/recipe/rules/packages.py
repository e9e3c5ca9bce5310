"""Packages that are deterministic from some version on."""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.requirements import AtLeast, Given
from detlab.checks.recipe.rules.rule import MEGATRON, ON, Need, Rule
from detlab.checks.recipe.rules.sources import BRIDGE_GAP, CONV1D, MEGATRON_GUIDE, MEGATRON_OPS, github

STATE_SPACE: Final = Need(
    (
        "args.hybrid_layer_pattern",
        "args.hybrid_override_pattern",
        "args.is_hybrid_model",
        "args.hybrid_attention_ratio",
        "env.MAMBA_DETERMINISTIC",
        "env.CAUSAL_CONV1D_DETERMINISTIC",
    ),
    Given(),
)
"""The model has state-space layers, or its launcher speaks of them."""

PACKAGES: Final = (
    Rule(
        "DET020",
        ("version.causal_conv1d",),
        AtLeast("1.6.0"),
        "rejected",
        "error",
        "older versions do not know the flag and add the weight gradient of the convolution with atomics",
        "the weight gradient of the convolution varies in step 1, all after it in step 2",
        "pip install 'causal-conv1d>=1.6.0'",
        (MEGATRON_GUIDE, github("Dao-AILab/causal-conv1d#80"), CONV1D),
        when=(STATE_SPACE,),
    ),
    Rule(
        "DET021",
        ("version.nvidia_cudnn_frontend",),
        AtLeast("1.28.0"),
        "rejected",
        "warning",
        "the fused grouped MLP adds the gradient of the routing probabilities in the order in which blocks "
        "finish; from 1.28.0 on there is a repeatable one for squared ReLU, and none for gated activations",
        "256 of 256 ranks differed there in one report; NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 does not reach it "
        "in a Transformer Engine before the pull request",
        "pip install 'nvidia-cudnn-frontend>=1.28.0', or use_transformer_engine_op_fuser: false",
        (
            github("NVIDIA/TransformerEngine!3407"),
            github("NVIDIA/cudnn-frontend!521"),
            BRIDGE_GAP,
            MEGATRON_OPS,
        ),
        MEGATRON,
        when=(
            Need(("args.use_transformer_engine_op_fuser",), ON),
            Need(("args.moe_grouped_gemm",), ON),
        ),
    ),
)
"""Least versions."""

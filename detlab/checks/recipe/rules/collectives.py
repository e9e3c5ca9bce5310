"""Collectives without Megatron: reductions in the switch."""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.requirements import Chosen, LeavesOut, OneOf
from detlab.checks.recipe.rules.rule import CPU_ONLY, ON, OTHERS, Filled, Need, Rule, Versions
from detlab.checks.recipe.rules.sources import TORCHTITAN, github

_SWITCHED_OFF: Final = Need(("env.NCCL_NVLS_ENABLE",), OneOf(("0",)))
_ONE_PROCESS: Final = Need(("place.world_size",), OneOf(("1",)))

COLLECTIVES: Final = (
    Rule(
        "DET040",
        ("env.NCCL_ALGO",),
        LeavesOut("NVLS"),
        "accepted",
        "error",
        "NVLS adds in the switch, in an order that differs from call to call",
        "all ranks agree on a sum that is another one in the next run",
        "export NCCL_ALGO=^NVLS",
        (github("NVIDIA/nccl#1497"), github("pytorch/pytorch#154880")),
        OTHERS,
        unless=(CPU_ONLY, _SWITCHED_OFF, _ONE_PROCESS),
    ),
    Rule(
        "DET041",
        ("env.NCCL_ALGO",),
        Chosen(),
        (
            Filled(
                "^NVLS",
                "torch from 2.9 on under its deterministic flag",
                (Need(("torch.deterministic", "args.deterministic_mode"), ON),),
                Versions("version.torch", since="2.9"),
                must_know=True,
            ),
        ),
        "warning",
        "where the hardware has it NCCL may choose NVLS, whose order of adding differs from call to call",
        "all ranks agree on a sum that is another one in the next run",
        "export NCCL_NVLS_ENABLE=0",
        (github("NVIDIA/nccl#1497"), github("pytorch/pytorch!156381"), TORCHTITAN),
        OTHERS,
        unless=(CPU_ONLY, _SWITCHED_OFF, _ONE_PROCESS),
    ),
)
"""Reductions."""

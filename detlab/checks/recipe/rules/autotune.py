"""Choices made by time: autotuners and the caches that keep what they chose."""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.packages import STATE_SPACE
from detlab.checks.recipe.rules.requirements import Given, OneOf, Shared
from detlab.checks.recipe.rules.rule import ON, Need, Rule
from detlab.checks.recipe.rules.sources import AUTOTUNE_CACHE, INDUCTOR, github

_KEPT: Final = Need(("env.TRITON_CACHE_AUTOTUNING",), ON)

AUTOTUNE: Final = (
    Rule(
        "DET050",
        ("env.TRITON_CACHE_AUTOTUNING",),
        ON,
        "rejected",
        "warning",
        "Triton measures its configurations anew in every process, and the one it takes fixes the order of "
        "the sum: on 8 ranks 13 of 22 kernel and shape pairs disagreed",
        "kernels are of another configuration on another rank and in the next run",
        "export TRITON_CACHE_AUTOTUNING=1",
        (AUTOTUNE_CACHE, github("triton-lang/triton#9368")),
        when=(STATE_SPACE,),
    ),
    Rule(
        "DET051",
        ("env.TRITON_CACHE_DIR",),
        Given(),
        "rejected",
        "error",
        "without it Triton keeps what it chose in a folder of each node",
        "every node chooses for itself",
        "export TRITON_CACHE_DIR=/a/folder/that/all/nodes/share",
        (AUTOTUNE_CACHE,),
        when=(_KEPT,),
    ),
    Rule(
        "DET052",
        ("env.TRITON_CACHE_DIR",),
        Shared(),
        "accepted",
        "error",
        "the folders of two ranks, hosts or jobs hold two choices",
        "kernels are of another configuration on another rank or in the next run",
        "export TRITON_CACHE_DIR=/a/folder/that/all/nodes/share",
        (AUTOTUNE_CACHE,),
        when=(_KEPT,),
        finding="one folder for each rank, host or job:",
    ),
    Rule(
        "DET053",
        ("env.TORCHINDUCTOR_DETERMINISTIC",),
        OneOf(("1",)),
        "rejected",
        "warning",
        "with TORCHINDUCTOR_MAX_AUTOTUNE=1 Inductor measures kernels on the device and takes the fastest; "
        "this switch rules out the measurements that change bits",
        "compiled kernels are others in the next run, unless its cache is kept",
        "export TORCHINDUCTOR_DETERMINISTIC=1",
        (INDUCTOR,),
        when=(Need(("env.TORCHINDUCTOR_MAX_AUTOTUNE",), OneOf(("1",))),),
    ),
)
"""Autotuners."""

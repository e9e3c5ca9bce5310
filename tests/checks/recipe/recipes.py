"""Recipes for the tests of the rules: two that break nothing, and for each rule what breaks it alone."""

from detlab.checks.recipe import Setting, Settings, gather
from detlab.checks.recipe.settings import KINDS

MEGATRON = {
    "args.deterministic_mode": True,
    "args.seed": 1234,
    "env.NCCL_ALGO": "Ring",
    "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "env.CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "torch.deterministic": True,
    "torch.deterministic_warn_only": False,
    "torch.fill_uninitialized_memory": False,
    "torch.cudnn_benchmark": False,
    "torch.float32_matmul_precision": "highest",
    "version.torch": "2.13.0+cu130",
    "version.megatron_core": "0.20.0",
    "place.world_size": 8,
}
"""A recipe of Megatron-LM that breaks no rule."""

TORCH = {
    "args.seed": 1234,
    "env.NCCL_ALGO": "^NVLS",
    "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "env.CUBLAS_WORKSPACE_CONFIG": ":16:8",
    "env.PYTHONHASHSEED": "0",
    "torch.deterministic": True,
    "torch.deterministic_warn_only": False,
    "torch.fill_uninitialized_memory": False,
    "torch.cudnn_benchmark": False,
    "torch.float32_matmul_precision": "highest",
    "version.torch": "2.13.0+cu130",
    "place.world_size": 8,
}
"""A recipe of plain torch that breaks no rule."""

TORCHTITAN = TORCH | {"args.deterministic_mode": True}
"""A recipe of torchtitan that breaks no rule."""

HYBRID = {
    "args.hybrid_layer_pattern": "M*M-",
    "version.causal_conv1d": "1.6.0",
    "env.TRITON_CACHE_AUTOTUNING": "1",
    "env.TRITON_CACHE_DIR": "/lustre/cache/triton",
}
"""What a model with state-space layers has beside the rest."""

OF_FRAMEWORK = {
    "megatron-lm": MEGATRON,
    "megatron-bridge": MEGATRON,
    "torch": TORCH,
    "torchtitan": TORCHTITAN,
}

ALL = frozenset(KINDS)


class Ranks(tuple):
    """Values of one setting, of one rank after the other."""


def make(framework="megatron-lm", *, without=(), kinds=ALL, label="run", **changes):
    """Make the settings of a recipe that breaks nothing, with changes (``env__NAME=…``) to it."""
    named = {name.replace("__", ".", 1): value for name, value in changes.items()}
    content = {**OF_FRAMEWORK.get(framework, TORCH), **named}
    return settings({n: v for n, v in content.items() if n not in without}, framework, kinds, label)


def settings(content, framework="megatron-lm", kinds=ALL, label="run"):
    """Make settings of names and values; `Ranks` gives each rank its own."""
    said = [
        Setting(
            name, each, f"{label}: rank {rank}: {name}" if isinstance(value, Ranks) else f"{label}: {name}"
        )
        for name, value in content.items()
        for rank, each in enumerate(value if isinstance(value, Ranks) else (value,))
    ]
    return Settings(label, framework, gather(said), frozenset(kinds))

"""Where the rules can be read."""

from __future__ import annotations

from typing import Final

from detlab.catalog import Source
from detlab.catalog.entry import CUBLAS_DOCS, MEGATRON_GUIDE, MEGATRON_OPS, TORCH_DOCS, github

__all__ = [
    "AUTOTUNE_CACHE",
    "BRIDGE_CHECKS",
    "BRIDGE_GAP",
    "CONV1D",
    "CUBLAS_DOCS",
    "CUDA_NOTES",
    "HASH_SEED",
    "INDUCTOR",
    "LATE_FLAG",
    "LOADER_DOCS",
    "MEGATRON_ARGUMENTS",
    "MEGATRON_CODE",
    "MEGATRON_GUIDE",
    "MEGATRON_OPS",
    "PRECISION_DOCS",
    "TE_DOCS",
    "TORCHTITAN",
    "TORCH_DOCS",
    "TORCH_NOTES",
    "github",
]

MEGATRON_CODE: Final = Source(
    "Megatron-LM megatron/training/determinism.py",
    "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/determinism.py",
)
MEGATRON_ARGUMENTS: Final = Source(
    "Megatron-LM megatron/training/arguments.py before determinism.py",
    "https://github.com/NVIDIA/Megatron-LM/blob/f759111e4dd44430988f0e7ea167b8ad1975413f/megatron/training/"
    "arguments.py#L1072-L1081",
)
BRIDGE_GAP: Final = Source(
    "Megatron-Bridge: determinism overrides",
    "https://docs.nvidia.com/nemo/megatron-bridge/nightly/apidocs/bridge/"
    "bridge.recipes.utils.determinism_utils.html",
)
BRIDGE_CHECKS: Final = github("NVIDIA-NeMo/Megatron-Bridge!968")
CONV1D: Final = github("Dao-AILab/causal-conv1d!88")
AUTOTUNE_CACHE: Final = github("NVIDIA/Megatron-LM!6966")
LATE_FLAG: Final = github("areal-project/AReaL!1544")
TE_DOCS: Final = Source(
    "Transformer Engine: environment variables",
    "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/envvars.html",
)
TORCH_NOTES: Final = Source(
    "torch: reproducibility", "https://docs.pytorch.org/docs/stable/notes/randomness.html"
)
CUDA_NOTES: Final = Source("torch: CUDA semantics", "https://docs.pytorch.org/docs/stable/notes/cuda.html")
PRECISION_DOCS: Final = Source(
    "torch.set_float32_matmul_precision",
    "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
)
LOADER_DOCS: Final = Source(
    "torch.utils.data.DataLoader",
    "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
)
INDUCTOR: Final = Source(
    "torch/_inductor/config.py", "https://github.com/pytorch/pytorch/blob/main/torch/_inductor/config.py"
)
TORCHTITAN: Final = Source(
    "torchtitan/distributed/utils.py",
    "https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/utils.py",
)
HASH_SEED: Final = Source(
    "Python: PYTHONHASHSEED", "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHASHSEED"
)

"""What a choice means for the bits, and what to set so that it is made once: in words, with their sources."""

from __future__ import annotations

import re
from typing import Final

SPLIT_SOURCE: Final = "https://github.com/NVIDIA/CUDALibrarySamples/issues/243"
AUTOTUNE_SOURCE: Final = "https://github.com/NVIDIA/Megatron-LM/pull/6966"
CUBLAS_SOURCE: Final = "https://docs.nvidia.com/cuda/cublas/index.html#cublasltreductionscheme-t"

_SCHEMES: Final = {
    "INPLACE": "added up in the output buffer, in its dtype (INPLACE): counters keep them one after another, "
    "and nothing documents in which order; a report saw split sums vary, and stable with NONE",
    "COMPUTE_TYPE": "kept in the workspace in the dtype of the computation, and added up in a separate step "
    "(COMPUTE_TYPE)",
    "OUTPUT_TYPE": "kept in the workspace rounded to the output's dtype, and added up in a separate step "
    "(OUTPUT_TYPE)",
}
"""How the parts of a split sum come together: cuBLAS, cublasLtReductionScheme_t."""


def split_words(choice: str) -> str:
    """Say whether a choice splits the sum along k, and how its parts are added; empty if it does not say."""
    values = dict(re.findall(r"(\w+)=(\S+)", choice))
    if "algoId" not in values:
        split = re.search(r"split_?k", choice, re.IGNORECASE)
        return "the kernel splits the sum along k" if split else ""
    if "numSplitsK" not in values:
        return "the sum along k is not split (numSplitsK 1, reductionScheme NONE)"
    scheme = values.get("reductionScheme", "")
    how = _SCHEMES.get(
        scheme, f"added up by scheme {scheme}" if scheme else "added up in a way that was not printed"
    )
    return f"split-K: the sum along k is cut into {values['numSplitsK']} parts, {how}"


def is_split(choice: str) -> bool:
    """Say whether a choice splits the sum along k."""
    return "numSplitsK=" in choice or bool(re.search(r"split_?k", choice, re.IGNORECASE))


def advice(source: str) -> str:
    """Say what to set so that both runs, and all ranks, choose the same."""
    if source.startswith("triton") or source == "trace":
        return (
            "TRITON_CACHE_AUTOTUNING=1 and one TRITON_CACHE_DIR that all ranks of both runs share; "
            "TRITON_PRINT_AUTOTUNING=1 shows what is chosen"
        )
    if source.startswith("inductor"):
        return (
            "one TORCHINDUCTOR_CACHE_DIR that all ranks of both runs share, filled before by one run, or no "
            "max_autotune"
        )
    return (
        "CUBLAS_WORKSPACE_CONFIG=:4096:8 (or :16:8) before the first cuBLAS call, and the same workspace and "
        "number of SMs in both runs; or fix the algorithm, with CUBLASLT_REDUCTION_SCHEME_NONE where the sum "
        "must not be split"
    )


def reference(source: str) -> str:
    """Give where the facts about a source's choices can be read."""
    return SPLIT_SOURCE if source in ("cublaslt", "kineto", "nsys") else AUTOTUNE_SOURCE


def chooser(source: str) -> str:
    """Name what chose."""
    return "the heuristic of cuBLASLt" if source in ("cublaslt", "kineto", "nsys") else "the autotuner"

"""Names of kernels as a profiler writes them: what was chosen is in them, with much that is not.

A name of a matrix product tells the tile, the layout and whether its inner dimension is split
(``nvjet_tst_64x8_64x16_1x4_h_bz_splitK_TNT``, ``ampere_sgemm_64x32_sliced1x4_nn``); names in C++ have
template arguments, parameters and namespaces around that.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

GEMM: Final = "gemm"

_GEMM: Final = re.compile(
    r"gemm|nvjet|cutlass.*tensorop|wgmma|(?:^|_)gemv|dot_kernel|Cijk_|xmma_(?!fprop|dgrad|wgrad)",
    re.IGNORECASE,
)
_HELPER: Final = re.compile(r"splitKreduce|split_k_reduce|scal_kernel", re.IGNORECASE)
"""Kernels that a product launches beside its own: they are no product of their own."""

_INSIDE: Final = re.compile(r"cutlass::(?:device_kernel|Kernel2?)\s*<\s*([A-Za-z_]\w*)")
_HASH: Final = re.compile(r"(?<=_)(?=[0-9a-f]*\d)[0-9a-f]{12,}(?=_|$)")
_NUMBER: Final = re.compile(r"_\d+$")
_SPLIT: Final = re.compile(r"split_?k(?!reduce)(?:_?(\d+))?|splits?(\d+)k|sliced(\d+x\d+)", re.IGNORECASE)
_TILE: Final = re.compile(r"tilesize(\d+x\d+(?:x\d+)?)|_(\d+x\d+(?:x\d+)?)(?=_|$)")


class KernelName(NamedTuple):
    """What the name of a kernel tells.

    Attributes
    ----------
    kernel
        ``gemm`` for every kernel of a matrix product, else the name without what was chosen for it.
    choice
        The name without parameters and digests.
    is_helper
        Whether it only adds up the parts of another kernel.
    """

    kernel: str
    choice: str
    is_helper: bool = False


@lru_cache(maxsize=16_384)
def kernel_name(name: str) -> KernelName:
    """Take the name of a kernel apart."""
    plain = _plain(name)
    if _HELPER.search(plain):
        return KernelName("splitKreduce", plain, True)
    if _GEMM.search(plain) and "implicit" not in plain:  # a convolution that is computed as a product
        return KernelName(GEMM, plain)
    base = plain.split("<", 1)[0]
    return KernelName(_NUMBER.sub("", base) if base.startswith("triton_") else base, plain)


def _plain(name: str) -> str:
    """Take out parameters, return type and digests; of a wrapper keep the kernel that it wraps."""
    inside = _INSIDE.search(name)
    if inside:
        return inside[1]
    text = _without_parameters(" ".join(name.split()))
    text = re.sub(r"^(?:static )?void ", "", text)
    return _HASH.sub("", text).rstrip("_") or name


def _without_parameters(text: str) -> str:
    """Cut the parameters of a function off: the last pair of parentheses, if it ends the name."""
    if not text.endswith((")", ") const")):
        return text
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if text[at] == "(" and depth == 0:
            return text[:at].rstrip()
    return text


def told_by(choice: str) -> str:
    """Say in words what a name tells of the choice: tile and split; empty where it tells neither."""
    tile, split = _TILE.search(choice), _SPLIT.search(choice)
    said = [f"tile {next(filter(None, tile.groups()))}"] if tile else []
    if split:
        parts = next(filter(None, split.groups()), "")
        said.append(f"split along k{f' ({parts})' if parts else ''}")
    return ", ".join(said)

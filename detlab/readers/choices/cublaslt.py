"""Logs of cuBLASLt: the algorithm of every matrix product that was run, from ``CUBLASLT_LOG_LEVEL`` 2 on.

A product is one line ``[time][cublasLt][pid][Trace][cublasLtMatmul] A=… Adesc=[…] … algo=[…] … stream=…``;
products that came in through cuBLAS are named after their dtypes (``cublasLtTSTMatmul``). Only what is not
at its default is printed. Levels: https://docs.nvidia.com/cuda/cublas/index.html#cublaslt-logging
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from detlab.readers.choices.frame import Process, Use, written
from detlab.readers.choices.lines import Gathered, Line

KERNEL: Final = "cublasLtMatmul"

_HEAD: Final = re.compile(r"\[cublasLt\]\[(\d+)\]\[(\w+)\]\[(\w+)\]")
_BLOCK: Final = re.compile(r"(\w+)=\[([^\[\]]*)\]")
_PAIR: Final = re.compile(r"(\w+)=(\S+)")
_MATMUL: Final = re.compile(r"cublasLt\w*Matmul$")
_POINTERS: Final = re.compile(r"=0[xX][0-9A-Fa-f]+")

_DESCRIPTORS: Final = ("Adesc", "Bdesc", "Cdesc", "Ddesc")
_NEEDED: Final = ("Adesc", "Bdesc", "Ddesc", "algo")
_CHOSEN: Final = (
    "algoId", "tile", "stages", "clusterShape", "numSplitsK", "reductionScheme", "ctaSwizzling",
    "customOption",
)  # fmt: skip
_PREFIX: Final = re.compile(
    r"^(?:CUBLASLT_)?(?:MATMUL_TILE|MATMUL_STAGES|REDUCTION_SCHEME|CLUSTER_SHAPE|EPILOGUE|OP|ORDER)_(?=.)"
)
_DEFAULTS: Final = {
    "numSplitsK": ("0", "1", "-1"), "reductionScheme": ("NONE", "0"), "ctaSwizzling": ("0",),
    "customOption": ("0",), "transa": ("N",), "transb": ("N",), "epilogue": ("DEFAULT",), "order": ("COL",),
}  # fmt: skip
"""What a version may print or leave out, for it is the default."""

_GIVEN: Final = ("smCountTarget", "workSpaceSizeInBytes")
"""What the caller gives to the choice and is no part of the product."""


class Reader:
    """Takes lines of cuBLASLt's log."""

    markers = ("[cublasLt]",)

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered

    def take(self, line: Line) -> None:
        """Take a line; one that another process wrote into has several heads."""
        heads = list(_HEAD.finditer(line.text))
        for number, head in enumerate(heads):
            is_last = number == len(heads) - 1
            end = len(line.text) if is_last else heads[number + 1].start()
            self._message(line, head, line.text[head.end() : end], line.whole or not is_last)
        if not heads:
            self._gathered.damage(line, "a line of cuBLASLt whose beginning is cut or mixed up")

    def end(self) -> None:
        """Nothing of cuBLASLt's goes on in the next line."""

    def _message(self, line: Line, head: re.Match[str], text: str, whole: bool) -> None:
        pid, kind, function = head.groups()
        if not _MATMUL.match(function):
            if "Heuristic" in function and kind == "Api":
                self._gathered.count("questions to the heuristic of cuBLASLt, which run nothing")
            return
        if kind != "Trace":  # the call itself is announced as well, before it is traced
            return
        use = product(function, _POINTERS.sub("", text))
        if use is None or not whole:
            self._gathered.damage(line, "a product of cuBLASLt whose line is cut or mixed up with another")
            return
        self._gathered.uses.add("cublaslt", Process(line.rank, f"pid {pid} in {line.file}"), use, line.where)


@lru_cache(maxsize=16_384)
def product(function: str, text: str) -> Use | None:
    """Take one product apart; None where a part that is needed is missing.

    Parameters
    ----------
    function
        The function that wrote the line.
    text
        What it wrote, without addresses.
    """
    found = _BLOCK.findall(text)
    blocks = {name: dict(_PAIR.findall(inside)) for name, inside in found}
    if len(blocks) < len(found):  # the rest of another line follows
        return None
    if any(not blocks.get(name) for name in _NEEDED) or "algoId" not in blocks["algo"]:
        return None
    sizes = [
        blocks[name].get(part) for name in ("Adesc", "Bdesc", "Ddesc") for part in ("rows", "cols", "type")
    ]
    if None in sizes:
        return None
    outside = dict(_PAIR.findall(_BLOCK.sub("", text)))
    compute = _usual(blocks.get("computeDesc", {}))
    details = {name: value for name, value in (outside | compute).items() if name in _GIVEN}
    problem = _problem(blocks, {name: text for name, text in compute.items() if name not in _GIVEN}, outside)
    choice = written(_usual(blocks["algo"]), _CHOSEN)
    return Use(KERNEL, problem, choice, written({"function": function, **details}))


def _usual(values: dict[str, str]) -> dict[str, str]:
    """Take out the beginnings of the names of constants, and what is at its default."""
    plain = {name: _PREFIX.sub("", value) for name, value in values.items() if not name.endswith("Pointer")}
    return {name: value for name, value in plain.items() if value not in _DEFAULTS.get(name, ())}


def _problem(blocks: dict[str, dict[str, str]], compute: dict[str, str], outside: dict[str, str]) -> str:
    """Write the product as the library sees it, which counts columns first.

    ``m``, ``n`` and ``k``, the layout (``TN``: the first operand is transposed), each matrix with its rows
    and columns, what is computed with, and beta.
    """
    ops = [compute.get(name, "N")[:1] for name in ("transa", "transb")]
    k = blocks["Adesc"]["cols" if ops[0] == "N" else "rows"]
    d = blocks["Ddesc"]
    parts = [f"m={d['rows']} n={d['cols']} k={k} {''.join(ops)}"]
    for name in _DESCRIPTORS:
        desc = _usual(blocks.get(name, {}))
        if desc:
            shape = f"{desc.pop('type', '?')} {desc.pop('rows', '?')}x{desc.pop('cols', '?')}"
            parts.append(f"{name[0]}={' '.join(filter(None, (shape, written(desc, ('ld',)))))}")
    rest = {name: value for name, value in compute.items() if name not in ("transa", "transb")}
    beta = f"beta={outside['beta']}" if "beta" in outside else ""
    return "; ".join(filter(None, (*parts, written(rest, ("computeType", "scaleType", "epilogue")), beta)))

"""Names of ranges, ops and kernels without what varies from run to run, and the table each belongs to."""

from __future__ import annotations

from typing import Final

import polars as pl

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OP: Final = "op"
KERNEL: Final = "kernel"
RANGE: Final = "range"

TABLES: Final = (FORWARD, BACKWARD, OP, KERNEL, RANGE)
"""Modules by their dotted names; nodes of the backward pass; ops; work of the device; other ranges."""

_COUNTED: Final = (
    r",? *(op_id|seq|stashed seq|stashed tid|sizes|input_op_ids|trailing_seq_nr) *= *(\[.*\]|[^,\s]+)"
)
"""What ``torch.autograd.profiler.emit_nvtx`` writes behind a name; each call counts on."""

_ENGINE: Final = r"^autograd::engine::evaluate_function: *"
_MODULE: Final = r"^[A-Za-z_]\w*(\.[\w*]+)+$"
_NODE: Final = r"Backward\d*$|^torch::autograd::|AccumulateGrad$"
_BACKWARD: Final = r"(?i)(^|[._ -])(backward|bwd)($|[._ -])"
_STEP: Final = r"(?i)^(profilerstep|iteration|iter|step|train[_ ]step|training[_ ]step|train_iter)[ #=:]*…?$"


def plain_name(name: pl.Expr, *, by_layer: bool = False) -> pl.Expr:
    """Take out of a name what counts on from call to call, and the address of an object.

    Parameters
    ----------
    name
        Names as profilers wrote them.
    by_layer
        Keep the numbers of layers apart; else ``decoder.layers.3.mlp`` is ``decoder.layers.*.mlp``.
    """
    text = name.cast(pl.String).str.replace_all(_COUNTED, "").str.replace(_ENGINE, "")
    text = text.str.replace(r"^:+", "")  # the default domain of NVTX, in newer reports
    text = text.str.replace_all(r"0x[0-9a-fA-F]+", "0x…")
    text = text.str.replace_all(
        r"(#|(?i:\b(?:iteration|iter|step|microbatch|micro_batch)[ =:]))\s*\d+", "${1}…"
    )
    text = text.str.replace(r"^(triton_\w*?)_\d+$", "${1}")  # numbered anew by each compilation
    text = text.str.strip_chars(" ,")
    if by_layer:
        return text
    # twice, for two numbers side by side share a dot
    return text.str.replace_all(r"\.\d+(\.|$)", ".*${1}").str.replace_all(r"\.\d+(\.|$)", ".*${1}")


def is_step(name: pl.Expr) -> pl.Expr:
    """Say whether a plain name is that of a whole step."""
    return name.str.contains(_STEP)


def table_of(name: pl.Expr, kind: pl.Expr) -> pl.Expr:
    """Say which table a row belongs to, by its plain name and its kind.

    Modules are named with dots, ops with colons, nodes of the backward pass with their ending.
    """
    return (
        pl.when(kind.cast(pl.String).is_in(["kernel", "memcpy", "memset"]))
        .then(pl.lit(KERNEL))
        .when(is_step(name))
        .then(pl.lit(RANGE))
        .when(name.str.contains(_NODE))
        .then(pl.lit(BACKWARD))
        .when(name.str.contains("::", literal=True) | (kind.cast(pl.String) == "op"))
        .then(pl.lit(OP))
        .when(name.str.contains(_BACKWARD))
        .then(pl.lit(BACKWARD))
        .when(name.str.contains(_MODULE))
        .then(pl.lit(FORWARD))
        .otherwise(pl.lit(RANGE))
    )

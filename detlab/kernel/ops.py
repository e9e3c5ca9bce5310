"""Find the op of a capture among those registered with torch; everything else is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import torch

from detlab.captures import Capture
from detlab.captures.call import OP_NAME
from detlab.captures.fields import EDITED_HINT
from detlab.errors import CaptureError

NAMESPACES: Final = frozenset({"aten"})
"""Namespaces whose ops run without the user's word."""

COMMUNICATION: Final = frozenset(
    {"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"}
)
_FRESH_MEMORY: Final = ("empty", "new_empty", "resize")
"""How the names of ops begin that give memory nobody has written."""

_FILE_ARGUMENTS: Final = frozenset({"filename", "file", "path"})


def find_op(capture: Capture, allow: Collection[str] = ()) -> torch._ops.OpOverload:
    """Look up the op of a capture.

    Parameters
    ----------
    allow
        Further namespaces whose ops may run, such as the one of a library that the user has imported.

    Raises
    ------
    CaptureError
        The op communicates, belongs to another namespace, is not registered with torch's dispatcher, reads or
        writes files, gives nothing to compare, or has another schema than it had when it was captured.
    """
    if not capture.is_op:
        raise CaptureError(
            f"{capture.path} holds a call of the Python function {capture.op}; no file may name what to run.",
            "give the function itself: replay(capture, call=…)",
        )
    namespace, name, overload = capture.op.split(".")
    _check_namespace(capture.op, namespace, allow)
    qualified = f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}")
    if not torch._C._dispatch_has_kernel(qualified):
        raise CaptureError(
            f"{capture.op} is not registered with torch in this process.",
            "import the package that defines it, or use the version of torch that it was captured with",
        )
    func: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    _check_schema(capture, func)
    _check_effects(func)
    return func


def writes(argument: torch._C.Argument) -> bool:
    """Say whether the schema marks an argument as mutated."""
    return argument.alias_info is not None and argument.alias_info.is_write


def written_arguments(capture: Capture) -> set[str]:
    """Name the arguments that the call changes, as the captured schema and the capture itself say.

    Raises
    ------
    CaptureError
        The capture holds no schema of torch's form.
    """
    if not capture.is_op:
        return set(capture.mutates)
    try:
        schema = torch._C.parse_schema(capture.schema)
    except RuntimeError as error:
        raise CaptureError(f"{capture.path} holds no schema of {capture.op}.", EDITED_HINT) from error
    return {argument.name for argument in schema.arguments if writes(argument)} | set(capture.mutates)


def gives_fresh_memory(op: str) -> bool:
    """Say whether the result of an op is memory that was never written, so that it may hold anything."""
    return OP_NAME.fullmatch(op) is not None and op.split(".")[1].startswith(_FRESH_MEMORY)


def _check_namespace(op: str, namespace: str, allow: Collection[str]) -> None:
    if namespace in COMMUNICATION:
        raise CaptureError(
            f"{op} communicates, and a capture holds one rank of it.",
            "compare the inputs of all its members instead",
        )
    if namespace not in NAMESPACES and namespace not in allow:
        raise CaptureError(
            f"{op} is not one of torch's own ops.",
            f"if you trust it, say replay(capture, allow=[{namespace!r}])",
        )


def _check_schema(capture: Capture, func: torch._ops.OpOverload) -> None:
    if (here := str(func._schema)) != capture.schema:
        there = capture.state["versions"].get("torch", "unknown")
        raise CaptureError(
            f"{capture.op} has changed since it was captured.\n"
            f"  captured with torch {there}: {capture.schema}\n"
            f"  here, torch {torch.__version__}: {here}",
            "replay it with the version of torch that it was captured with",
        )


def _check_effects(func: torch._ops.OpOverload) -> None:
    arguments = func._schema.arguments
    if _FILE_ARGUMENTS.intersection(argument.name for argument in arguments):
        raise CaptureError(f"{func} reads or writes files.", "replay the ops that use what it reads")
    if not func._schema.returns and not any(map(writes, arguments)):
        raise CaptureError(f"{func} returns and mutates nothing, so there is nothing to compare.", "")

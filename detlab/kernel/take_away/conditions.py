"""Which conditions of a report one file can repeat on its own, and with which flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from detlab.captures import Capture
from detlab.kernel.report import ReplayReport
from detlab.kernel.statistics import ConditionResult
from detlab.text import plural

_DEFAULT_TRIALS: Final = 60
_ON: Final = {"on": True, "off": False}
_FLAGS: Final[tuple[tuple[str, Callable[..., dict[str, Any]]], ...]] = (
    ("baseline", dict),
    (
        r"(\d+) threads?(, use_deterministic_algorithms)?",
        lambda n, flag: {"threads": int(n), "deterministic": flag is not None},
    ),
    (r"cuda(?::\d+)?(, use_deterministic_algorithms)?", lambda flag: {"deterministic": flag is not None}),
    (
        "deterministic algorithms(?: (with|without) memory fill)?",
        lambda fill: {"deterministic": True} | ({"fill_memory": fill == "with"} if fill else {}),
    ),
    ("mkldnn (on|off)", lambda on: {"mkldnn": _ON[on]}),
    ("cudnn benchmark (on|off)", lambda on: {"cudnn_benchmark": _ON[on]}),
    (
        "tf32 (on|off)",  # in matrix products it follows from the precision
        lambda on: {"tf32": _ON[on], "float32_matmul_precision": "high" if _ON[on] else "highest"},
    ),
    ("blas (cublas|cublaslt)", lambda blas: {"blas": blas}),
    (
        "float32 matmul precision (highest|high|medium)",
        lambda precision: {"float32_matmul_precision": precision},
    ),
)
_POISON: Final = re.compile("poisoned(?: with (nan|max|zeros))?")


def repeated_conditions(
    report: ReplayReport, capture: Capture, base: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Give what the runnable file sets for each condition, and the names of those that it does not repeat.

    Parameters
    ----------
    base
        What every condition sets otherwise than training had it, unless it says so itself.

    Returns
    -------
    The conditions, one at least; and the names of those that need other work, other processes or another
    library.
    """
    usual = _as_in_training(capture) | dict(base)
    repeated, left_out = [], []
    for row in report.conditions:
        flags = _flags_of(row.name, capture.device)
        if flags is None or not row.trials:
            left_out.append(row.name)
        else:
            repeated.append(_condition(row, usual | flags, capture.device))
    if not repeated:
        trials = max((row.trials for row in report.conditions), default=0) or _DEFAULT_TRIALS
        repeated = [{**usual, "name": "as in training", "trials": trials}]
    return repeated, left_out


def _condition(row: ConditionResult, flags: dict[str, Any], device: str) -> dict[str, Any]:
    threads = f"{flags['threads']} {plural('thread', flags['threads'])}"
    says_so = device != "cpu" or "thread" in row.name
    return {**flags, "name": row.name if says_so else f"{row.name}, {threads}", "trials": row.trials}


def _as_in_training(capture: Capture) -> dict[str, Any]:
    state = capture.state
    return {
        "threads": max(state["threads"], 1),
        "deterministic": state["deterministic"],
        "warn_only": state["deterministic_warn_only"],
        "fill_memory": state["fill_uninitialized_memory"],
        "float32_matmul_precision": state["float32_matmul_precision"],
        "mkldnn": state["mkldnn"],
        "cudnn_benchmark": state["cudnn_benchmark"],
        "cudnn_deterministic": state["cudnn_deterministic"],
        "tf32": None,
        "blas": None,
        "poison": None,
    }


def _flags_of(name: str, device: str) -> dict[str, Any] | None:
    """Read what a condition sets from its name; None when the file cannot repeat it."""
    if (found := _POISON.fullmatch(name)) is not None:
        return {"poison": found[1] or "nan"} if device == "cpu" else None
    for pattern, flags in _FLAGS:
        if (found := re.fullmatch(pattern, name, re.ASCII)) is not None:
            return flags(*found.groups())
    return None

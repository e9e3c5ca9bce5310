"""Checks around the trace: the recipe, the resume, the replicas, the price, and whether a trace is whole."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from detlab.checks.certificate import Certificate, certify
    from detlab.checks.kernels import check_kernels
    from detlab.checks.recipe import check_recipe, compare_recipes
    from detlab.checks.replicas import check_recompute, check_replicas
    from detlab.checks.result import CheckResult
    from detlab.checks.resume import check_resume
    from detlab.checks.tax import check_tax
    from detlab.checks.trace import check_trace

__all__ = [
    "Certificate",
    "CheckResult",
    "certify",
    "check_kernels",
    "check_recipe",
    "check_recompute",
    "check_replicas",
    "check_resume",
    "check_tax",
    "check_trace",
    "compare_recipes",
]

_HOME: Final = {
    "Certificate": "certificate",
    "CheckResult": "result",
    "certify": "certificate",
    "check_kernels": "kernels",
    "check_recipe": "recipe",
    "check_recompute": "replicas",
    "check_replicas": "replicas",
    "check_resume": "resume",
    "check_tax": "tax",
    "check_trace": "trace",
    "compare_recipes": "recipe",
}
"""The module that each public name lives in."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'detlab.checks' has no attribute '{name}'")
    value = getattr(import_module(f"detlab.checks.{_HOME[name]}"), name)
    globals()[name] = value
    return value

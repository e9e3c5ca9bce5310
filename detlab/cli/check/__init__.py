"""``detlab check recipe|resume|replicas|recompute|tax|trace|kernels``: the questions around the trace."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CHECKS: Final = ("recipe", "resume", "replicas", "recompute", "tax", "trace", "kernels")
"""The checks, each a module here with ``add_parser(subparsers)`` that sets ``run(args) -> exit code``."""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command and its checks."""
    parser = subparsers.add_parser(
        "check", help="recipe, resume, replicas, the price of determinism, and whether a trace is whole"
    )
    checks = parser.add_subparsers(dest="check", required=True, metavar="CHECK")
    for name in CHECKS:
        import_module(f"detlab.cli.check.{name}").add_parser(checks)

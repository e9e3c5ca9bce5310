"""``detlab check kernels A B``: did both runs choose the same kernels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_WHAT = "a log, profile or autotuner's cache, a folder of them with a file a rank, or a trace"


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("kernels", help="did both runs choose the same kernels?")
    parser.add_argument("a", metavar="A", help=f"what tells the choices of a run: {_WHAT}")
    parser.add_argument("b", metavar="B", help="the same of the run beside it")
    parser.add_argument(
        "--comparison",
        metavar="FILE",
        help="what detlab compare A B --save FILE kept of the same runs: it shows where bits differ",
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_kernels
    from detlab.cli.outcome import finish
    from detlab.comparison.saved import load_comparison

    cmp = load_comparison(args.comparison) if args.comparison else None
    return finish(check_kernels(args.a, args.b, cmp), args)

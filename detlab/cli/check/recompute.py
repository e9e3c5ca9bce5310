"""``detlab check recompute RUN``: does the forward give the same bits when it is recomputed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("recompute", help="does recomputation give the bits of the forward?")
    parser.add_argument("source", metavar="RUN", help="a recorded run")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_recompute
    from detlab.cli.outcome import finish

    return finish(check_recompute(args.source), args)

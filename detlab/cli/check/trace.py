"""``detlab check trace RUN``: is a trace whole enough to be compared."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("trace", help="is a trace whole enough to be compared?")
    parser.add_argument("source", metavar="RUN", help="a recorded run")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_trace
    from detlab.cli.outcome import finish

    return finish(check_trace(args.source), args)

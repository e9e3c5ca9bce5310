"""``detlab check tax DEFAULT DETERMINISTIC``: what determinism costs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("tax", help="what does determinism cost, and where?")
    parser.add_argument("a", metavar="A", help="a run")
    parser.add_argument("b", metavar="B", help="the run beside it")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_tax
    from detlab.cli.outcome import finish

    return finish(check_tax(args.a, args.b), args)

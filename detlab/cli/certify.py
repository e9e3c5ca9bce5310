"""``detlab certify FILE``: the gates of one recipe as a one-page statement."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("certify", help="gather the gates of a recipe into a one-page statement")
    parser.add_argument("source", metavar="FILE", help="TOML that names the runs")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import certify
    from detlab.cli.outcome import finish

    return finish(certify(args.source), args)

"""``detlab check replicas RUN [RUN …]``: do ranks that should hold the same tensor hold the same bits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.compare import add_subset
from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser(
        "replicas",
        help="do replicas hold the same bits?",
        description="Do ranks that should hold the same tensor hold the same bits? Of several runs it asks "
        "as well which host or device those that drift have in common.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a recorded run; several for what they share")
    add_subset(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_replicas
    from detlab.cli.outcome import finish
    from detlab.readers import load_run

    runs = [load_run(path, ranks=args.ranks, steps=args.steps) for path in args.runs]
    return finish(check_replicas(runs), args)

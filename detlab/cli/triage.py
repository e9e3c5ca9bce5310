"""``detlab triage RUN``: loss spikes and NaN, from console logs alone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.compare import add_subset
from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("triage", help="did the loss spike, and is it data, a race or hardware?")
    parser.add_argument("run_path", metavar="RUN", help="a run: its log, or the folder of its logs")
    parser.add_argument("--reference", metavar="R", help="a run of the same recipe to hold it against")
    parser.add_argument(
        "--rerun",
        action="append",
        default=[],
        metavar="R",
        help="another run over the same steps; again for more",
    )
    add_subset(parser)
    parser.add_argument(
        "--format", metavar="WORD", help="format of the logs, in place of what they look like"
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Triage; exit with 0 where nothing went wrong, 1 where something did, 2 where not all could be read."""
    from detlab.cli.outcome import finish
    from detlab.comparison import triage
    from detlab.readers import load_run

    paths = [args.run_path, *([args.reference] if args.reference else []), *args.rerun]
    runs = [load_run(path, ranks=args.ranks, steps=args.steps, format=args.format) for path in paths]
    reference = runs.pop(1) if args.reference else None
    result = triage(runs[0], reference, runs[1:])
    return finish(result, args)

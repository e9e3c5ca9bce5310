"""``detlab check trace RUN``: is a trace whole enough to be compared."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.compare import add_subset
from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("trace", help="is a trace whole enough to be compared?")
    parser.add_argument("source", metavar="RUN", help="a recorded run")
    for what in ("ranks", "steps"):
        parser.add_argument(f"--expect-{what}", metavar="N-M,…", help=f"{what} that have to be there")
    parser.add_argument("--strict", action="store_true", help="let warnings fail as errors do")
    add_subset(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_trace
    from detlab.cli.outcome import finish
    from detlab.readers import load_run

    run = load_run(args.source, ranks=args.ranks, steps=args.steps)
    expected = {"expect_ranks": args.expect_ranks, "expect_steps": args.expect_steps}
    return finish(check_trace(run, **expected, strict=args.strict), args)

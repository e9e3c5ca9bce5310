"""``detlab compare A B``: the verdict on two runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    from detlab.run import Run

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("compare", help="where, on which ranks and why do two runs differ?")
    add_options(parser)
    parser.add_argument("--save", metavar="FILE", help="keep the comparison, to open it again later")
    add_output_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the two runs and how they are compared."""
    parser.add_argument("a", metavar="A", help="a run: the folder that a recorder wrote into")
    parser.add_argument("b", metavar="B", help="the run to compare it with")
    add_subset(parser)
    parser.add_argument("--verify", action="store_true", help="read every event, also of equal segments")
    parser.add_argument("--pairs", metavar="FILE", help="TOML: names of B that A has other names for")
    parser.add_argument("--accept", metavar="FILE", help="TOML: known differences, each with a reason")
    parser.add_argument(
        "--count",
        action="append",
        default=[],
        metavar="KIND",
        help="count a kind of thing that is set aside, such as padding; again or with commas for more",
    )


def add_subset(parser: argparse.ArgumentParser) -> None:
    """Declare which ranks and steps are looked at."""
    for what in ("ranks", "steps"):
        parser.add_argument(
            f"--{what}", metavar="N-M,…", help=f"look at these {what} only; the verdict is about them alone"
        )


def runs_of(args: argparse.Namespace) -> tuple[Run, Run]:
    """Load both runs as far as they are asked for."""
    from detlab.readers import load_run

    a, b = (load_run(path, ranks=args.ranks, steps=args.steps) for path in (args.a, args.b))
    return a, b


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    """Give what `add_options` declared beside the runs as arguments of `detlab.compare`."""
    return {
        "verify": args.verify,
        "pairs": args.pairs,
        "accepted": args.accept,
        "count": [kind for each in args.count for kind in each.split(",")],
    }


def run(args: argparse.Namespace) -> int:
    """Compare; exit with 0 for a match, 1 for a divergence, 2 for an incomplete comparison."""
    from detlab.cli.outcome import finish
    from detlab.comparison import compare

    cmp = compare(*runs_of(args), **options_of(args))
    if args.save:
        cmp.save(args.save)
    return finish(cmp, args)

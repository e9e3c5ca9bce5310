"""``detlab certify A B``: the gates of one recipe as a one-page statement."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.compare import add_subset
from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("certify", help="what is shown of a recipe, on one page; it fails closed")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two independent runs of the recipe, or more")
    parser.add_argument("--recipe", metavar="FILE", help="the configuration, beside what the runs recorded")
    parser.add_argument(
        "--framework", metavar="NAME", help="whose rules --recipe is held against, where it does not say so"
    )
    parser.add_argument(
        "--resume",
        nargs=2,
        action="append",
        default=[],
        metavar=("REFERENCE", "RESUMED"),
        help="a resume, as `detlab check resume` takes it; again for more",
    )
    add_subset(parser)
    parser.add_argument("--html", metavar="FILE", help="write it as one page of HTML")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Certify; exit with 0 when certified, 1 when a gate failed, 2 when it could not be decided."""
    from detlab.checks import certify
    from detlab.cli.outcome import finish
    from detlab.readers import load_run

    runs = [load_run(path, ranks=args.ranks, steps=args.steps) for path in args.runs]
    resumes = [tuple(pair) for pair in args.resume]
    found = certify(runs, recipe=args.recipe, framework=args.framework, resumes=resumes)
    if args.html:
        from detlab.views.certificate import write_certificate

        write_certificate(found, args.html)
    return finish(found, args)

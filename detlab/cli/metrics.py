"""``detlab metrics A [B …]``: what logs hold, and where the numbers of runs differ."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from detlab.cli.compare import add_subset

if TYPE_CHECKING:
    from detlab.run import Run

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("metrics", help="compare the step metrics of logs and event files")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="RUN",
        help="a log, event file, export or folder of one run: one to see what it holds, more to compare them",
    )
    add_subset(parser)
    parser.add_argument("--format", metavar="NAME", help="the format, in place of what the files look like")
    parser.add_argument(
        "--metric", action="append", metavar="NAME", help="look at this metric only; again for more"
    )
    parser.add_argument(
        "--pair",
        action="append",
        default=[],
        metavar="A=B",
        help="a metric that the first run calls A and the second B; again for more",
    )
    parser.add_argument(
        "--offset", type=int, default=0, metavar="N", help="added to the steps of the second run"
    )
    parser.add_argument(
        "--measurements", action="store_true", help="compare timings and memory too; they never decide"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show or compare; exit with 0 for a match, 1 for a difference, 2 for what could not all be compared."""
    from detlab.cli import print_json
    from detlab.readers import load_run

    runs = [load_run(path, format=args.format, ranks=args.ranks, steps=args.steps) for path in args.paths]
    result = _result(runs, args)
    if args.json:
        print_json(result.to_json())
    else:
        print(result)
    return int(result.exit_code)


def _result(runs: list[Run], args: argparse.Namespace) -> Any:
    from detlab.comparison import compare_many
    from detlab.comparison.metrics import compare_metrics, describe_metrics

    _refuse_idle_options(len(runs), args)
    if len(runs) == 1:
        return describe_metrics(runs[0], names=args.metric)
    if len(runs) > 2:
        return compare_many(runs)
    return compare_metrics(
        *runs,
        names=args.metric,
        pairs=dict(map(_pair, args.pair)),
        offset=args.offset,
        measurements=args.measurements,
    )


def _refuse_idle_options(num: int, args: argparse.Namespace) -> None:
    """Refuse an option that would do nothing for so many runs."""
    from detlab.errors import InputError

    of_two = {"--pair": args.pair, "--offset": args.offset, "--measurements": args.measurements}
    idle = [name for name, given in of_two.items() if given and num != 2]
    idle += ["--metric"] if args.metric and num > 2 else []
    if idle:
        raise InputError(f"{idle[0]} does nothing for {num} runs.", "give it with two runs, or leave it out")


def _pair(text: str) -> tuple[str, str]:
    """Read ``loss=lm loss``."""
    from detlab.errors import InputError

    ours, equals, theirs = text.partition("=")
    if not (equals and ours.strip() and theirs.strip()):
        raise InputError(f"'{text}' pairs no metrics.", 'write --pair "loss=lm loss"')
    return ours.strip(), theirs.strip()

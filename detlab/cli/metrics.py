"""``detlab metrics A [B …]``: what logs hold, and where the numbers of runs differ."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from detlab.cli.compare import add_subset
from detlab.cli.outcome import add_output_options

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
    _add_options_of_many(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def _add_options_of_many(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--changed",
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs after a deliberate change; the others are the baseline",
    )
    parser.add_argument(
        "--restart",
        nargs=2,
        action="append",
        default=[],
        metavar=("RESUMED", "CONTINUOUS"),
        help="with --changed: a resumed run and the continuous one; again for more",
    )
    parser.add_argument(
        "--hosts", metavar="FILE", help="TOML, JSON or CSV: the hosts of each run, by its label"
    )
    parser.add_argument("--facts", metavar="FILE", help="TOML or JSON: what else is known of each run")


def run(args: argparse.Namespace) -> int:
    """Show or compare; exit with 0 for a match, 1 for a difference, 2 for what could not all be compared."""
    from detlab.cli.outcome import finish

    result = _result(args)
    return finish(result, args)


def _result(args: argparse.Namespace) -> Any:
    from detlab.comparison import compare_change, compare_many
    from detlab.comparison.metrics import compare_metrics, describe_metrics

    _refuse_idle_options(args)
    runs = _load(args.paths, args)
    if args.changed:
        restarts = [
            (resumed, continuous) for resumed, continuous in (_load(pair, args) for pair in args.restart)
        ]
        return compare_change(runs, _load(args.changed, args), restarts=restarts)
    if len(runs) == 1:
        return describe_metrics(runs[0], names=args.metric)
    if len(runs) > 2:
        return compare_many(runs, hosts=args.hosts, facts=args.facts)
    return compare_metrics(
        *runs,
        names=args.metric,
        pairs=dict(map(_pair, args.pair)),
        offset=args.offset,
        measurements=args.measurements,
    )


def _load(paths: list[str], args: argparse.Namespace) -> list[Run]:
    from detlab.readers import load_run

    return [load_run(path, format=args.format, ranks=args.ranks, steps=args.steps) for path in paths]


_USED_WITH: Final = {
    "metric": ("one run", "two runs"),
    "pair": ("two runs",),
    "offset": ("two runs",),
    "measurements": ("two runs",),
    "hosts": ("three runs or more",),
    "facts": ("three runs or more",),
    "restart": ("--changed",),
}
"""What each option does something for."""


def _refuse_idle_options(args: argparse.Namespace) -> None:
    """Refuse an option that would do nothing for so many runs."""
    from detlab.errors import InputError

    here = {1: "one run", 2: "two runs"}.get(len(args.paths), "three runs or more")
    here = "--changed" if args.changed else here
    for name, places in _USED_WITH.items():
        if getattr(args, name) and here not in places:
            hint = f"give it with {' or '.join(places)}, or leave it out"
            raise InputError(f"--{name} does nothing for {here}.", hint)


def _pair(text: str) -> tuple[str, str]:
    """Read ``loss=lm loss``."""
    from detlab.errors import InputError

    ours, equals, theirs = text.partition("=")
    if not (equals and ours.strip() and theirs.strip()):
        raise InputError(f"'{text}' pairs no metrics.", 'write --pair "loss=lm loss"')
    return ours.strip(), theirs.strip()

"""``detlab check tax DEFAULT DETERMINISTIC``: what determinism costs, and where."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("tax", help="what does determinism cost, and where?")
    kinds = "a run with step times, a PyTorch profiler trace, or a CSV file of nsys stats"
    parser.add_argument("default_source", metavar="DEFAULT", help=f"the default side: {kinds}")
    parser.add_argument("deterministic_source", metavar="DETERMINISTIC", help="the deterministic side")
    for side in ("default", "deterministic"):
        parser.add_argument(
            f"--{side}", action="append", default=[], metavar="PATH",
            help=f"another run or profile of the {side} side; again for more",
        )  # fmt: skip
    parser.add_argument(
        "--budget",
        type=_share,
        metavar="SHARE",
        help="the tax that is allowed: 0.10, or 10%%; an error above it",
    )
    parser.add_argument("--steps", metavar="STEPS", help="compare these steps only: 10-100")
    parser.add_argument(
        "--warm-up", type=int, metavar="N", help="leave out the first N steps; by default those that are slow"
    )
    parser.add_argument("--metric", metavar="NAME", help="the metric that holds the time of a step")
    _add_plan(parser)
    parser.add_argument(
        "--profile-steps", type=_two, metavar="N,M", help="steps in the profiles, where they are not marked"
    )
    parser.add_argument("--by-layer", action="store_true", help="keep layers apart in the tables")
    parser.add_argument("--rows", type=int, default=10, metavar="N", help="rows of each table to print")
    add_output_options(parser)
    parser.set_defaults(run=run)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, metavar="N", help="reckon GPU-days for a training on N GPUs")
    parser.add_argument("--days", type=float, metavar="D", help="that takes D days without determinism, or")
    parser.add_argument("--train-steps", type=int, metavar="N", help="that has N steps")


def _share(text: str) -> float:
    """Read ``0.10`` or ``10%``; ``10`` would be 1000 %, which nobody means."""
    number = text.strip().removesuffix("%")
    if number != text.strip():
        return float(number) / 100
    if float(number) > 1:
        raise argparse.ArgumentTypeError(f"{number} is {100 * float(number):g} %: write {number}%")
    return float(number)


def _two(text: str) -> tuple[int, int]:
    """Read ``10,5``; one number is that of both sides."""
    first, _, second = text.partition(",")
    return int(first), int(second or first)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks.tax import check_tax, table_lines
    from detlab.cli.outcome import finish

    result = check_tax(
        [args.default_source, *args.default],
        [args.deterministic_source, *args.deterministic],
        budget=args.budget,
        steps=args.steps,
        warm_up=args.warm_up,
        metric=args.metric,
        gpus=args.gpus,
        days=args.days,
        train_steps=args.train_steps,
        profile_steps=args.profile_steps,
        by_layer=args.by_layer,
    )
    code = finish(result, args)
    _print_table(table_lines(result.table, args.rows), args)
    return code


def _print_table(lines: Any, args: argparse.Namespace) -> None:
    """Print what a person wants to read below the verdict; JSON has it inside."""
    if args.json:
        return
    with suppress(BrokenPipeError):
        for line in lines:
            print(line)
        sys.stdout.flush()

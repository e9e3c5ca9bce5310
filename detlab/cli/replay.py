"""``detlab replay CAPTURE``: make a captured call many times and count its different results."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    from detlab.kernel import Progress


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("replay", help="make a captured call many times from the same bits")
    parser.add_argument("capture", metavar="CAPTURE", help="a folder captures/<id>, or a run that holds one")
    parser.add_argument("--trials", type=int, default=60, metavar="N", help="how many times (default 60)")
    parser.add_argument(
        "--condition",
        action="append",
        default=[],
        metavar="NAME[=N]",
        help='a condition and its number of trials, such as "1 thread" or "fresh process=20"; repeatable',
    )
    parser.add_argument(
        "--standard", action="store_true", help="all conditions that make sense on the device"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: as in training)")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="set torch.use_deterministic_algorithms (default: as in training)",
    )
    parser.add_argument("--device", metavar="D", help="where to run it (default: the device of the capture)")
    parser.add_argument(
        "--isolate",
        action="store_true",
        help="a process of its own for each condition: a crash or a hang is a row of the report",
    )
    parser.add_argument(
        "--time-limit", type=float, metavar="S", help="seconds for each condition; implies --isolate"
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="NAME",
        help="set a function beside the call: one of detlab.kernel.fixed, or your own as module:function, "
        "also from this folder; repeatable",
    )
    parser.add_argument(
        "--sizes",
        nargs="?",
        const="",
        metavar="SHARES",
        help="make the trials with the first rows only, at several sizes, such as 1/16,1/4,1 (the default: "
        "1/16 to 1)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, for load_replay")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay; exit with 0 when no result differed, 1 when some did, 2 when the trials prove nothing."""
    from detlab.captures import load_capture
    from detlab.cli import print_json
    from detlab.comparison.text import wrapped
    from detlab.kernel import replay
    from detlab.kernel.fixed.by_name import function_by_name

    if args.sizes is not None:
        return _run_sizes(args)
    if any(":" in name for name in args.against):
        sys.path.insert(0, str(Path.cwd()))  # where python -m looks, and a console script does not
    against = {name: function_by_name(name) for name in args.against}
    report = replay(
        load_capture(args.capture),
        trials=args.trials,
        conditions=_conditions(args),
        threads=args.threads,
        deterministic=args.deterministic or None,
        device=args.device,
        isolate=args.isolate,
        time_limit_s=args.time_limit,
        against=against,
        progress=_tell if sys.stderr.isatty() else None,
    )
    if args.json:
        print_json(report.to_json())
    else:
        print("\n".join(map(wrapped, repr(report).splitlines())))
    return report.exit_code


def _run_sizes(args: argparse.Namespace) -> int:
    """Replay with a part of the rows; exit as `run` does."""
    from detlab.captures import load_capture
    from detlab.cli import print_json
    from detlab.comparison.text import wrapped
    from detlab.errors import InputError
    from detlab.kernel import replay_sizes
    from detlab.kernel.sweep import SIZES

    others = {"--condition": args.condition, "--standard": args.standard, "--against": args.against}
    others |= {"--isolate": args.isolate, "--time-limit": args.time_limit is not None}
    if given := [name for name, value in others.items() if value]:
        raise InputError(
            f"--sizes goes without {' and '.join(given)}: it makes its trials under one condition, here.",
            "replay twice, once with each",
        )
    sweep = replay_sizes(
        load_capture(args.capture),
        sizes=_shares(args.sizes) if args.sizes else SIZES,
        trials=args.trials,
        threads=args.threads,
        deterministic=args.deterministic or None,
        device=args.device,
    )
    if args.json:
        print_json(sweep.to_json())
    else:
        print("\n".join(map(wrapped, repr(sweep).splitlines())))
    return sweep.exit_code


def _shares(text: str) -> list[Fraction]:
    """Read ``1/16,0.5,1``."""
    from fractions import Fraction

    from detlab.errors import InputError

    try:
        return [Fraction(part.strip()) for part in text.split(",")]
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"--sizes {text} are not shares of the rows.", "say --sizes 1/16,1/4,1") from error


def _tell(progress: Progress) -> None:
    """Show on a terminal which condition it has come to; a report of one condition has no name for it."""
    if progress.condition and not progress.trials:
        print(f"replaying under: {progress.condition}", file=sys.stderr, flush=True)


def _conditions(args: argparse.Namespace) -> dict[str, int | None] | None:
    """Read ``NAME[=N]``; a number at the end is the number of trials."""
    names = [*(["standard"] if args.standard else []), *args.condition]
    found: dict[str, int | None] = {}
    for name in names:
        counted = re.fullmatch(r"(.+)=(\d+)", name)
        found[counted[1] if counted else name] = int(counted[2]) if counted else None
    return found or None

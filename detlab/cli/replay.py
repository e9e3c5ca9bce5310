"""``detlab replay CAPTURE``: make a captured call many times and count its different results."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    parser.add_argument("--json", action="store_true", help="print the report as JSON, for load_replay")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay; exit with 0 when no result differed, 1 when some did, 2 when the trials prove nothing."""
    from detlab.captures import load_capture
    from detlab.cli import print_json
    from detlab.comparison.text import wrapped
    from detlab.kernel import replay

    report = replay(
        load_capture(args.capture),
        trials=args.trials,
        conditions=_conditions(args),
        threads=args.threads,
        deterministic=args.deterministic or None,
        device=args.device,
        isolate=args.isolate,
        time_limit_s=args.time_limit,
        progress=_tell if sys.stderr.isatty() else None,
    )
    if args.json:
        print_json(report.to_json())
    else:
        print("\n".join(map(wrapped, repr(report).splitlines())))
    return report.exit_code


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

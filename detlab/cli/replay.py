"""detlab replay: make a captured call many times and say what was seen."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "replay",
        help="make a captured call many times and count its different results",
        description="Make a captured call many times from the same bits. Exit code: 0 when no result differed, "
        "1 when some did, 2 when the replay proves nothing.",
    )
    parser.add_argument(
        "capture", type=Path, metavar="CAPTURE", help="a folder captures/<id>, or a run with one"
    )
    parser.add_argument("--trials", type=int, default=60, metavar="N", help="calls to make (default: 60)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: as in training)")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="with torch.use_deterministic_algorithms (default: as in training)",
    )
    parser.add_argument("--device", metavar="D", help="where to run (default: the capture's device)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, print the report and give the exit code."""
    from detlab.capture import load_capture
    from detlab.kernel.replay import replay

    report = replay(
        load_capture(args.capture),
        trials=args.trials,
        threads=args.threads,
        deterministic=args.deterministic or None,
        device=args.device,
    )
    text = json.dumps(report.to_json(), indent=1, ensure_ascii=False) if args.json else repr(report)
    sys.stdout.write(text + "\n")
    return report.exit_code

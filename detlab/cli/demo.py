"""``detlab demo``: the main job on the shipped runs: compare, replay the captured call, write the report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("demo", help="compare the shipped runs and replay the captured call")
    parser.add_argument("-o", "--output", default="detlab-report.html", help="where to write the report")
    parser.add_argument("--trials", type=int, default=60, help="how often to replay (default 60)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show the main job; exit with 0 when it shows what is true of the shipped runs."""
    from detlab import captures, comparison, kernel, samples, views

    pair = samples.sample_path("race")
    print(f"1. Compare two real runs of one recipe, {pair / 'a'} and {pair / 'b'}\n")
    cmp = comparison.compare(pair / "a", pair / "b")
    print(cmp)

    print(f"\n2. Replay the captured call here: the same bits in, {args.trials} times, with 4 threads\n")
    saved = captures.load_capture(cmp.a.captures[0])
    raced = kernel.replay(saved, trials=args.trials, threads=4)
    print(raced)
    print("\n   … and with one thread, where nothing can race\n")
    alone = kernel.replay(saved, trials=args.trials, threads=1)
    print(alone)

    written = views.report(cmp, Path(args.output))
    print(f"\n3. The report, one file that opens offline: {written.resolve()}")
    seen = cmp.verdict == "diverged" and raced.num_distinct > 1 and alone.num_distinct == 1
    print("\nThe demo saw what is true of these runs." if seen else "\nThe demo did NOT see what it should.")
    return 0 if seen else 1

"""``detlab report A B -o report.html``: the comparison as one HTML file that opens offline."""

from __future__ import annotations

import argparse
from typing import Any

from detlab.cli.compare import add_options, options_of, runs_of


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("report", help="compare two runs and write one HTML file")
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="where to write (default: report.html)"
    )
    parser.add_argument(
        "--redact", action="store_true", help="write 'host 1' and 'PATH/name' for hosts and absolute paths"
    )
    parser.add_argument("--json", action="store_true", help="print the path and the verdict as JSON")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report and print its path; exit with 0 when it is written, whatever it says."""
    from detlab.cli import print_json
    from detlab.comparison import compare
    from detlab.views.document import report

    cmp = compare(*runs_of(args), **options_of(args))
    written = report(cmp, args.output, redact=args.redact)
    if args.json:
        print_json({"schema": "detlab.report/1", "verdict": cmp.verdict, "path": str(written)})
    else:
        print(written)
    return 0

"""How a verdict leaves the command line: as text or JSON, in files for CI, as exit code."""

from __future__ import annotations

import argparse
from typing import Any, Protocol


class Outcome(Protocol):
    """What every verb that judges gives."""

    @property
    def exit_code(self) -> int:
        """0 for nothing found, 1 for something, 2 for what could not be decided."""

    def to_json(self) -> dict[str, Any]:
        """Give it as a document of its schema."""


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Declare how the verdict is given."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def finish(result: Outcome, args: argparse.Namespace) -> int:
    """Give the verdict as it was asked for; give its exit code."""
    from detlab.cli import print_json

    if args.json:
        print_json(result.to_json())
    else:
        print(result)
    return result.exit_code

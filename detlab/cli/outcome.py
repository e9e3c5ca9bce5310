"""How a verdict leaves the command line: as text or JSON, in files for CI, as exit code."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
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
    parser.add_argument("--junit", metavar="FILE", help="write the result as JUnit XML too")
    parser.add_argument(
        "--summary", metavar="FILE", help='add it as Markdown to a file, such as "$GITHUB_STEP_SUMMARY"'
    )


def finish(result: Outcome, args: argparse.Namespace) -> int:
    """Give the verdict as it was asked for; give its exit code."""
    from detlab.cli import print_json

    document = result.to_json() if args.json or _has_files(args) else {}
    write_files(document, result.exit_code, args)  # first: whoever reads what is printed may close the pipe
    with suppress(BrokenPipeError):  # a reader that saw enough, such as head, changes no verdict
        if args.json:
            print_json(document)
        else:
            print(result)
        sys.stdout.flush()
    return result.exit_code


def write_files(document: dict[str, Any], exit_code: int, args: argparse.Namespace) -> None:
    """Write the files for CI that were asked for, also of what could not be used.

    Raises
    ------
    InputError
        One of them cannot be written.
    """
    if not _has_files(args):
        return
    from detlab.cli.cases import cases_of
    from detlab.cli.junit import junit_xml
    from detlab.cli.markdown import markdown

    cases = cases_of(document, exit_code)
    verb = " ".join(["detlab", args.command, *([args.check] if args.command == "check" else [])])
    if args.junit:
        _write(args.junit, "w", junit_xml(verb, cases))
    if args.summary:
        said = str(document.get("verdict", document.get("conclusion", "")))
        _write(args.summary, "a", markdown(verb, said, cases))


def _has_files(args: argparse.Namespace) -> bool:
    return bool(getattr(args, "junit", None) or getattr(args, "summary", None))


def _write(path: str, mode: str, text: str) -> None:
    from detlab.errors import InputError

    try:
        with Path(path).open(mode, encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        finding = f"{path} cannot be written: {error.strerror or error}."
        raise InputError(finding, "give the path of a file in a writable folder") from error

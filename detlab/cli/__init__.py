"""The command line: one module a command, nothing imported before a command needs it."""

from __future__ import annotations

import argparse
import io
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

COMMANDS: Final = (
    "compare",
    "metrics",
    "triage",
    "replay",
    "check",
    "certify",
    "report",
    "record-info",
    "demo",
    "lab",
)
"""The commands, each a module here with ``add_parser(subparsers)`` that sets ``run(args) -> exit code``."""

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = _Parser(
        prog="detlab",
        description="Two training runs should be the same bits and are not: which call, on which ranks, why?",
        epilog="Exit codes: 0 nothing found, 1 something found, 2 input that cannot be used.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"detlab.cli.{name.replace('-', '_')}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code."""
    args = build_parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from detlab.errors import DetlabError
    from detlab.text import bounded, visible

    try:
        return int(args.run(args))
    except KeyboardInterrupt:  # files are whole or not there, and nobody who stops it needs a traceback
        print(f"detlab {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        return 0
    except (DetlabError, OSError) as error:
        _refuse(args, error)
        said = str(error) if isinstance(error, DetlabError) else bounded(visible(error))
        print(f"detlab {args.command}: {said}", file=sys.stderr)
        return 2
    except Exception:  # our own mistake: 1 would say that something was found
        print(_safe_lines(traceback.format_exc()), end="", file=sys.stderr)
        return 2


def _refuse(args: argparse.Namespace, error: Exception) -> None:
    """Say in the forms that were asked for that the input cannot be used."""
    from detlab.cli.outcome import write_files
    from detlab.errors import DetlabError

    document = _invalid(args, error)
    if getattr(args, "json", False):
        print_json(document)
    with suppress(DetlabError):  # the file that cannot be written may be what the error is about
        write_files(document, 2, args)


class _Parser(argparse.ArgumentParser):
    """A parser whose messages repeat what was typed without letting it steer the terminal."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(_safe_lines(message or ""), file)


def _safe_lines(text: str) -> str:
    from detlab.text import visible

    return "\n".join(map(visible, text.split("\n")))


def print_json(content: object) -> None:
    """Print one JSON document; what steers a terminal is written as the escapes that JSON has for it."""
    import json

    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    print("".join(map(_json_escape, text)) if not text.replace("\n", "").isprintable() else text)


def _json_escape(character: str) -> str:
    import json

    return character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]


_SCHEMAS: Final = {"compare": "comparison", "certify": "certificate"}
"""Commands whose document is not called as they are."""


def _invalid(args: argparse.Namespace, error: Exception) -> dict[str, object]:
    """Give what ``--json`` prints for input that cannot be used."""
    command = args.command
    verdict = "class" if command == "replay" else "verdict"
    which = {"check": args.check} if command == "check" else {}
    problems = [{"where": command, "what": str(error)}]
    schema = f"detlab.{_SCHEMAS.get(command, command)}/1"
    return {"schema": schema, **which, verdict: "invalid", "problems": problems}

"""``detlab check resume A B``: did the resumed run resume."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_PAIRS: Final = {
    "later": "checkpoints of both, some steps after the resume",
    "trace": "traces of both",
    "metrics": "logs or event files of both",
    "samples": "sample ids of both: JSON or text, a batch a line",
}
"""What can be given of both beside A and B, each with its help."""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser("resume", help="did the resumed run really resume?")
    kinds = "a checkpoint, a trace or a log"
    parser.add_argument("a", metavar="A", nargs="?", help=f"the reference, or what it saved: {kinds}")
    parser.add_argument("b", metavar="B", nargs="?", help="the resumed run, or what it held after loading")
    for name, what in _PAIRS.items():
        parser.add_argument(f"--{name}", nargs=2, metavar=("A", "B"), help=what)
    parser.add_argument(
        "--at",
        choices=("load", "later"),
        help="when the checkpoints A and B are of: right after loading, or later",
    )
    parser.add_argument(
        "--offset", type=int, metavar="N", help="added to the steps of B, where it counts from another number"
    )
    parser.add_argument(
        "--only", action="append", metavar="COMPONENT", help="judge this alone; again for more"
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="B=A",
        help="a leaf that B calls B and A calls A; again for more",
    )
    parser.add_argument("--no-controls", action="store_true", help="leave the negative controls out")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_resume
    from detlab.cli.outcome import finish

    reference, resumed = _sides(args)
    result = check_resume(
        reference,
        resumed,
        controls=not args.no_controls,
        names=dict(map(_pair, args.name)) or None,
        offset=args.offset,
        at=args.at,
        only=args.only,
    )
    return finish(result, args)


def _sides(args: argparse.Namespace) -> tuple[Any, Any]:
    """Give each side as it was given: one path, or several by their kind."""
    from detlab.checks.resume.sides import as_side
    from detlab.errors import InputError

    pairs = {name: getattr(args, name) for name in _PAIRS if getattr(args, name)}
    if (args.a is None) != (args.b is None) or (args.a is None and not pairs):
        raise InputError("two sides are needed.", "detlab check resume A B")
    sides = []
    for number, (place, role) in enumerate(((args.a, "reference"), (args.b, "resumed run"))):
        given = {name: pair[number] for name, pair in pairs.items()}
        if place is not None and given:
            main = as_side(place, role)
            given = {kind: getattr(main, kind) for kind in main.kinds} | given
        sides.append(given or place)
    return sides[0], sides[1]


def _pair(text: str) -> tuple[str, str]:
    from detlab.errors import InputError

    theirs, equals, ours = text.partition("=")
    if not (equals and theirs and ours):
        raise InputError(f"'{text}' pairs no names.", "write --name theirs=ours")
    return theirs, ours

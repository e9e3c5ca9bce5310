"""``detlab check recipe A [B]``: was the run set up to be deterministic; were two runs set up alike."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from detlab.cli.outcome import add_output_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Declare the check."""
    parser = subparsers.add_parser(
        "recipe", help="was the run set up to be deterministic; with two, were they set up alike?"
    )
    parser.add_argument(
        "a",
        metavar="A",
        help="a recorded run, a configuration (YAML, JSON, TOML), a launch script or an environment",
    )
    parser.add_argument(
        "b", metavar="B", nargs="?", help="another one: list what is not equal, and whether that matters"
    )
    parser.add_argument(
        "--framework", metavar="NAME", help="megatron-lm, megatron-bridge, nemo, torchtitan or torch"
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; exit with 0 for a pass, 1 for a failure, 2 where it cannot be decided."""
    from detlab.checks import check_recipe, compare_recipes
    from detlab.cli.outcome import finish
    from detlab.errors import InputError

    if args.b is not None:
        if args.framework is not None:
            raise InputError("--framework is for the rules of one recipe.", "leave it out, or give A alone")
        return finish(compare_recipes(args.a, args.b), args)
    return finish(check_recipe(args.a, framework=args.framework), args)

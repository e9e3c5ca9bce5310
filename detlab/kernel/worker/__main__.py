"""``python -m detlab.kernel.worker REQUEST.json FOLDER``: make the trials of one condition, JSON in and out.

It writes ``trials.jsonl`` into the folder, one line of digests a trial, so that a crash or a hang loses none
of them, before the first what is known by then, and at the end ``result.json``. It makes no more trials when
whoever started it is gone. It exits with 2, and the reason as the last line of stderr, when the request is
refused. No file names what is imported: a Python callable is named on the command line, by whoever starts the
worker.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from detlab.captures import load_capture
from detlab.errors import DetlabError, InputError
from detlab.kernel.isolated import run_isolated
from detlab.kernel.ops import find_op
from detlab.kernel.trials.in_process import make_trials
from detlab.kernel.worker.firsts import save_firsts
from detlab.kernel.worker.protocol import BEGUN, Made, Request, Result, request_from_json


def run_request(
    text: str, isolate: bool = True, time_limit_s: float | None = None, function: str | None = None
) -> str:
    """Meet a request, for an executor on another machine: JSON in, JSON out.

    Parameters
    ----------
    text
        A request as `detlab.kernel.worker.protocol.Request.to_json` gives it.
    isolate
        Whether the trials are made in a process of their own there.
    time_limit_s, function
        See `detlab.kernel.isolated.run_isolated`.

    Returns
    -------
    What was made, as `detlab.kernel.worker.protocol.Made.to_json` gives it.
    """
    request = request_from_json(json.loads(text))
    try:
        if isolate or request.condition.needs_process:
            made = run_isolated(request, time_limit_s=time_limit_s, function=function)
        else:
            made = _make(request, function)
    except DetlabError as error:
        made = Made(request.condition.name, status="refused", note=str(error).partition("\n")[0])
    return json.dumps(made.to_json())


def import_callable(name: str) -> Callable[..., Any]:
    """Import ``module:name``, on the user's word.

    Raises
    ------
    InputError
        There is none.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name} cannot be imported: {error}", "define it in a module of its own") from error
    if not callable(found):
        raise InputError(f"{name} is no function.", "name a function as module:name")
    return found  # type: ignore[no-any-return]


def main(argv: Sequence[str] | None = None) -> int:
    """Meet the request of a file; give the exit code."""
    parser = argparse.ArgumentParser(prog="detlab.kernel.worker")
    parser.add_argument("request", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--call", help="module:name of a Python callable")
    args = parser.parse_args(argv)
    try:
        with (args.folder / "trials.jsonl").open("x", encoding="utf-8") as file:
            request = request_from_json(json.loads(args.request.read_text("utf-8")))
            made = _make(request, args.call, _teller(file), lambda made: _write_begun(args.folder, made))
        save_firsts(args.folder, made.firsts)
        (args.folder / "result.json").write_text(json.dumps(made.to_json()), "utf-8")
    except (DetlabError, OSError, ValueError, RecursionError) as error:
        print(str(error).partition("\n")[0], file=sys.stderr)
        return 2
    return 0


def _make(
    request: Request,
    function: str | None,
    on_result: Callable[[Result], object] | None = None,
    on_begin: Callable[[Made], object] | None = None,
) -> Made:
    capture = load_capture(request.capture)
    func = import_callable(function) if function else find_op(capture, request.allow)
    return make_trials(
        capture,
        func,
        request.condition,
        request.trials,
        on_result,
        keeps_first=on_result is not None,
        on_begin=on_begin,
    )


def _teller(file: TextIO) -> Callable[[Result], None]:
    """Give a function that writes a result, and ends the process when nobody is left to read it."""
    parent = os.getppid()

    def write(result: Result) -> None:
        file.write(json.dumps([f"{digest:016x}" for digest in result]) + "\n")
        file.flush()
        if os.getppid() != parent:
            raise KeyboardInterrupt

    return write


def _write_begun(folder: Path, made: Made) -> None:
    """Write what is known before the first trial, whole or not at all."""
    partial = folder / f"{BEGUN}.partial"
    partial.write_text(json.dumps(made.to_json()), "utf-8")
    partial.rename(folder / BEGUN)


if __name__ == "__main__":
    sys.exit(main())

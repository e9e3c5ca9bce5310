"""``detlab lab [RUN_A [RUN_B]]``: JupyterLab on a notebook that is ready for these runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_TAG: Final = "parameters"
"""The tag of the one cell that is filled in."""

_SAMPLE: Final = Path(__file__).parents[2] / "notebooks" / "01_first_divergence.ipynb"
"""What is opened without runs; only a checkout has it."""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("lab", help="open JupyterLab on a notebook that is ready for two runs")
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="two runs to compare, or one to look at; none: the sample's"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the notebook")
    parser.add_argument("--no-browser", action="store_true", help="start the server and open no browser")
    parser.add_argument(
        "--jupyter",
        action="append",
        default=[],
        metavar="OPTION",
        help="passed on to JupyterLab, such as --jupyter=--port=9000; again for more",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the notebook, say where, and run JupyterLab until it ends; 0 when it ended well."""
    _refuse_without_jupyter()
    written = prepare(args.runs, args.output)
    if written:
        from detlab.text import visible

        print(f"notebook: {visible(written.resolve())}", flush=True)
    options = [*(["--no-browser"] if args.no_browser else []), *args.jupyter]
    return 2 if _serve([*(_opened(written) if written else []), *options]) else 0


def _opened(notebook: Path) -> list[str]:
    """Let JupyterLab open a notebook, and name it in the address that it prints for another browser."""
    from urllib.parse import quote

    place = notebook.resolve()
    return [f"--ServerApp.root_dir={place.parent}", f"--LabApp.default_url=/lab/tree/{quote(place.name)}"]


def _refuse_without_jupyter() -> None:
    from detlab.errors import InputError

    if find_spec("jupyterlab") is None:
        raise InputError("JupyterLab is not installed here.", "pip install 'detlab[lab]'")


def prepare(runs: Sequence[str], output: str | None) -> Path | None:
    """Write the notebook for these runs under a name that is free; None when there is none to write.

    Raises
    ------
    InputError
        There are more than two runs, or one is not there.
    """
    from detlab.errors import InputError

    if len(runs) > 2:
        raise InputError(f"{len(runs)} runs were given.", "give two; detlab metrics compares more")
    for each in runs:
        if not Path(each).exists():
            raise InputError(
                f"{each} does not exist.", "give the folder that the recorder wrote into, or a log"
            )
    if not runs and not _SAMPLE.exists():
        return None
    if not runs:
        template, usual = json.loads(_SAMPLE.read_text("utf-8")), _SAMPLE.name
    else:
        usual = f"{'two_runs' if len(runs) == 2 else 'one_run'}.ipynb"
        from importlib.resources import files

        template = json.loads(files("detlab").joinpath("templates", usual).read_text("utf-8"))
    target = _free(Path(output or usual))
    if runs:
        _fill_in(template, _values(runs, target))
    try:
        return _write_new(target, template)
    except OSError as error:
        why = error.strerror or error
        raise InputError(
            f"{target} cannot be written: {why}.", "give -o a file in a writable folder"
        ) from error


def _values(runs: Sequence[str], target: Path) -> dict[str, str]:
    """Give the value of each parameter of the template."""
    places = [str(Path(each).resolve()) for each in runs]
    if len(places) == 1:
        return {"run": places[0]}
    return {"run_a": places[0], "run_b": places[1], "report": target.with_suffix(".html").name}


def _fill_in(notebook: Mapping[str, Any], values: Mapping[str, str]) -> None:
    """Put values, as Python literals, into the cell that is there for them."""
    cell = next(each for each in notebook["cells"] if _TAG in each["metadata"].get("tags", ()))
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    cell["source"] = [*(f"{line}\n" for line in lines[:-1]), lines[-1]]


def _free(wanted: Path) -> Path:
    """Give the first of ``name``, ``name-2``, … that neither a notebook nor its report has."""
    names = (wanted if n == 1 else wanted.with_name(f"{wanted.stem}-{n}{wanted.suffix}") for n in count(1))
    return next(each for each in names if not each.exists() and not each.with_suffix(".html").exists())


def _write_new(target: Path, notebook: Mapping[str, Any]) -> Path:
    """Write a notebook that was not there, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = target.open("x", encoding="utf-8")
    except FileExistsError:  # another one took the name just now
        return _write_new(_free(target), notebook)
    try:
        with file:
            file.write(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _serve(arguments: Sequence[str]) -> int:
    """Run JupyterLab to its end; Ctrl-C is for it, which asks whether it is meant, and is a good end."""
    import subprocess

    command = [sys.executable, "-m", "jupyterlab", *arguments]
    was_interrupted = False
    with subprocess.Popen(command) as process:  # noqa: S603 - no shell, and the options are the user's own
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                was_interrupted = True
        return 0 if was_interrupted else process.returncode

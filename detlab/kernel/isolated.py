"""A condition in a process of its own: a crash, a hang or an error is a row of the report, never the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Final

from detlab.errors import InputError
from detlab.kernel.worker.firsts import load_firsts
from detlab.kernel.worker.protocol import BEGUN, Made, Request, Result, made_from_json

DEFAULT_LIMIT_S: Final = 600.0
"""How long the processes of one condition may take together when the user does not say."""

_POLL_S: Final = 0.02
_PACKAGE_FOLDER: Final = str(Path(__file__).parents[2])


def run_isolated(
    request: Request,
    *,
    time_limit_s: float | None = None,
    function: str | None = None,
    on_result: Callable[[Result], object] | None = None,
    cancel: Event | None = None,
) -> Made:
    """Make the trials of a condition in new processes, one after the other.

    Parameters
    ----------
    time_limit_s
        Seconds for all processes of the condition together, with their start; None: `DEFAULT_LIMIT_S`.
    function
        ``module:name`` of the Python callable to be called, by the user's word; None for an op.
    on_result
        Called with the result of every trial that was made.
    cancel
        Once it is set, the process is ended at once; the trials before count.

    Returns
    -------
    All that was made. ``status`` is ``crashed`` with the last line of stderr or the signal, or ``timed out``;
    the trials before count.
    """
    deadline = time.monotonic() + (DEFAULT_LIMIT_S if time_limit_s is None else time_limit_s)
    each = request.condition.trials_per_process or request.trials
    found: Made | None = None
    left = request.trials
    while left > 0 and (found is None or found.status == "done"):
        part = replace(request, trials=min(each, left))
        made = _one_process(part, function, _Watch(deadline, on_result, cancel))
        found = made if found is None else _joined(found, made)
        left -= max(len(made.results), 1)
        if any(problem.startswith("stopped by the user") for problem in made.problems):
            break
    assert found is not None
    found.is_isolated = True
    if found.status == "done":
        each_has = f", {each} trials each" if len(found.groups) > 1 else ""
        found.note = f"in {len(found.groups)} new process{'es' if len(found.groups) > 1 else ''}{each_has}"
    return found


@dataclass(frozen=True, slots=True)
class _Watch:
    """Until when a process may run, whom its results are told, and who may want it ended."""

    deadline: float
    on_result: Callable[[Result], object] | None
    cancel: Event | None

    def pause(self) -> None:
        """Wait a little, or until the user wants no more."""
        if self.cancel is None:
            time.sleep(_POLL_S)
        elif self.cancel.wait(_POLL_S):
            raise KeyboardInterrupt  # it is the same wish


def _one_process(request: Request, function: str | None, watch: _Watch) -> Made:
    with tempfile.TemporaryDirectory(prefix="detlab-") as name:
        folder = Path(name)
        asked, errors = folder / "request.json", folder / "stderr"
        asked.write_text(json.dumps(request.to_json()), "utf-8")
        command = [sys.executable, "-m", "detlab.kernel.worker", str(asked), str(folder)]
        command += ["--call", function] if function else []
        with errors.open("wb") as stderr:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, a module of our own
                command,
                env=_environment(request),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # so that it can be ended with all its children
            )
            stopped = _wait(process, watch, folder / "trials.jsonl")
        return _outcome(folder, request, process.returncode, stopped, errors)


def _wait(process: subprocess.Popen[bytes], watch: _Watch, trials: Path) -> str:
    """Wait for the end; give why it was ended before it: ``user``, ``limit``, or nothing."""
    count = _Counter(trials, watch.on_result)
    try:
        while process.poll() is None:
            if time.monotonic() > watch.deadline:
                return "limit"
            watch.pause()
            count()
        count()
        return ""
    except KeyboardInterrupt:
        return "user"
    finally:
        _end(process)


class _Counter:
    """Tells of every result that another process has added to a file since it looked last."""

    def __init__(self, path: Path, on_result: Callable[[Result], object] | None) -> None:
        self._path, self._on_result, self._at, self._part = path, on_result, 0, b""

    def __call__(self) -> None:
        if self._on_result is None or not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *lines, self._part = (self._part + new).split(b"\n")
        for line in lines:
            self._on_result(_result(line.decode("utf-8", "replace")))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started; one that has ended already is left alone."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(folder: Path, request: Request, code: int, stopped: str, errors: Path) -> Made:
    """Read what a process left: its result, or the trials that it made before it ended."""
    result = folder / "result.json"
    if not stopped and code == 0 and result.is_file():
        found = made_from_json(json.loads(result.read_text("utf-8")))
        found.firsts = load_firsts(folder)
        return found
    made = _begun(folder) or Made(name=request.condition.name)
    if results := [_result(line) for line in _lines(folder / "trials.jsonl")]:
        made.groups = [results]
    if stopped == "user":
        made.problems = [f"stopped by the user after {len(made.results)} of {request.trials} trials"]
    elif stopped:
        made.status, made.note = "timed out", f"ended at its time limit after {len(made.results)} trials"
    else:
        made.status = "refused" if code == 2 and not made.results else "crashed"
        made.note = _why(code, errors)
    return made


def _begun(folder: Path) -> Made | None:
    """Read what the process knew before its first trial; None when it did not get there."""
    file = folder / BEGUN
    return made_from_json(json.loads(file.read_text("utf-8"))) if file.is_file() else None


def _why(code: int, errors: Path) -> str:
    lines = [line.strip() for line in errors.read_text("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1][:300] if lines else ""
    if code >= 0:
        return last or f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"ended by {name}" + (f": {last}" if last else "")


def _joined(a: Made, b: Made) -> Made:
    """Put the trials of two processes of one condition together."""
    telling = max(a, b, key=lambda made: (max((o.distinct for o in made.outputs), default=0), made is a))
    counted = [made for made in (a, b) if made.outputs]
    return replace(
        telling,
        groups=a.groups + b.groups,
        problems=list(dict.fromkeys(a.problems + b.problems)),
        is_moved=a.is_moved or b.is_moved,
        hides=a.hides,
        least_nan=min((made.least_nan for made in counted), default=0),
        most_nan=max((made.most_nan for made in counted), default=0),
        status=b.status,
        note=b.note,
    )


def _lines(path: Path) -> list[str]:
    """Give the whole lines of a file that another process may be writing."""
    try:
        return path.read_text("utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []


def _result(line: str) -> Result:
    try:
        return tuple(int(text, 16) for text in json.loads(line))
    except (ValueError, TypeError) as error:
        raise InputError(f"a worker wrote {line[:60]!r} for a result.", "") from error


def _environment(request: Request) -> dict[str, str]:
    """Give this process's environment with what the condition sets, and this detlab where it is."""
    paths = [_PACKAGE_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | dict(request.condition.env) | {"PYTHONPATH": os.pathsep.join(paths)}

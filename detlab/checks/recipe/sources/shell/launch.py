"""Which program a command of a script starts, with what arguments, and in what environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from detlab.checks.recipe.sources.shell.expand import Field

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON: Final = re.compile(r"python[0-9.]*|ipython|pypy[0-9.]*")
_LAUNCHERS: Final = frozenset({"torchrun", "ft_launcher", "deepspeed", "accelerate", "torchx", "composer"})
_LAUNCHER_MODULES: Final = re.compile(
    r"torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.\w+"
    r"|nvidia_resiliency_ext\.fault_tolerance\.launcher"
)
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "nvidia-docker"})
_MPI: Final = frozenset({"mpirun", "mpiexec", "orterun", "prterun"})
_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
_OTHER_WRAPPERS: Final = frozenset(
    "srun nohup exec time numactl taskset nsys ncu timeout stdbuf nice ionice setsid sudo command "
    "singularity apptainer enroot xargs strace gdb compute-sanitizer rocprof dlprof flux jsrun aprun".split()
)


@dataclass
class Launch:
    """One program that a script starts.

    Attributes
    ----------
    line
        The line of the command.
    script
        The Python file or module.
    arguments
        The words after it.
    launcher
        The words between the program and the script, which are the launcher's own.
    variables
        What wrappers set for this program alone, in order; None where they unset a variable.
    only
        Names that are handed on, where a wrapper hands on no others; None for all.
    starts
        What the environment starts from, if it is not that of the script: ``clean`` or ``container``.
    is_srun, exports
        Whether Slurm's ``srun`` starts it, and whether that is told what to hand on.
    is_distributed
        Whether a launcher of many processes starts it.
    notes
        What must be known of it: sentences about what could not be read.
    shell
        The script that a shell is given as text, in place of a program.
    """

    line: int
    script: str = ""
    arguments: list[Field] = field(default_factory=list)
    launcher: list[Field] = field(default_factory=list)
    variables: list[tuple[str, Field | None]] = field(default_factory=list)
    only: set[str] | None = None
    starts: str = ""
    is_srun: bool = False
    exports: bool = False
    is_distributed: bool = False
    notes: list[str] = field(default_factory=list)
    shell: Field | None = None


def launch_of(words: Sequence[Field], line: int) -> Launch | None:
    """Read a command as the start of a Python program, or of a shell that is given its script as text.

    Parameters
    ----------
    words
        The words of the command, without assignments before it.
    line
        Its line.

    Returns
    -------
    None for a command that starts neither.
    """
    launch = Launch(line)
    at = 0
    while at < len(words):
        name = PurePosixPath(words[at].text).name
        if _PYTHON.fullmatch(name):
            return _python(words, at + 1, launch)
        if name in _LAUNCHERS:
            launch.is_distributed = True
            return _script(words, at + 1, launch)
        if name in _SHELLS:
            return _shell(words, at + 1, launch)
        if name == "env":
            at = _env(words, at + 1, launch)
        elif name in _CONTAINERS or name in _MPI or name in _OTHER_WRAPPERS:
            at = _wrapper(name, words, at + 1, launch)
        elif at == 0 and not name.endswith(".py"):
            return None
        elif name.endswith(".py"):
            return _found(words, at, launch)
        else:
            at += 1
    return None


def _is_program(word: Field) -> bool:
    name = PurePosixPath(word.text).name
    known = _LAUNCHERS | _SHELLS | _CONTAINERS | _MPI | _OTHER_WRAPPERS | {"env"}
    return name in known or bool(_PYTHON.fullmatch(name)) or name.endswith(".py")


def _env(words: Sequence[Field], at: int, launch: Launch) -> int:
    """Read the options and assignments of ``env``."""
    while at < len(words):
        text = words[at].text
        assigned = _ASSIGNMENT.fullmatch(text)
        if text in ("-i", "-", "--ignore-environment"):
            launch.starts, launch.only = "clean", set()
            launch.variables.clear()
        elif text in ("-u", "--unset") and at + 1 < len(words):
            at += 1
            launch.variables.append((words[at].text, None))
        elif text.startswith(("-u", "--unset=")):
            launch.variables.append((text.removeprefix("--unset=").removeprefix("-u"), None))
        elif assigned:
            launch.variables.append((assigned[1], words[at]._replace(text=assigned[2])))
        elif not text.startswith("-"):
            break
        at += 1
    return at


def _wrapper(name: str, words: Sequence[Field], at: int, launch: Launch) -> int:
    """Step over the options of a wrapper up to the program, and read those about the environment."""
    if name in _CONTAINERS:
        launch.starts, launch.only = "container", set()
    launch.is_srun = launch.is_srun or name == "srun"
    while at < len(words) and not _is_program(words[at]):
        option, equals, value = words[at].text.partition("=")
        step = _option(name, option, words[at]._replace(text=value) if equals else None, words, at, launch)
        at += step
    return at


def _option(
    name: str, option: str, value: Field | None, words: Sequence[Field], at: int, launch: Launch
) -> int:
    """Read one option of a wrapper; give the number of words that it takes."""
    following = words[at + 1] if at + 1 < len(words) else None
    given = following if value is None else value
    width = 2 if value is None else 1
    if given is None:
        return 1
    if name == "srun" and option == "--export":
        _exported(given, launch)
    elif name in _CONTAINERS and option in ("-e", "--env"):
        _set(words[at + 1] if option == "-e" and value is None and following else given, launch)
    elif name in _CONTAINERS and option == "--env-file":
        launch.notes.append(f"the variables in {given.text} are not read; give that file too")
    elif name in ("singularity", "apptainer") and option == "--env":
        for each in given.text.split(","):
            _set(given._replace(text=each), launch)
    elif name in ("singularity", "apptainer") and option in ("-e", "--cleanenv"):
        launch.starts, launch.only = "container", set()
        width = 1
    elif name in _MPI and option == "-x":
        _set(given, launch)
    elif name in _MPI and option == "-genv" and at + 2 < len(words):
        launch.variables.append((given.text, words[at + 2]))
        width = 3
    else:
        width = 1
    return width


def _set(word: Field, launch: Launch) -> None:
    """Read ``NAME=value``, or ``NAME`` for one that is handed on."""
    assigned = _ASSIGNMENT.fullmatch(word.text)
    if assigned:
        launch.variables.append((assigned[1], word._replace(text=assigned[2])))
    elif launch.only is not None and re.fullmatch(r"[A-Za-z_]\w*", word.text):
        launch.only.add(word.text)


def _exported(given: Field, launch: Launch) -> None:
    """Read what ``srun --export`` hands on: ALL, NONE, names, and assignments; without ALL nothing else."""
    launch.exports = True
    items = [item for item in given.text.split(",") if item]
    if "ALL" not in items:
        launch.only, launch.starts = set(), "clean"
    for item in items:
        if item not in ("ALL", "NONE", "NIL"):
            _set(given._replace(text=item), launch)


def _python(words: Sequence[Field], at: int, launch: Launch) -> Launch | None:
    """Read the options of Python up to the file or module."""
    while at < len(words):
        text = words[at].text
        if text == "-c":
            return None
        if text == "-m" and at + 1 < len(words):
            module = words[at + 1].text
            if not _LAUNCHER_MODULES.fullmatch(module):
                return _found(words, at + 1, launch)
            launch.is_distributed = True
            return _script(words, at + 2, launch)
        if text in ("-X", "-W"):
            at += 1
        elif not text.startswith("-"):
            return _found(words, at, launch)
        at += 1
    return None


def _script(words: Sequence[Field], at: int, launch: Launch) -> Launch | None:
    """Find the file or module behind the options of a launcher, some of which take a word."""
    for index in range(at, len(words)):
        text, before = words[index].text, words[index - 1].text
        is_module = before in ("-m", "--module") and index > at
        is_value = before.startswith("-") and "=" not in before and index > at
        if is_module or text.endswith(".py") or (words[index].unknown and not is_value and text[0] != "-"):
            launch.launcher = list(words[at:index])
            return _found(words, index, launch)
    return None


def _found(words: Sequence[Field], at: int, launch: Launch) -> Launch:
    launch.script = words[at].text
    launch.arguments = list(words[at + 1 :])
    return launch


def _shell(words: Sequence[Field], at: int, launch: Launch) -> Launch | None:
    """Read a shell: its ``-c`` text, or the file that it reads."""
    for index in range(at, len(words)):
        text = words[index].text
        if re.fullmatch(r"-[a-z]*c", text) and index + 1 < len(words):
            launch.shell = words[index + 1]
            return launch
        if not text.startswith("-"):
            launch.notes.append(f"the script {text} is not read; give that one too")
            return launch
    return None

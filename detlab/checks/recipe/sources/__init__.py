"""Sources of settings: a run, a mapping or a file of any known format becomes `Settings`.

What each source says all there is of, so that what it lacks is *unset*, and of what it says a part:

=============================  ========================  =====================================================
source                         says all                  says what it sets itself
=============================  ========================  =====================================================
recorded run                   env (of the variables
                               that recorders keep),
                               torch; args where they
                               are Megatron's own dump
functional test of Megatron    env, args
configuration with the class   args                      env
of every section (Bridge)
torchtitan's TOML              args                      env
other configurations           -                         env, args
launch script                  args, where nothing is    env; it says all where the program starts clean
                               handed on unseen          (``env -i``, ``srun --export=NONE``)
environment with a PATH        env
other variables (env file)     -                         env
log of Megatron-LM             args
this process (`live_settings`) env, torch, version
=============================  ========================  =====================================================

A mapping may use the names of settings: ``{"env.NCCL_ALGO": "Ring"}`` says no more than it says; sections
``env``, ``args`` and ``torch`` are whole. Beside them stand ``version``, ``module``, ``place`` and ``time``
(seconds since the process began: ``{"time": {"cuda_initialized": 3.2, "model_built": 5.0, "env":
{"CUBLAS_WORKSPACE_CONFIG": 7.5}, "torch": {"deterministic": 6.1}}}``), and ``framework``, ``label`` and
``kinds``, which are no settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.sources import (
    environment,
    json_file,
    megatron_log,
    overrides,
    script,
    toml_file,
    yaml_file,
)
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import MAX_BYTES, read_bytes
from detlab.checks.recipe.sources.run import run_settings
from detlab.checks.recipe.sources.tree import tree_settings
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run

__all__ = ["FORMATS", "Source", "read_settings"]

Source = Run | Settings | Mapping[str, Any] | str | PathLike[str]


class Format(NamedTuple):
    """A format of files: what they are called, whether one looks like it, and how it is read."""

    words: str
    suffixes: tuple[str, ...]
    recognise: Callable[[Path, bytes], bool]
    read: Callable[[Path, bytes], Settings]


FORMATS: Final[dict[str, Format]] = {
    "log": Format("a log with Megatron-LM's arguments", (), megatron_log.recognise, megatron_log.read),
    "json": Format("JSON", (".json",), json_file.recognise, json_file.read),
    "yaml": Format("YAML", (".yaml", ".yml"), yaml_file.recognise, yaml_file.read),
    "overrides": Format("overrides such as model.seed=1", (), overrides.recognise, overrides.read),
    "env": Format("a dump of an environment", (), environment.recognise, environment.read),
    "toml": Format("TOML", (".toml",), toml_file.recognise, toml_file.read),
    "script": Format("a launch script", script.SUFFIXES, script.recognise, script.read),
}
"""Every known format of files by its name, in the order in which they are tried."""


_LOG: Final = "log"
_HEAD_BYTES: Final = 1 << 16
_PROGRAMS: Final = (".py", ".ipynb", ".pt", ".pth", ".pkl", ".so")


def read_settings(source: Source, *, format: str | None = None) -> Settings:
    """Read how a run was set up.

    Parameters
    ----------
    source
        A run or the folder of one; a mapping; or a file: a configuration, a launch script, a dump of an
        environment. Nothing of it is ever executed or imported.
    format
        One of `FORMATS`, where the name and content of the file do not tell.

    Returns
    -------
    All settings, each with its place. Values that look like secrets are not kept.

    Raises
    ------
    InputError
        There is nothing there, or nothing that any reader knows.
    """
    if isinstance(source, Settings):
        return source
    if isinstance(source, Run):
        return run_settings(source)
    if isinstance(source, Mapping):
        return tree_settings(source, Found("mapping"), "mapping")
    path = Path(source)
    if not path.exists():
        raise InputError(f"{path} does not exist.", "give a run, a configuration, a script or an environment")
    if path.is_dir():
        return run_settings(as_run(path))
    return _read_file(path, format)


def _read_file(path: Path, format: str | None) -> Settings:
    if format is not None and format not in FORMATS:
        raise InputError(f"No format is called {format!r}.", f"give one of {', '.join(FORMATS)}")
    content, is_whole = read_bytes(path)
    if not content.strip():
        raise InputError(f"{path} is empty.", "give a configuration, a script or an environment")
    name = format or _recognised(path, content)
    if not is_whole and name != _LOG:
        raise InputError(
            f"{path} is larger than {MAX_BYTES >> 20} MiB: no configuration, script or environment is.",
            "give the configuration of the run, not its data or its checkpoint",
        )
    return FORMATS[name].read(path, content)


def _recognised(path: Path, content: bytes) -> str:
    """Name the format that a file is called, or the first it looks like; all but a log show it at once."""
    suffix = path.suffix.lower()
    if suffix in _PROGRAMS:
        raise InputError(
            f"{path} is a program, and nothing of a recipe is ever run.",
            "give the configuration that it writes out, or call dl.check_recipe() inside of it",
        )
    called = next((name for name, format in FORMATS.items() if suffix in format.suffixes), "")
    if called:
        return called
    head = content[:_HEAD_BYTES]
    if len(head) < len(content):
        head = head[: head.rfind(b"\n") + 1] or head
    for name, format in FORMATS.items():
        if format.recognise(path, content if name == _LOG else head):
            return name
    known = "; ".join(each.words for each in FORMATS.values())
    raise InputError(
        f"{path} is nothing that detlab knows as a recipe: {known}.",
        "give it the ending of what it is: .json, .yaml, .toml, .sh, or .env for a dump of an environment",
    )

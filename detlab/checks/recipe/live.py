"""Settings of this process: environment, flags, versions, what modules really have, and what was set when.

Call `live_settings`, or ``dl.check_recipe()``, early and again once the model is built: what changed between
two looks is dated by them. One late look cannot tell whether a variable that the program set itself came
before CUDA was initialised; then no time is given for it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from detlab.captures import process
from detlab.captures.state import torch_state
from detlab.checks.recipe.settings import Settings, Value
from detlab.checks.recipe.sources import names
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.run import package
from detlab.checks.recipe.sources.tree import walk
from detlab.errors import InputError

LABEL: Final = "this process"

_FRAMEWORKS: Final = {
    "megatron.bridge": "megatron-bridge",
    "nemo": "nemo",
    "torchtitan": "torchtitan",
    "megatron.core": "megatron-lm",
    "torch": "torch",
}
"""Packages of which the first one that is imported is the framework."""


class Look(NamedTuple):
    """What was seen at one time.

    Attributes
    ----------
    seconds
        Since the process began.
    environment
        The variables that recipes keep.
    is_initialized
        Whether CUDA was.
    """

    seconds: float
    environment: Mapping[str, str]
    is_initialized: bool


_looks: list[Look] = []
"""Looks of this process, the first of them its start; a forked child goes on with those of its parent."""


def live_settings(model: Any = None, optimizer: Any = None) -> Settings:
    """Read how this process is set up.

    Parameters
    ----------
    model
        The model or its pipeline chunks: its configuration and the flags that its modules hold.
    optimizer
        The optimizer, for its configuration.

    Returns
    -------
    Settings of which environment, flags of torch and versions are whole; arguments are where the model has
    them, and whole where Megatron-LM's own arguments are in this process.

    Raises
    ------
    InputError
        ``model`` is no module and no list of modules.
    """
    chunks = _chunks(model)
    found = Found(LABEL)
    look = _say_environment(found)
    device = "cuda" if look.is_initialized else "cpu"
    for name, value in {**torch_state(device), **process.process_flags()}.items():
        if name not in ("versions", "env"):
            found.say(f"torch.{name}", value, f"torch: {name}")
    for name, value in process.package_versions().items():
        found.say(f"version.{package(name)}", value, "installed packages")
    for name, value in process.module_flags(chunks).items():
        found.say(f"module.{name}", value, f"model: {name}")
    _say_arguments(found, {"model": chunks[0] if chunks else None, "optimizer": optimizer})
    _say_place(found)
    found.kinds |= {"env", "torch", "version"}
    return found.finish(LABEL, _framework())


def _chunks(model: Any) -> list[Any]:
    if model is None:
        return []
    chunks = list(model) if isinstance(model, list | tuple) else [model]
    for chunk in chunks:
        if not callable(getattr(chunk, "named_modules", None)):
            raise InputError(
                f"A {type(chunk).__name__} is no model.", "give a torch module, or a list of pipeline chunks"
            )
    return chunks


def _say_environment(found: Found) -> Look:
    """Say every variable, and when those were set that libraries read once."""
    look = look_around()
    start = _looks[0].environment if _looks[0].seconds == 0 else None
    for name, value in sorted(os.environ.items()):
        is_late = start is not None and name in look.environment and start.get(name) != value
        found.say_variable(
            name, value, "environment; set after the process began" if is_late else "environment"
        )
    for name in look.environment:
        dated = set_at(name, _looks)
        if dated is not None:
            found.say(f"time.env.{name}", round(dated, 3), "environment, as it was seen")
    first = next((each for each in _looks if each.is_initialized), None)
    if first is not None:
        found.say("time.cuda_initialized", round(first.seconds, 3), "torch.cuda, seen initialised first then")
    return look


def look_around() -> Look:
    """Look at this process now, and keep what is seen; the first look starts with how the process began."""
    import torch

    if not _looks:
        start = process.start_environment()
        if start is not None:
            _looks.append(Look(0.0, process.kept_environment(start), is_initialized=False))
    is_initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    look = Look(_seconds_since_start(), process.kept_environment(os.environ), is_initialized)
    if not _looks or _looks[-1][1:] != look[1:]:
        _looks.append(look)
    return look


def set_at(name: str, looks: Iterable[Look]) -> float | None:
    """Give a time at which a variable had its last value, if that settles whether it came before CUDA.

    Parameters
    ----------
    name
        The variable.
    looks
        What was seen, in order.

    Returns
    -------
    The time of the first look from which on it has the value, in seconds. None where it was set between two
    looks between which CUDA was initialised too: nobody saw which was first.
    """
    seen = list(looks)
    value = seen[-1].environment.get(name)
    since = len(seen) - 1
    while since > 0 and seen[since - 1].environment.get(name) == value:
        since -= 1
    if since == 0:
        return seen[0].seconds if seen[0].seconds == 0 or not seen[0].is_initialized else None
    is_between = seen[since].is_initialized and not seen[since - 1].is_initialized
    return None if is_between else seen[since].seconds


def _seconds_since_start() -> float:
    """Say how long this process has been running; without /proc, since Python's clock began."""
    try:
        fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.perf_counter()


def _say_arguments(found: Found, owners: Mapping[str, Any]) -> None:
    """Say the configurations of model and optimizer, and Megatron-LM's arguments where they are here."""
    for name, owner in owners.items():
        config = getattr(owner, "config", None)
        for field, value in sorted(vars(config).items()) if hasattr(config, "__dict__") else ():
            if isinstance(value, str | int | float | bool | None):
                found.say(names.field((name, field), ""), value, f"{name}.config: {field}")
    arguments = getattr(sys.modules.get("megatron.training.global_vars"), "_GLOBAL_ARGS", None)
    if arguments is not None:
        plain: dict[str, Value] = {
            name: value
            for name, value in sorted(vars(arguments).items())
            if isinstance(value, str | int | float | bool | None)
        }
        for leaf in walk(plain):
            found.say(names.field(leaf.path, ""), leaf.value, f"megatron.training arguments: {leaf.where}")
        found.kinds.add("args")


def _say_place(found: Found) -> None:
    import torch

    cache = os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache")
    found.say("place.triton_cache", cache, "where Triton keeps what it compiled")
    found.say("place.host", os.environ.get("DETLAB_HOST") or socket.gethostname(), "host name")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        found.say("place.world_size", torch.distributed.get_world_size(), "torch.distributed")
        found.say("place.rank", torch.distributed.get_rank(), "torch.distributed")


def _framework() -> str:
    return next((name for module, name in _FRAMEWORKS.items() if module in sys.modules), "")

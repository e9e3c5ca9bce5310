"""The recipe as this rank sees it: arguments, environment, versions and flags, all fit for JSON."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Final

from detlab.captures.process import (
    KEPT_PREFIXES,
    kept_environment,
    module_flags,
    package_versions,
    process_flags,
)
from detlab.captures.state import torch_state

if TYPE_CHECKING:
    from torch import nn

HOST_VARIABLE: Final = "DETLAB_HOST"
"""Environment variable that names the host in the recipe, where the machine's own name should not be told."""

RACK_VARIABLE: Final = "DETLAB_RACK"
"""Environment variable that names the rack or switch of the host; no machine knows its own."""


def rank_recipe(
    arguments: Mapping[str, object], configs: Mapping[str, object], chunks: Iterable[nn.Module] = ()
) -> dict[str, object]:
    """Collect what this rank would be run with again.

    Parameters
    ----------
    arguments
        The arguments of the training script.
    configs
        Configuration dataclasses by name, such as ``model`` and ``optimizer``.
    chunks
        The model, or its pipeline chunks, for the flags that its modules hold.

    Returns
    -------
    ``host``, where they are known ``rack`` and ``local_rank``, then ``state`` (flags, threads, versions),
    ``env``, ``modules`` (flags that modules hold), ``recorder.environment`` (beginnings of the variables that
    ``env`` speaks of), ``arguments`` and one mapping per config.
    """
    state = torch_state() | process_flags()
    state.pop("env")
    state["versions"] = package_versions() | state["versions"]
    return {
        **_place(),
        "state": state,
        "env": kept_environment(os.environ),
        "recorder": {"environment": list(KEPT_PREFIXES)},
        "modules": module_flags(chunks),
        "arguments": plain(arguments),
        **{name: plain(config) for name, config in configs.items()},
    }


def _place() -> dict[str, object]:
    """Say on which machine this rank runs and in which slot of it, as far as the launcher tells."""
    found: dict[str, object] = {"host": os.environ.get(HOST_VARIABLE) or socket.gethostname()}
    rack, local_rank = os.environ.get(RACK_VARIABLE), os.environ.get("LOCAL_RANK", "")
    if rack:
        found["rack"] = rack
    if local_rank.isdecimal():
        found["local_rank"] = int(local_rank)
    return found


def plain(value: object) -> object:
    """Write a value as JSON can hold it: dataclasses as mappings, what it does not know as its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)  # JSON has no NaN or infinity
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name, None)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return _name(value)


def _name(value: object) -> str:
    """Name a function or a type, and write others as text without their address in memory."""
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text

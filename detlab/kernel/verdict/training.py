"""What the result that training recorded means: in what its conditions differ from those of the replay."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from detlab.captures import Capture
from detlab.captures.state import torch_state
from detlab.kernel.perturb.settings import Settings
from detlab.kernel.power import adds_up
from detlab.kernel.worker.protocol import Change
from detlab.text import plural

_REACHES_AN_OP: Final = re.compile(r"torch|cuda|CUBLAS_\w+|(OMP|MKL)_(?!NUM_THREADS)\w+")
"""Versions and environment variables that reach one op; the number of threads is set by hand."""

_MAX_NAMES: Final = 3


def changes_since_training(capture: Capture, settings: Settings) -> list[Change]:
    """Find in what this replay differs from the call that training made, as far as the capture records it.

    Nothing found means that the condition is that of training. On an accelerator the number of CPU threads
    is none of its conditions.
    """
    there, here = capture.state, torch_state(settings.device)
    found = _chosen_otherwise(capture, settings)
    if settings.device.partition(":")[0] != capture.device.partition(":")[0]:  # its model is compared below
        note = f"training called it on {capture.device}, this replay on {settings.device}"
        found.append(Change("device", note, f"device {capture.device}", settings.device))
    for name in ("cpu_capability", "device_name", "mkldnn", "cudnn_benchmark", "cudnn_deterministic"):
        if there[name] != here[name]:
            found.append(_change(name, there[name], here[name]))
    for name in ("versions", "env"):
        for key in sorted(there[name].keys() | here[name].keys()):
            was, is_here = (state[name].get(key, "absent") for state in (there, here))
            if was != is_here and _REACHES_AN_OP.fullmatch(key):
                found.append(_change(key, was, is_here))
    return found


def change_of_function(capture: Capture, func: Callable[..., Any]) -> list[Change]:
    """Say that another function is called than the op that training called: its result is no evidence.

    A captured Python function is known by name only, so what the user gives for it is taken to be it.
    """
    if not capture.is_op or (isinstance(func, torch._ops.OpOverload) and str(func) == capture.op):
        return []
    name = str(getattr(func, "__qualname__", type(func).__qualname__)).rpartition("<locals>.")[2]
    return [
        Change("function", "", capture.op, str(func) if isinstance(func, torch._ops.OpOverload) else name)
    ]


def conditions_text(capture: Capture, changes: Sequence[Change]) -> str:
    """Say under which other conditions training recorded its result; empty when they were the same."""
    chosen = [change for change in changes if change.there]
    names = [change.name for change in changes if not change.there]
    parts = []
    if chosen:
        there = " and ".join(change.there for change in chosen)
        here = " and ".join(change.here for change in chosen)
        reorders = chosen[0].name == "threads" and adds_up(capture)
        parts.append(f"{there}, replayed with {here}{': another summation order' if reorders else ''}")
    if names:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        parts.append(f"another {', '.join(names[:_MAX_NAMES])}{more}")
    return f"recorded with {'; '.join(parts)}" if parts else ""


def _change(name: str, was: object, is_here: object) -> Change:
    return Change(name, f"{name} was {was} in training and is {is_here} here")


def _chosen_otherwise(capture: Capture, settings: Settings) -> list[Change]:
    """Give what the user of the replay chose otherwise than training had it."""
    threads, deterministic = max(capture.state["threads"], 1), capture.state["deterministic"]
    found = []
    if settings.device == "cpu" and settings.threads != threads:
        counted = f"{threads} {plural('thread', threads)}"
        found.append(Change("threads", "", counted, str(settings.threads)))
    if settings.deterministic != deterministic:
        algorithms = ("default algorithms", "deterministic algorithms")
        there, here = algorithms[deterministic], algorithms[settings.deterministic]
        found.append(Change("algorithms", "", there, here))
    return found

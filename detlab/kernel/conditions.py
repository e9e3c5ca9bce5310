"""The condition of a replay: device, threads and flags, set for the trials and put back after them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

from detlab.captures import Capture
from detlab.captures.state import torch_state
from detlab.errors import CaptureError, InputError

_REACHES_AN_OP: Final = re.compile(r"torch|cuda|CUBLAS_\w+|(OMP|MKL)_(?!NUM_THREADS)\w+")
"""Versions and environment variables that reach one op; the number of threads is set by hand."""


_MAX_THREADS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Condition:
    """What is held constant over the trials."""

    device: str
    threads: int
    deterministic: bool
    warn_only: bool
    fill_uninitialized_memory: bool
    float32_matmul_precision: str

    @property
    def name(self) -> str:
        """Say it in a few words, for example ``4 threads, use_deterministic_algorithms``."""
        place = (
            f"{self.threads} thread{'' if self.threads == 1 else 's'}"
            if self.device == "cpu"
            else self.device
        )
        return place + (", use_deterministic_algorithms" if self.deterministic else "")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set threads and flags; put back these and the default generators, also after an error."""
        before = _current()
        devices = [torch.device(self.device)] if self.device != "cpu" else []
        try:
            with torch.random.fork_rng(devices=devices):
                self._set()
                yield
        finally:
            before._set()

    def _set(self) -> None:
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = self.fill_uninitialized_memory  # type: ignore[attr-defined]
        torch.set_float32_matmul_precision(self.float32_matmul_precision)


def condition_for(
    capture: Capture,
    *,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
) -> Condition:
    """Give the condition of training, changed only where the user says so.

    Raises
    ------
    CaptureError
        The capture's device is not on this machine and the user named no other.
    InputError
        Fewer than one thread.
    """
    state = capture.state
    if not 0 <= state["threads"] <= _MAX_THREADS:
        raise CaptureError(
            f"{capture.path} was made with {state['threads']} threads, which no machine has.",
            "capture the call again; the file was changed",
        )
    if threads is not None and threads < 1:
        raise InputError(f"{threads} threads cannot run anything.", "say threads=1 or more")
    return Condition(
        device=_present(device or capture.device, capture),
        threads=threads or max(state["threads"], 1),
        deterministic=state["deterministic"] if deterministic is None else deterministic,
        warn_only=state["deterministic_warn_only"] and deterministic is None,
        fill_uninitialized_memory=state["fill_uninitialized_memory"],
        float32_matmul_precision=state["float32_matmul_precision"],
    )


class Change(NamedTuple):
    """One thing that is otherwise in the replay than it was in training.

    Attributes
    ----------
    name
        What it is: a version, a variable of the environment, a flag.
    note
        One sentence for the reader; empty for what the user chose and the condition's name says.
    there, here
        What it was in training and what it is in the replay; only for what a user of replay can choose.
    """

    name: str
    note: str
    there: str = ""
    here: str = ""


def changes_since_training(capture: Capture, condition: Condition) -> list[Change]:
    """Find in what this replay differs from the call that training made, as far as the capture records it.

    Nothing found means that the condition is that of training. On an accelerator the number of CPU threads
    is none of its conditions.
    """
    there, here = capture.state, torch_state(condition.device)
    found = _chosen_otherwise(capture, condition)
    if condition.device != capture.device:
        note = f"training called it on {capture.device}, this replay on {condition.device}"
        found.append(Change("device", note, f"device {capture.device}", condition.device))
    for name in ("cpu_capability", "device_name", "mkldnn", "cudnn_benchmark", "cudnn_deterministic"):
        if there[name] != here[name]:
            found.append(_change(name, there[name], here[name]))
    for name in ("versions", "env"):
        for key in sorted(there[name].keys() | here[name].keys()):
            was, is_here = (state[name].get(key, "absent") for state in (there, here))
            if was != is_here and _REACHES_AN_OP.fullmatch(key):
                found.append(_change(key, was, is_here))
    return found


def _change(name: str, was: object, is_here: object) -> Change:
    return Change(name, f"{name} was {was} in training and is {is_here} here")


def _chosen_otherwise(capture: Capture, condition: Condition) -> list[Change]:
    """Give what the user of the replay chose otherwise than training had it."""
    threads, deterministic = max(capture.state["threads"], 1), capture.state["deterministic"]
    found = []
    if condition.device == "cpu" and condition.threads != threads:
        counted = f"{threads} thread{'' if threads == 1 else 's'}"
        found.append(Change("threads", "", counted, str(condition.threads)))
    if condition.deterministic != deterministic:
        algorithms = ("default algorithms", "deterministic algorithms")
        there, here = algorithms[deterministic], algorithms[condition.deterministic]
        found.append(Change("algorithms", "", there, here))
    return found


def _current() -> Condition:
    state = torch_state()
    return Condition(
        device="cpu",
        threads=state["threads"],
        deterministic=state["deterministic"],
        warn_only=state["deterministic_warn_only"],
        fill_uninitialized_memory=state["fill_uninitialized_memory"],
        float32_matmul_precision=state["float32_matmul_precision"],
    )


def _present(device: str, capture: Capture) -> str:
    """Give the device if this machine has it."""
    cuda = re.fullmatch(r"cuda(?::(\d+))?", device)
    if device == "cpu" or (cuda and int(cuda[1] or 0) < torch.cuda.device_count()):
        return device
    raise CaptureError(
        f"{capture.path} was captured on {capture.device}, and this machine has no {device}.",
        'replay it on a machine that has one, or say replay(capture, device="cpu") to try another kernel',
    )

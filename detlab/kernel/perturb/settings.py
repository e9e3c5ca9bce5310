"""Device, threads and flags: set for the trials of a condition and put back after them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from detlab.captures import Capture
from detlab.captures.state import matmul_precision, torch_state
from detlab.errors import CaptureError
from detlab.kernel.conditions import MAX_THREADS, Condition
from detlab.text import plural


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set in this process while the trials are made; a None is left as it is."""

    device: str
    threads: int
    deterministic: bool
    warn_only: bool
    fill_uninitialized_memory: bool
    float32_matmul_precision: str
    mkldnn: bool | None = None
    cudnn_benchmark: bool | None = None
    blas: str | None = None
    cudnn_tf32: bool | None = None

    @property
    def name(self) -> str:
        """Say it in a few words, for example ``4 threads, use_deterministic_algorithms``."""
        threads = f"{self.threads} {plural('thread', self.threads)}"
        place = threads if self.device == "cpu" else self.device
        return place + (", use_deterministic_algorithms" if self.deterministic else "")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set threads and flags; put back these and the default generators, also after an error."""
        before, precisions = current_settings(), _precisions()
        devices = [torch.device(self.device)] if self.device != "cpu" else []
        try:
            with torch.random.fork_rng(devices=devices):
                self._set()
                yield
        finally:
            before._set()
            _put_back(precisions)

    def _set(self) -> None:
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = self.fill_uninitialized_memory  # type: ignore[attr-defined]
        torch.set_float32_matmul_precision(self.float32_matmul_precision)
        if self.mkldnn is not None:
            torch.backends.mkldnn.enabled = self.mkldnn  # type: ignore[assignment]
        if self.cudnn_benchmark is not None:
            torch.backends.cudnn.benchmark = self.cudnn_benchmark
        if self.blas is not None and torch.cuda.is_available():
            torch.backends.cuda.preferred_blas_library(self.blas)
        if self.cudnn_tf32 is not None:
            torch.backends.cudnn.allow_tf32 = self.cudnn_tf32


def settings_for(capture: Capture, condition: Condition) -> Settings:
    """Give the settings of training, changed only where the condition says so.

    Raises
    ------
    CaptureError
        The device is not on this machine, or the capture claims what no machine has.
    """
    state = capture.state
    if not 0 <= state["threads"] <= MAX_THREADS:
        raise CaptureError(
            f"{capture.path} was made with {state['threads']} threads, which no machine has.",
            "capture the call again; the file was changed",
        )
    chosen, fill = condition.deterministic, condition.fill_memory
    return Settings(
        device=present(condition.device or capture.device, capture),
        threads=condition.threads or max(state["threads"], 1),
        deterministic=state["deterministic"] if chosen is None else chosen,
        warn_only=state["deterministic_warn_only"] and chosen is None,
        fill_uninitialized_memory=state["fill_uninitialized_memory"] if fill is None else fill,
        float32_matmul_precision=_precision(condition) or state["float32_matmul_precision"],
        mkldnn=condition.mkldnn,
        cudnn_benchmark=condition.cudnn_benchmark,
        blas=condition.blas,
        cudnn_tf32=condition.tf32,
    )


def _precision(condition: Condition) -> str | None:
    """Give the precision that means TF32 in matrix products; torch refuses to be told in two ways."""
    if condition.float32_matmul_precision is not None or condition.tf32 is None:
        return condition.float32_matmul_precision
    return "high" if condition.tf32 else "highest"


def current_settings() -> Settings:
    """Read the settings of this process, all of them, to put them back later."""
    state = torch_state()
    return Settings(
        device="cpu",
        threads=state["threads"],
        deterministic=state["deterministic"],
        warn_only=state["deterministic_warn_only"],
        fill_uninitialized_memory=state["fill_uninitialized_memory"],
        float32_matmul_precision=matmul_precision("cuda"),  # `_put_back` tells the CPU's from it
        mkldnn=state["mkldnn"],
        cudnn_benchmark=state["cudnn_benchmark"],
        blas=_blas(),
        cudnn_tf32=_cudnn_tf32(),
    )


def present(device: str, capture: Capture) -> str:
    """Give the device, with its number, if this machine has it."""
    cuda = re.fullmatch(r"cuda(?::(\d+))?", device)
    if device == "cpu":
        return device
    if cuda and int(cuda[1] or 0) < torch.cuda.device_count():
        return device if cuda[1] else f"cuda:{torch.cuda.current_device()}"
    hint = f"leave the device out (on the command line --device) to replay it on {capture.device}"
    if device == capture.device:
        hint = 'replay it on a machine that has one, or try another kernel: device="cpu", or --device cpu'
    raise CaptureError(
        f"{capture.path} was captured on {capture.device}, and this machine has no {device}.", hint
    )


_DRIVER_FILE: Final = Path("/proc/driver/nvidia/version")


def place_of(device: str) -> dict[str, Any]:
    """Say where the trials are made: the model of the device, its driver, the versions; no host, no path.

    Returns
    -------
    ``device``, ``name``, ``driver`` (None on a CPU, and where it cannot be read), ``versions``.
    """
    state = torch_state(device)
    name = f"{state['device_name']} {state['cpu_capability']}" if device == "cpu" else state["device_name"]
    driver = None if device == "cpu" else _driver()
    return {"device": device, "name": name, "driver": driver, "versions": state["versions"]}


def _driver() -> str | None:
    try:
        found = re.search(r"Module\s+([\d.]+)|\s(\d+\.[\d.]+)\s", _DRIVER_FILE.read_text("utf-8"))
    except OSError:
        return None
    return (found[1] or found[2]) if found else None


def _cudnn_tf32() -> bool | None:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # its operators were told different things; `_put_back` has them
        return None


def _backends() -> tuple[Any, ...]:
    """Give what holds a precision of its own, which the older settings overwrite."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    return cuda.matmul, mkldnn.matmul, cudnn.conv, cudnn.rnn  # type: ignore[attr-defined]


def _precisions() -> list[str]:
    return [each.fp32_precision for each in _backends()]


def _put_back(precisions: list[str]) -> None:
    for each, was in zip(_backends(), precisions, strict=True):
        if each.fp32_precision != was:
            each.fp32_precision = was


def _blas() -> str | None:
    if not torch.cuda.is_available():
        return None
    return str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2].lower()

"""The conditions of a guard: those of a replay that can be had in this process, around any call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch

from detlab.errors import InputError
from detlab.kernel.conditions import Condition, named
from detlab.kernel.perturb.load import competing_load
from detlab.kernel.perturb.memory import can_poison, poisoned
from detlab.kernel.perturb.settings import Settings, current_settings

AskedCondition = Mapping[str, Any] | str | Condition
"""A name such as ``"4 threads"``, what to set such as ``{"threads": 4}``, or a `detlab.kernel.Condition`."""

Results = Mapping[str, torch.Tensor]

_NOT_HERE: Final = ("env", "trials_per_process", "device", "offset_bytes", "caches")
_SMALL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class AppliedCondition:
    """A condition that holds now; every trial is made through it."""

    name: str
    trials: int | None
    make: Callable[[Callable[[], Results]], Results]


def guard_conditions(asked: Sequence[AskedCondition], device: str) -> list[Condition]:
    """Read what a guard's user asked for.

    Raises
    ------
    InputError
        Nothing, a name or a field that is unknown, or what needs a process, a capture or a device of its own.
    """
    found: list[Condition] = []
    for one in [asked] if isinstance(asked, str | Mapping | Condition) else asked:
        if isinstance(one, Condition):
            found.append(one)
        else:
            found += named(one, device) if isinstance(one, str) else [_from_settings(one)]
    if not found:
        raise InputError("No condition, no trial.", "leave conditions= out, or name one")
    for condition in found:
        if odd := sorted(condition.changed.intersection(_NOT_HERE)):
            raise InputError(
                f"A guard cannot have {condition.name or odd[0]!r}: it stays in this process.",
                "capture the call and replay it under that condition",
            )
        if condition.poison and not can_poison(device):
            raise InputError(
                "This C library cannot fill the memory that it hands out.", "leave the poison out"
            )
    return found


@contextmanager
def condition_applied(condition: Condition, device: str) -> Iterator[AppliedCondition]:
    """Set what a condition names and put everything back, also after an error."""
    settings = _settings(condition, device)
    load = competing_load(device) if condition.load else nullcontext(lambda: None)
    small: set[int] = set()

    def make(trial: Callable[[], Results]) -> Results:
        before_trial()
        with poisoned(condition.poison, device, sorted(small)) if condition.poison else nullcontext():
            results = trial()
        sizes = {tensor.untyped_storage().nbytes() for tensor in results.values()}
        small.update(size for size in sizes if 0 < size <= _SMALL_BYTES)
        return results

    with settings.applied(), load as before_trial:
        yield AppliedCondition(condition.name or settings.name, condition.trials, make)


def _from_settings(settings: Mapping[str, Any]) -> Condition:
    known = [field.name for field in fields(Condition) if field.name != "name"]
    if odd := sorted(set(settings) - set(known)):
        raise InputError(f"A condition cannot hold {odd[0]!r}.", f"hold one of {', '.join(known)}")
    return Condition(name="", **settings)


def _settings(condition: Condition, device: str) -> Settings:
    """Give the settings of this process, changed only where the condition says so."""
    now = current_settings()
    chosen: dict[str, Any] = {
        "threads": condition.threads,
        "deterministic": condition.deterministic,
        "warn_only": None if condition.deterministic is None else False,
        "fill_uninitialized_memory": condition.fill_memory,
        "float32_matmul_precision": condition.float32_matmul_precision,
        "mkldnn": condition.mkldnn,
        "cudnn_benchmark": condition.cudnn_benchmark,
        "blas": condition.blas,
        "cudnn_tf32": condition.tf32,
    }
    if condition.tf32 is not None and condition.float32_matmul_precision is None:
        chosen["float32_matmul_precision"] = "high" if condition.tf32 else "highest"
    return replace(now, device=device, **{name: value for name, value in chosen.items() if value is not None})

"""Capture a call by hand: of a function, an op, a kernel's launcher, or forward and backward of a module."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from detlab.captures import Capture, PendingCapture, load_capture
from detlab.captures.save import CallToSave, save_call, save_capture
from detlab.errors import CaptureError, InputError
from detlab.kernel.modules import ARGUMENTS, ModuleCall, differentiable
from detlab.kernel.restore import RestoredCall

SITE: Final = "captured by hand"
_GRADIENT_SEED: Final = 0
_MAX_NAME: Final = 200


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Keep what a capture does to itself out of the trace of a recorder that is open."""
    with _disable_current_modes():
        yield


@_unrecorded()
def capture(
    fn: Callable[..., Any],
    *args: Any,
    path: str | Path,
    mutates: Sequence[str | int] = (),
    max_bytes: int | None = None,
    compact: bool = False,
    **kwargs: Any,
) -> Capture:
    """Save a call of a function with these arguments, and what it gives.

    The call is made on copies of the arguments; the arguments themselves and the random generators stay as
    they are. The file holds the arguments and, for people, the function's name; it never says what to run:
    replay it with ``replay(capture, call=fn)``, an op of torch's own with ``replay(capture)``.

    What the function reads beside its arguments - a closure, a module's parameters, a global - is not
    captured; pass it as an argument, or use `capture_module`. Arguments that require a gradient do so again,
    as leaves.

    Parameters
    ----------
    fn
        Any callable, such as the launcher of a Triton kernel, a function that runs an autograd function
        forward and backward, or an op of ``torch.ops`` or ``torch.library``.
    args, kwargs
        Tensors, numbers, text, None, slices, dtypes, devices, generators, and lists, tuples and dictionaries
        of them.
    path
        A new folder for the capture.
    mutates
        Names or positions of the arguments that the function changes. What it changes without being named is
        found by looking and added.
    max_bytes, compact
        See `detlab.captures.save.save_call`.

    Raises
    ------
    CaptureError
        The call cannot be saved, raises an error, or gives nothing that has bits.
    InputError
        ``mutates`` names an argument that is not given.

    Examples
    --------
    >>> capture = dl.capture(launch, x, out, mutates=["out"], path="captures/launch")  # doctest: +SKIP
    >>> dl.replay(capture, call=launch, trials=1_000)  # doctest: +SKIP
    """
    folder = Path(path)
    limits = {"site": SITE, "rank": _rank(), "max_bytes": max_bytes, "compact": compact}
    op = _op_of(fn)
    if op is not None:
        changed = _names([argument.name for argument in op._schema.arguments], mutates)
        return _completed(save_capture(folder, op, args, kwargs, **limits), op, changed)  # type: ignore[arg-type]
    given = _named(fn, args, kwargs)
    changed = _names([name for name, _ in given], mutates)
    call = CallToSave(_name_of(fn), "", given, len(args), changed, is_seeded=True)
    return _completed(save_call(folder, call, **limits), fn, changed)  # type: ignore[arg-type]


@_unrecorded()
def capture_module(
    module: torch.nn.Module,
    *inputs: Any,
    path: str | Path,
    gradients: Sequence[torch.Tensor] | None = None,
    backward: bool = True,
    max_bytes: int | None = None,
    compact: bool = False,
    **keywords: Any,
) -> Capture:
    """Save forward and backward of a module: parameters, buffers, other tensors, random states and inputs.

    Replay it with ``replay(capture, call=module)``, where the module may be another one of the same
    configuration: everything that `ModuleCall` names is taken from the capture, and the module is left as it
    was.

    Parameters
    ----------
    inputs, keywords
        What the module is called with. Inputs that require a gradient get one.
    gradients
        One for each output that requires one. None: drawn from a normal distribution with a fixed seed,
        because sums of whole numbers are exact in any order and would hide a race.
    backward
        Whether backward is part of it.

    Raises
    ------
    CaptureError
        The call cannot be saved or raises an error.
    """
    call = ModuleCall(module)
    held = (call.parameters(), call.state(), call.numbers(), call.trackers())
    if backward and gradients is None:
        gradients = _random_gradients(call, held, inputs, keywords)
    values = (*held, tuple(inputs), dict(keywords), tuple(gradients or ()) if backward else None)
    given = list(zip(ARGUMENTS, values, strict=True))
    saved = CallToSave(_name_of(type(module)), "", given, len(given), (), is_seeded=True)
    pending = save_call(Path(path), saved, site=SITE, rank=_rank(), max_bytes=max_bytes, compact=compact)
    return _completed(pending, module, ())  # which of its state it changes is seen


def _completed(pending: PendingCapture, fn: Callable[..., Any], changed: tuple[str, ...]) -> Capture:
    """Make the call from what was saved, so that a capture which cannot be replayed is known at once."""
    device = pending.capture.device
    try:
        with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
            restored = RestoredCall(replace(pending.capture, mutates=changed), fn, device)
            outputs = restored.run()
            found = restored.adopt_silent_writes()
            if found:
                restored.reset()
                outputs = restored.run()
            if not outputs:
                raise CaptureError(
                    f"{pending.capture.op} returns and changes nothing, so there is nothing to compare.",
                    "let it return what it computes",
                )
            pending.complete(outputs, dict.fromkeys((*changed, *found)))
    except BaseException:
        pending.discard()
        raise
    return load_capture(pending.capture.path)


def _random_gradients(
    call: ModuleCall,
    held: tuple[Mapping[str, Any], ...],
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> list[torch.Tensor]:
    """Run forward once to see the outputs, on a copy of what it may change, and draw a gradient for each."""
    parameters, state, numbers, trackers = held
    copied = {name: tensor.detach().clone() for name, tensor in state.items()}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.enable_grad():
        ends = differentiable(call.forward(parameters, copied, numbers, trackers, inputs, keywords))
    generator = torch.Generator().manual_seed(_GRADIENT_SEED)
    return [torch.randn(end.shape, generator=generator).to(end.device, end.dtype) for end in ends]


def _op_of(fn: Any) -> torch._ops.OpOverload | None:
    """Give the op of torch's dispatcher that a callable stands for; None for any other callable."""
    fn = getattr(fn, "_opoverload", fn)  # of torch.library.custom_op
    if isinstance(fn, torch._ops.OpOverloadPacket):
        names = fn.overloads()  # type: ignore[no-untyped-call]
        if len(names) != 1:
            raise InputError(
                f"{fn} has the overloads {', '.join(names)}.",
                f"name the one that is meant, such as {fn}.{names[0]}",
            )
        fn = getattr(fn, names[0])
    return fn if isinstance(fn, torch._ops.OpOverload) else None


def _named(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name every argument as the function does; by its position where it has no name."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in plain]
    names += [f"argument {number}" for number in range(len(names), len(args))]
    return [*zip(names, args, strict=False), *kwargs.items()]


def _names(names: Sequence[str], mutates: Sequence[str | int]) -> tuple[str, ...]:
    given = (mutates,) if isinstance(mutates, str | int) else mutates
    found = []
    for item in given:
        name = names[item] if isinstance(item, int) and 0 <= item < len(names) else item
        if name not in names:
            raise InputError(
                f"mutates names {item!r}, which is not given.", f"use some of {', '.join(names)}"
            )
        found.append(str(name))
    return tuple(dict.fromkeys(found))


def _name_of(fn: Any) -> str:
    """Give ``module:qualified.name`` of a callable, for people."""
    fn = inspect.unwrap(fn)
    while isinstance(fn, functools.partial):
        fn = fn.func
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type):  # a class method, such as the apply of an autograd function
        parts = owner.__module__, f"{owner.__qualname__}.{fn.__name__}"
    else:
        named = fn if hasattr(fn, "__qualname__") else type(fn)
        parts = named.__module__ or "unknown", named.__qualname__
    return ":".join(re.sub(r"[^\w.<>-]", "_", part)[-_MAX_NAME:] for part in parts)


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

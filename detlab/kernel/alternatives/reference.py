"""The same call in float64 on the CPU, and how far results lie from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from detlab.captures import Capture
from detlab.captures.values import GeneratorSpec, TensorSpec, leaves
from detlab.digest import plain_cpu_bytes, tensor_digest
from detlab.errors import CaptureError
from detlab.kernel.alternatives.report import Closeness
from detlab.kernel.differences.bits import ulp_distance
from detlab.kernel.ops import written_arguments
from detlab.kernel.restore import RestoredCall

_DRAWS: Final = "the call draws random numbers, and draws others in float64"
_LARGEST: Final = float(np.finfo(np.float64).max)
_NO_ULP: Final = (torch.float4_e2m1fn_x2,)  # two values a byte


@dataclass(frozen=True, slots=True)
class Reference:
    """What results are measured against.

    Attributes
    ----------
    outputs
        One per output of the call, then per mutated argument; empty when there is no reference.
    text
        What it is, or why there is none.
    """

    outputs: tuple[torch.Tensor, ...]
    text: str


def float64_reference(
    capture: Capture, func: Callable[..., Any], *, given: bool, shapes: Sequence[torch.Size]
) -> Reference:
    """Make the call once on the CPU with every float of its arguments in float64.

    Parameters
    ----------
    func
        The op itself or, where `given`, a callable that the user calls right.
    shapes
        Those of the op's outputs, which the reference must have.
    """
    what = "to the given reference" if given else "to the same op in float64 on the CPU"
    why = "" if given else _why_none(capture)
    if not why:
        try:
            outputs, draws = _outputs_in_float64(capture, func)
            why = _DRAWS if draws and not given else _why_unlike(outputs, shapes)
        except (CaptureError, RuntimeError, TypeError) as error:
            why = str(error.__cause__ or error).partition("\n")[0]
    if why:
        return Reference((), f"no float64 reference could be made: {why}")
    return Reference(tuple(outputs), what)


def closeness(results: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> Closeness | None:
    """Measure the float outputs of one result against a reference of the same shapes; None without any."""
    pairs = [
        (_flat(result), _flat(exact))
        for result, exact in zip(results, reference, strict=True)
        if _is_float(result) and _is_float(exact)
    ]
    if not pairs:
        return None
    numbers = [(a, b, a.double().numpy(), b.double().numpy()) for a, b in pairs]
    finite = [np.isfinite(x) & np.isfinite(y) for _, _, x, y in numbers]
    same = [(x == y) | (np.isnan(x) & np.isnan(y)) for _, _, x, y in numbers]
    with np.errstate(over="ignore"):  # two ends of float64 are farther apart than it can say
        apart = [
            np.clip(x[m] - y[m], -_LARGEST, _LARGEST) for m, (_, _, x, y) in zip(finite, numbers, strict=True)
        ]
    ulps = [_max_ulp(a, b, m) for m, (a, b, _, _) in zip(finite, numbers, strict=True)]
    return Closeness(
        max_abs=max((float(np.abs(d).max()) for d in apart if d.size), default=0.0),
        max_ulp=max((ulp for ulp in ulps if ulp is not None), default=None),
        relative_l2=_share(apart, [y[m] for m, (_, _, _, y) in zip(finite, numbers, strict=True)]),
        not_finite=sum(int((~m & ~s).sum()) for m, s in zip(finite, same, strict=True)),
    )


def farther(a: Closeness | None, b: Closeness | None) -> Closeness | None:
    """Give the worse of two in every respect; a result that could not be measured counts for nothing."""
    if a is None or b is None:
        return a or b
    ulps = [each.max_ulp for each in (a, b) if each.max_ulp is not None]
    shares = (a.relative_l2, b.relative_l2)
    return Closeness(
        max(a.max_abs, b.max_abs),
        max(ulps, default=None),
        None if None in shares else max(share for share in shares if share is not None),
        max(a.not_finite, b.not_finite),
    )


def _outputs_in_float64(capture: Capture, func: Callable[..., Any]) -> tuple[list[torch.Tensor], bool]:
    """Give outputs and mutated arguments of the call in float64, each object once, as a trial does.

    Returns
    -------
    These, and whether the call drew from the default generator.
    """
    wide: dict[int, torch.Tensor] = {}
    states: list[torch.Tensor] = []

    def widened(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)([widened(item) for item in value])
        if isinstance(value, dict):
            return {name: widened(item) for name, item in value.items()}
        if isinstance(value, torch.dtype):
            return _wide(value)
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in wide:
            copy = value.detach().to(_wide(value.dtype)).clone()
            wide[id(value)] = copy.requires_grad_(value.requires_grad)
        return wide[id(value)]

    def call(*args: Any, **kwargs: Any) -> Any:
        states.append(torch.get_rng_state())
        returned = func(*widened(list(args)), **widened(kwargs))
        states.append(torch.get_rng_state())
        return returned

    restored = RestoredCall(capture, call, "cpu")
    found = [wide.get(id(tensor), tensor) for tensor in restored.run()]
    draws = len({tensor_digest(state) for state in states}) > 1
    return list({id(tensor): tensor for tensor in found}.values()), draws


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


def _why_none(capture: Capture) -> str:
    """Say why the op in float64 would not be the same call."""
    values = [(name, leaf) for name, value in capture.arguments for leaf in leaves(value)]
    is_seeded = capture.is_op and capture.generators  # of a Python function they are always captured
    if is_seeded or any(isinstance(leaf, GeneratorSpec) for _, leaf in values):
        return _DRAWS
    written = written_arguments(capture)
    specs = [(name, leaf) for name, leaf in values if isinstance(leaf, TensorSpec)]
    mutated = {leaf.storage for name, leaf in specs if name in written}
    if any(sum(leaf.storage == storage for _, leaf in specs) > 1 for storage in mutated):
        return "the call changes memory that two of its arguments share"
    return ""


def _why_unlike(outputs: Sequence[torch.Tensor], shapes: Sequence[torch.Size]) -> str:
    mine, theirs = [tuple(tensor.shape) for tensor in outputs], [tuple(shape) for shape in shapes]
    return "" if mine == theirs else f"it gives shapes {mine}, the op gives {theirs}"


def _is_float(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in _NO_ULP


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Give a plain CPU tensor of one dimension; of complex numbers both parts."""
    plain = plain_cpu_bytes(tensor.detach())
    return (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)


def _share(parts: Sequence[NDArray[np.float64]], of: Sequence[NDArray[np.float64]]) -> float | None:
    """Divide two Euclidean norms, scaled so that no square overflows; None for something of nothing."""
    part, whole = np.concatenate(parts), np.concatenate(of)
    scale = max(float(np.abs(each).max(initial=0.0)) for each in (part, whole))
    if not np.abs(part).any():
        return 0.0
    norm = float(np.linalg.norm(whole / scale))
    return float(np.linalg.norm(part / scale)) / norm if norm else None


def _max_ulp(result: torch.Tensor, exact: torch.Tensor, chosen: Any) -> int | None:
    rounded = exact.to(result.dtype)
    mask = torch.from_numpy(chosen) & torch.isfinite(rounded.double())
    if not mask.any():
        return None
    return int(ulp_distance(*(_picked(tensor, mask) for tensor in (result, rounded))).max())


def _picked(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Choose elements by their bytes, as some narrow dtypes know no indexing."""
    raw = tensor.contiguous().view(torch.uint8).view(-1, tensor.element_size())
    return raw[mask].reshape(-1).view(tensor.dtype)

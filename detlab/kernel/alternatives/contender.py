"""One contender of a comparison of alternatives: its own copy of the arguments, and what its trials gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch

from detlab.captures import Capture
from detlab.digest import tensor_digest
from detlab.errors import CaptureError
from detlab.kernel.alternatives.reference import Reference, closeness, farther
from detlab.kernel.alternatives.report import Closeness, ContenderResult, PairedTime
from detlab.kernel.restore import RestoredCall
from detlab.kernel.statistics import summarize

_MAX_MEASURED: Final = 8
"""Distinct results of one contender that are measured against the reference."""


class Contender:
    """One callable, its own copy of the arguments, and what its trials gave."""

    def __init__(self, capture: Capture, name: str, func: Callable[..., Any], device: str) -> None:
        self.name, self.problem, self.failed = name, "", False
        self.silent: set[str] = set()
        self.times_ms: dict[int, float] = {}
        self._call = RestoredCall(capture, func, device)
        self._is_op = name == capture.op
        self._device = torch.device(device)
        self._results: list[tuple[object, ...]] = []
        self._closeness: Closeness | None = None
        self._forms: list[tuple[torch.dtype, torch.Size]] = []
        self._seen: set[tuple[object, ...]] = set()

    @property
    def shapes(self) -> list[torch.Size]:
        """Shapes of the outputs, then of the mutated arguments, in the first call."""
        return [shape for _, shape in self._forms]

    def look(self) -> None:
        """Make one untimed call and see what it gives, and what it changes beside that."""
        outputs = self._run_once()
        if outputs is not None:
            self._forms = [_form(tensor) for tensor in outputs]
            self._look_for_writes()

    def warm_up(self, times: int) -> None:
        """Make untimed calls."""
        for _ in range(times):
            self._run_once()

    def trial(self, number: int, reference: Reference) -> None:
        """Make one timed call and keep its bits; measure a result not seen before."""
        outputs = self._run_once(number)
        if outputs is None:
            return
        result = tuple((tensor_digest(tensor), *_form(tensor)) for tensor in outputs)
        self._results.append(result)
        shapes = [tensor.shape for tensor in reference.outputs]
        is_alike = bool(shapes) and [tensor.shape for tensor in outputs] == shapes
        if is_alike and result not in self._seen and len(self._seen) < _MAX_MEASURED:
            self._closeness = farther(self._closeness, closeness(outputs, reference.outputs))
        self._seen.add(result)

    def result(self, op: Contender) -> ContenderResult:
        """Sum up the trials."""
        self._look_for_writes()
        row = summarize(self.name, self._results) if self._results else None
        return ContenderResult(
            name=self.name,
            is_captured_op=self._is_op,
            trials=len(self._results),
            distinct=row.distinct if row else 0,
            modal_share=row.modal_share if row else 0.0,
            upper_bound_95=row.upper_bound_95 if row else None,
            closeness=self._closeness,
            time=_paired(self.times_ms, op.times_ms),
            problem="; ".join(self._problems(op)),
        )

    def _problems(self, op: Contender) -> Iterator[str]:
        """Say what keeps it from standing in for the op."""
        if self.problem:
            yield self.problem
        if self._forms and self._forms != op._forms:
            yield f"gives {_forms_text(self._forms)} where the op gives {_forms_text(op._forms)}"
        if self is op and self.silent:
            yield f"changes {', '.join(sorted(self.silent))} though its schema says that it only reads"
        if names := sorted(self.silent - op.silent):
            yield f"changes {', '.join(names)}, which the op only reads"

    def _look_for_writes(self) -> None:
        """See whether the last call changed what it should not; from here on that is restored as well."""
        if not self.failed:
            self.silent.update(self._call.adopt_silent_writes())

    def _run_once(self, number: int | None = None) -> list[torch.Tensor] | None:
        """Restore and call, timed under a number if it has one; None when it fails, which ends its trials."""
        if self.failed:
            return None
        self._call.reset()
        self._wait()
        start = perf_counter()
        try:
            outputs = self._call.run()
            self._wait()
        except (CaptureError, RuntimeError) as error:
            self.failed, self.problem = True, _raised(error)
            return None
        if number is not None:
            self.times_ms[number] = 1e3 * (perf_counter() - start)
        return outputs

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def order_statistics_95(values: Sequence[float]) -> tuple[float, float] | None:
    """Give an interval that holds the median of what `values` were drawn from in at least 95 % of the cases.

    Between the j-th smallest and the j-th largest value, j as large as 2.5 % on either side allow; it
    assumes independence and no distribution (David and Nagaraja, Order Statistics, 2003, 7.1). None with
    fewer than 6 values, which hold no such interval.
    """
    num, below, term, rank = len(values), 0, 1, 0
    while 40 * (below + term) <= 2**num:  # P(at most `rank` of `num` below the median) <= 1/40
        below += term
        term = term * (num - rank) // (rank + 1)
        rank += 1
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[num - rank]) if rank else None


def _paired(mine: Mapping[int, float], ops: Mapping[int, float]) -> PairedTime | None:
    ratios = [mine[number] / ops[number] for number in mine.keys() & ops.keys()]
    if not ratios:
        return None
    return PairedTime(median(mine.values()), median(ratios), order_statistics_95(ratios))


def _form(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _forms_text(forms: Sequence[tuple[torch.dtype, torch.Size]]) -> str:
    texts = [f"{str(dtype).removeprefix('torch.')}{list(shape)}" for dtype, shape in forms]
    return ", ".join(texts) or "nothing"


def _raised(error: Exception) -> str:
    """Name an error by its kind and its first line."""
    cause = error.__cause__ or error
    return f"raised {type(cause).__name__}: {str(cause).partition(chr(10))[0]}"

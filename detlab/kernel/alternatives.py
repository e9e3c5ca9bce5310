"""Set callables beside a captured op: how repeatable, how exact and how fast is each, from one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch

from detlab.captures import Capture
from detlab.digest import tensor_digest
from detlab.errors import CaptureError, InputError
from detlab.kernel.alternatives_reference import Reference, closeness, farther, float64_reference
from detlab.kernel.alternatives_report import AlternativesReport, Closeness, ContenderResult, PairedTime
from detlab.kernel.conditions import condition_for
from detlab.kernel.ops import find_op
from detlab.kernel.restore import RestoredCall
from detlab.kernel.statistics import summarize

Func = Callable[..., Any]

_MAX_MEASURED: Final = 8
"""Distinct results of one contender that are measured against the reference."""


def compare_alternatives(  # noqa: PLR0913 - each is a condition of the trials or a contender
    capture: Capture,
    against: Func | Sequence[Func] | Mapping[str, Func],
    *,
    trials: int = 60,
    warmup: int = 3,
    reference: Func | None = None,
    call: Func | None = None,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
    allow: Collection[str] = (),
    progress: Callable[[int, int], object] | None = None,
) -> AlternativesReport:
    """Compare the captured op with callables that could stand in its place.

    All of them are called in turns, round by round, each on its own copy of the captured arguments, restored
    to the captured bits before every call; each round begins with another one. So drift of the machine meets
    all alike, and times are compared within a round. Restoring and hashing are not timed.

    A contender that raises, changes what it should not, or gives other shapes or dtypes is a row of the
    report that says so. Stopping it (KeyboardInterrupt) keeps the rounds so far.

    Parameters
    ----------
    against
        One or several callables with the op's signature, which get the captured arguments as the op does; a
        mapping gives them names.
    trials
        Timed calls of each, 1 or more.
    warmup
        Calls of each before the first timed one.
    reference
        Computes the exact result: it gets the arguments on the CPU with every float in float64. None: the
        captured op itself in float64.
    call
        The captured function, where the capture is one of a Python function.
    threads, deterministic, device, allow
        As in `detlab.kernel.trials.replay`.
    progress
        Called after every round with the number of rounds made and asked for.

    Raises
    ------
    CaptureError
        The captured op must not, or cannot, be run here.
    InputError
        No trial, no alternative, or two alternatives of one name.
    """
    if trials < 1 or warmup < 0:
        raise InputError(f"{trials} trials after {warmup} calls show nothing.", "say trials=1 or more")
    func = call or find_op(capture, allow)
    condition = condition_for(capture, threads=threads, deterministic=deterministic, device=device)
    given = _named(against, capture.op)
    with condition.applied():
        contenders = [_Contender(capture, name, each, condition.device) for name, each in given.items()]
        op = _Contender(capture, capture.op, func, condition.device)
        op.look()
        if op.problem:
            raise CaptureError(f"{capture.op} {op.problem}.", "replay it under the conditions of training")
        known = float64_reference(capture, reference or func, given=reference is not None, shapes=op.shapes)
        problems = _run([op, *contenders], known, (trials, warmup), progress)
    return AlternativesReport(
        op=capture.op,
        site=capture.site,
        condition=condition.name,
        warmup=warmup,
        reference=known.text,
        contenders=tuple(each.result(op) for each in (op, *contenders)),
        problems=tuple(problems),
    )


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


class _Contender:
    """One callable, its own copy of the arguments, and what its trials gave."""

    def __init__(self, capture: Capture, name: str, func: Func, device: str) -> None:
        self.name, self.problem = name, ""
        self.times_ms: dict[int, float] = {}
        self._call = RestoredCall(capture, func, device)
        self._is_op = name == capture.op
        self._device = torch.device(device)
        self._results: list[tuple[object, ...]] = []
        self._closeness: Closeness | None = None
        self._forms: list[tuple[torch.dtype, torch.Size]] = []
        self._failed = False

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
        if self._failed:
            return
        outputs = self._run_once(number)
        if outputs is None:
            return
        result = tuple((tensor_digest(tensor), *_form(tensor)) for tensor in outputs)
        seen = set(self._results)
        self._results.append(result)
        shapes = [tensor.shape for tensor in reference.outputs]
        is_alike = bool(shapes) and [tensor.shape for tensor in outputs] == shapes
        if is_alike and result not in seen and len(seen) < _MAX_MEASURED:
            self._closeness = farther(self._closeness, closeness(outputs, reference.outputs))

    def result(self, op: _Contender) -> ContenderResult:
        """Sum up the trials."""
        if not self.problem and self._forms != op._forms:
            self.problem = f"gives {_forms_text(self._forms)} where the op gives {_forms_text(op._forms)}"
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
            problem=self.problem,
        )

    def _look_for_writes(self) -> None:
        """See whether the last call changed what it should not; from here on that is restored as well."""
        if not self._failed and (names := self._call.adopt_silent_writes()):
            self.problem = self.problem or f"changes {', '.join(names)}, which the op only reads"

    def _run_once(self, number: int | None = None) -> list[torch.Tensor] | None:
        """Restore and call, timed under a number if it has one; None when it fails, which ends its trials."""
        if self._failed:
            return None
        self._call.reset()
        self._wait()
        start = perf_counter()
        try:
            outputs = self._call.run()
            self._wait()
        except (CaptureError, RuntimeError) as error:
            self._failed, self.problem = True, _raised(error)
            return None
        if number is not None:
            self.times_ms[number] = 1e3 * (perf_counter() - start)
        return outputs

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _run(
    contenders: list[_Contender],
    reference: Reference,
    counts: tuple[int, int],
    progress: Callable[[int, int], object] | None,
) -> list[str]:
    """Make all rounds; give what the reader must know of them."""
    trials, warmup = counts
    made = 0
    try:
        for contender in contenders[1:]:
            contender.look()
        for contender in contenders:
            contender.warm_up(warmup)
        for made in range(trials):
            for contender in _in_turn(contenders, made):
                contender.trial(made, reference)
            if progress is not None:
                progress(made + 1, trials)
    except KeyboardInterrupt:
        return [f"stopped by the user in round {made + 1:,} of {trials:,}"]
    return []


def _in_turn(contenders: list[_Contender], number: int) -> Iterator[_Contender]:
    """Begin each round with another one, and every second time go backwards."""
    first = (number // 2) % len(contenders)
    order = contenders[first:] + contenders[:first]
    yield from reversed(order) if number % 2 else order


def _paired(mine: Mapping[int, float], ops: Mapping[int, float]) -> PairedTime | None:
    ratios = [mine[number] / ops[number] for number in mine.keys() & ops.keys()]
    if not ratios:
        return None
    return PairedTime(median(mine.values()), median(ratios), order_statistics_95(ratios))


def _named(against: Func | Sequence[Func] | Mapping[str, Func], op: str) -> dict[str, Func]:
    """Give every alternative a name of its own."""
    if isinstance(against, Mapping):
        named = [(str(name), func) for name, func in against.items()]
    else:
        funcs = [against] if callable(against) else list(against)
        named = [(getattr(func, "__name__", type(func).__name__), func) for func in funcs]
    found = dict(named)
    if not found or len(found) < len(named) or op in found or not all(map(callable, found.values())):
        raise InputError(
            f"the alternatives {[name for name, _ in named]} are not callables of different names.",
            'give a mapping: against={"sorted": func_a, "tree": func_b}',
        )
    return found


def _form(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _forms_text(forms: Sequence[tuple[torch.dtype, torch.Size]]) -> str:
    texts = [f"{str(dtype).removeprefix('torch.')}{list(shape)}" for dtype, shape in forms]
    return ", ".join(texts) or "nothing"


def _raised(error: Exception) -> str:
    """Name an error by its kind and its first line."""
    cause = error.__cause__ or error
    return f"raised {type(cause).__name__}: {str(cause).partition(chr(10))[0]}"

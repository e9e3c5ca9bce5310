"""Set callables beside a captured op: how repeatable, how exact and how fast is each, from one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from detlab.captures import Capture
from detlab.errors import CaptureError, InputError
from detlab.kernel.alone import alone
from detlab.kernel.alternatives.contender import Contender
from detlab.kernel.alternatives.reference import Reference, float64_reference
from detlab.kernel.alternatives.report import AlternativesReport
from detlab.kernel.conditions import condition_for
from detlab.kernel.ops import find_op

Func = Callable[..., Any]


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
        No trial, no alternative, two alternatives of one name, or a replay runs in this process.
    """
    if trials < 1 or warmup < 0:
        raise InputError(f"{trials} trials after {warmup} calls show nothing.", "say trials=1 or more")
    func = call or find_op(capture, allow)
    condition = condition_for(capture, threads=threads, deterministic=deterministic, device=device)
    given = _named(against, capture.op)
    with alone(), condition.applied():
        contenders = [Contender(capture, name, each, condition.device) for name, each in given.items()]
        op = Contender(capture, capture.op, func, condition.device)
        op.look()
        if op.failed:
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


def _run(
    contenders: list[Contender],
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


def _in_turn(contenders: list[Contender], number: int) -> Iterator[Contender]:
    """Begin each round with another one, and every second time go backwards."""
    first = (number // 2) % len(contenders)
    order = contenders[first:] + contenders[:first]
    yield from reversed(order) if number % 2 else order


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

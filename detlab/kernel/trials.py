"""Make a captured call again and again from the same bits, and report what it gave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import torch

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel.conditions import Change, Condition, changes_since_training, condition_for
from detlab.kernel.differences import OutputResult, OutputWatch
from detlab.kernel.ops import find_op, gives_fresh_memory
from detlab.kernel.power import adds_up, what_hides_a_race
from detlab.kernel.report import ReplayClass, ReplayReport
from detlab.kernel.restore import RestoredCall
from detlab.kernel.statistics import summarize


def replay(
    capture: Capture,
    *,
    trials: int = 60,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
    allow: Collection[str] = (),
    progress: Callable[[int, int], object] | None = None,
) -> ReplayReport:
    """Make a captured call many times under one condition and count the different results.

    Every trial starts from the captured bytes of every argument and the captured state of every generator.
    All outputs and all mutated arguments are hashed. Under the conditions of training, the result that was
    recorded there counts as one more; under others it proves nothing either way. Stopping it
    (KeyboardInterrupt) keeps the trials so far.

    Parameters
    ----------
    trials
        How often the call is made, 1 or more.
    threads, deterministic
        Number of CPU threads, and ``torch.use_deterministic_algorithms``; None: as in training. Both are put
        back afterwards, also after an error.
    device
        Where to run, when it cannot or shall not be the device of the capture.
    allow
        Namespaces of ops, beside torch's own, that may run.
    progress
        Called after every trial with the number of trials made and asked for.

    Raises
    ------
    CaptureError
        The call must not, or cannot, be made here; or its inputs do not hash to the captured digests.
    InputError
        Fewer than one trial or thread.
    """
    if trials < 1:
        raise InputError(f"{trials} trials show nothing.", "say trials=1 or more")
    func = find_op(capture, allow)
    condition = condition_for(capture, threads=threads, deterministic=deterministic, device=device)
    with condition.applied():
        call = RestoredCall(capture, func, condition.device)
        made = _Trials(call)
        try:
            while len(made.results) < trials:
                made.make_one()
                if progress is not None:
                    progress(len(made.results), trials)
        except KeyboardInterrupt:
            made.problems.append(f"stopped by the user after {len(made.results)} of {trials} trials")
        return _report(capture, condition, call, made)


class _Trials:
    """The trials so far: the digests of every result, and each output measured against its first."""

    def __init__(self, call: RestoredCall) -> None:
        self.results: list[tuple[int, ...]] = []
        self.problems: list[str] = []
        self._call = call
        self._watches: list[OutputWatch] = []

    def make_one(self) -> None:
        """Make one trial; a result that was seen before is only counted."""
        outputs = self._run()
        if not self._watches:
            if names := self._call.adopt_silent_writes():
                self.problems.append(
                    f"the call changes {', '.join(names)} though its schema says that it only reads"
                )
                outputs = self._run()
            self._watches = [OutputWatch(output) for output in outputs]
        self.results.append(tuple(w.add(output) for w, output in zip(self._watches, outputs, strict=True)))

    def outputs(self) -> tuple[OutputResult, ...]:
        """Sum up each output."""
        return tuple(watch.result(index) for index, watch in enumerate(self._watches))

    def _run(self) -> list[torch.Tensor]:
        self._call.reset()
        return self._call.run()


def _report(capture: Capture, condition: Condition, call: RestoredCall, made: _Trials) -> ReplayReport:
    changes = changes_since_training(capture, condition)
    problems = [change.note for change in changes if change.note] + made.problems
    if changed := call.adopt_silent_writes():
        problems.append(f"a trial changed {', '.join(changed)}, so that the next one began from other bits")
    num_traced = len(capture.output_digests)
    seen = {result[:num_traced] for result in made.results}
    is_seen = capture.output_digests in seen if num_traced and seen else None
    disagrees = is_seen is False and not changes
    outcome = ReplayClass.INVALID if changed else _classify(capture, made.results, disagrees)
    if outcome is ReplayClass.NOT_SEEN:
        call.reset()  # look at the inputs, not at what the last trial left
        problems += what_hides_a_race(capture, call, len(made.results))
    return ReplayReport(
        op=capture.op,
        site=capture.site,
        outcome=outcome,
        conditions=(summarize(condition.name, made.results),) if made.results else (),
        outputs=made.outputs(),
        traced_output_seen=is_seen,
        other_conditions=_conditions_text(capture, changes),
        problems=tuple(problems),
    )


_MAX_NAMES: Final = 3


def _conditions_text(capture: Capture, changes: Sequence[Change]) -> str:
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


def _classify(capture: Capture, results: list[tuple[int, ...]], disagrees: bool) -> ReplayClass:
    """Name what was seen; a result that training recorded under the same conditions is one more of them."""
    if not results:
        return ReplayClass.INVALID
    if len(set(results)) == 1 and not disagrees:
        return ReplayClass.NOT_SEEN
    return ReplayClass.UNINITIALISED if gives_fresh_memory(capture.op) else ReplayClass.RACE

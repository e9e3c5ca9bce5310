"""Make a captured call again and again from the same bits, and keep what it gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

import torch

from detlab.captures import Capture
from detlab.errors import CaptureError
from detlab.kernel.conditions import Condition
from detlab.kernel.differences import OutputResult, OutputWatch
from detlab.kernel.differences.bits import count_nan
from detlab.kernel.perturb.load import competing_load
from detlab.kernel.perturb.memory import MemoryOf, call_with_offset, can_poison
from detlab.kernel.perturb.settings import Settings, place_of, settings_for
from detlab.kernel.power import what_hides_a_race
from detlab.kernel.restore import RestoredCall
from detlab.kernel.verdict.training import change_of_function, changes_since_training
from detlab.kernel.worker.firsts import kept_firsts
from detlab.kernel.worker.protocol import Made, Place, Result

_MAX_NAN_COUNTS: Final = 16
"""In how many different results NaNs are counted; enough to tell what fills memory from what races."""


def make_trials(  # noqa: PLR0913 - what is made, and whom it is told
    capture: Capture,
    func: Callable[..., Any],
    condition: Condition,
    trials: int,
    on_result: Callable[[Result], object] | None = None,
    *,
    keeps_first: bool = False,
    cancel: Event | None = None,
    on_begin: Callable[[Made], object] | None = None,
) -> Made:
    """Make the trials of one condition in this process.

    Everything that is set is put back, also after an error. Stopping it (KeyboardInterrupt, or `cancel` once
    it is set) keeps the trials so far, and says so in ``problems``; so does an error after the first trial.

    Parameters
    ----------
    on_result
        Called after every trial with its result.
    keeps_first
        Whether the first result is given back as well, to be measured against that of another condition.
    on_begin
        Called before the first trial with what is known of the condition by then.

    Raises
    ------
    CaptureError
        The condition cannot be had here, the inputs do not restore, or the first call raised an error.
    """
    settings = settings_for(capture, condition)
    if condition.poison is not None and not can_poison(settings.device):
        raise CaptureError("This C library cannot fill the memory that it hands out.", "leave the poison out")
    with settings.applied(), _load(condition, settings) as before_trial:
        call = call_with_offset(condition.offset_bytes)(capture, func, settings.device)
        made = Trials(call, MemoryOf(condition, capture, call, settings.device), before_trial)
        made.keeps_first = keeps_first
        found = _begun(capture, func, condition, settings)
        if on_begin is not None:
            on_begin(found)
        made.make(trials, on_result, cancel)
        _sum_up(found, capture, call, made)
        return found


class Trials:
    """The trials so far: the digests of every result, and each output measured against its first."""

    def __init__(
        self, call: RestoredCall, memory: MemoryOf | None = None, before: Callable[[], object] = lambda: None
    ) -> None:
        self.results: list[Result] = []
        self.problems: list[str] = []
        self.nans: dict[Result, int] = {}
        self.error = ""
        self.keeps_first = False
        self.firsts: list[torch.Tensor] = []
        self._call, self._memory, self._before = call, memory, before
        self._watches: list[OutputWatch] = []

    def make(
        self,
        trials: int,
        on_result: Callable[[Result], object] | None = None,
        cancel: Event | None = None,
    ) -> None:
        """Make so many trials, or fewer when the user or an error stops it."""
        try:
            while len(self.results) < trials:
                if cancel is not None and cancel.is_set():
                    raise KeyboardInterrupt  # it is the same wish
                self.make_one()
                if on_result is not None:
                    on_result(self.results[-1])
        except KeyboardInterrupt:
            self.problems.append(f"stopped by the user after {len(self.results)} of {trials} trials")
        except CaptureError as error:
            if not self.results:
                raise
            self.error = str(error).partition("\n")[0]

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
            if self.keeps_first:
                self.firsts = kept_firsts(outputs)
        result = tuple(w.add(output) for w, output in zip(self._watches, outputs, strict=True))
        self.results.append(result)
        if result not in self.nans and len(self.nans) < _MAX_NAN_COUNTS:
            self.nans[result] = sum(map(count_nan, outputs))

    def outputs(self) -> list[OutputResult]:
        """Sum up each output."""
        return [watch.result(index) for index, watch in enumerate(self._watches)]

    def _run(self) -> list[torch.Tensor]:
        self._call.reset()
        if self._memory is None:
            return self._call.run()
        self._memory.prepare()
        self._before()
        with self._memory.during():
            outputs = self._call.run()
        self._memory.learn(outputs)
        return outputs


def _begun(capture: Capture, func: Callable[..., Any], condition: Condition, settings: Settings) -> Made:
    """Give what is known before the first trial: in what the conditions differ from training, and where."""
    return Made(
        name=condition.name or settings.name,
        changes=changes_since_training(capture, settings) + change_of_function(capture, func),
        place=Place(**place_of(settings.device)),
    )


def _sum_up(made: Made, capture: Capture, call: RestoredCall, trials: Trials) -> None:
    made.groups = [trials.results] if trials.results else []
    made.outputs, made.problems, made.firsts = trials.outputs(), trials.problems, trials.firsts
    made.least_nan = min(trials.nans.values(), default=0)
    made.most_nan = max(trials.nans.values(), default=0)
    if trials.error:
        made.status, made.note = "crashed", trials.error
    if changed := call.adopt_silent_writes():
        made.is_moved = True
        made.problems.append(
            f"a trial changed {', '.join(changed)}, so that the next one began from other bits"
        )
    if len(set(trials.results)) == 1:
        call.reset()  # look at the inputs, not at what the last trial left
        made.hides = what_hides_a_race(capture, call, len(trials.results))


@contextmanager
def _load(condition: Condition, settings: Settings) -> Iterator[Callable[[], object]]:
    if not condition.load:
        yield lambda: None
        return
    with competing_load(settings.device) as before_trial:
        yield before_trial

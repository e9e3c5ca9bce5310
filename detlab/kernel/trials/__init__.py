"""Make a captured call many times under one condition or several, and report what it gave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from detlab.captures import Capture
from detlab.errors import CaptureError, InputError
from detlab.kernel.alone import alone
from detlab.kernel.conditions import Condition, conditions_of
from detlab.kernel.isolated import run_isolated
from detlab.kernel.ops import find_op
from detlab.kernel.report import ReplayReport, Source
from detlab.kernel.report.build import build_report
from detlab.kernel.trials.elsewhere import run_elsewhere
from detlab.kernel.trials.in_process import make_trials
from detlab.kernel.trials.progress import Progress, ProgressCount
from detlab.kernel.worker.protocol import Made, Request


def replay(  # noqa: PLR0913 - each is a condition of the trials
    capture: Capture,
    *,
    trials: int = 60,
    conditions: str | Condition | Sequence[str | Condition] | Mapping[Any, int | None] | None = None,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
    isolate: bool = False,
    time_limit_s: float | None = None,
    executor: Executor | None = None,
    call: Callable[..., Any] | None = None,
    against: Any = (),
    allow: Collection[str] = (),
    progress: Callable[[Progress], object] | None = None,
    cancel: Event | None = None,
) -> ReplayReport:
    """Make a captured call many times under each condition and count the different results.

    Every trial starts from the captured bytes of every argument and the captured state of every generator.
    All outputs and all mutated arguments are hashed. Under the conditions of training, the result that was
    recorded there counts as one more; under others it proves nothing either way. Stopping it
    (KeyboardInterrupt, or `cancel` from another thread) keeps the trials so far. One replay runs at a time
    in a process, because what it sets is the same for all threads.

    Parameters
    ----------
    trials
        How often the call is made under each condition, 1 or more. With 20 or more under each, a choice of
        kernel can be told from a race.
    conditions
        None: one, as in training. Names such as ``"baseline"``, ``"fresh process"``, ``"1 thread"``,
        ``"competing load"``, ``"cold caches"``, ``"poisoned"``, ``"allocation offsets"``, ``"deterministic
        algorithms with memory fill"``, ``"library selection"``, ``"device cuda:1"``; `Condition` objects;
        ``"standard"``, a sensible list for the device; or a mapping from these to their own number of trials.
        "fresh process" makes four trials in each new process.
    threads, deterministic, device
        Number of CPU threads, ``torch.use_deterministic_algorithms``, and where to run, for every condition
        that does not say so itself; None: as in training. All are put back afterwards, also after an error.
    isolate
        Make the trials of every condition in a process of its own, so that a crash or a hang is a row of the
        report. Conditions that set the environment and "fresh process" are isolated always.
    time_limit_s
        Seconds for one condition with the start of its processes; given, every condition is isolated. None:
        600 for those that are.
    executor
        Where to run the conditions, one after the other: any `concurrent.futures.Executor`, such as that of a
        Dask cluster, whose workers see the capture's folder under the same path and have detlab. JSON goes
        there and comes back.
    call
        The captured function, where the capture is one of a Python function; of an op, a function to call in
        its place, whose results say nothing of the one that training recorded.
    against
        Alternatives that could stand in its place, see `detlab.kernel.alternatives.compare_alternatives`;
        determinism, closeness and time of each are in the report's ``alternatives``.
    allow
        Namespaces of ops, beside torch's own, that may run.
    progress
        Called before the first trial of every condition and after every trial with a
        `detlab.kernel.Progress`: the condition, trials made and asked for, different results so far.
    cancel
        Once it is set, no other trial begins, and a process that makes trials is ended at once; only a trial
        that runs in this process is waited for.

    Raises
    ------
    CaptureError
        The call must not, or cannot, be made here; or its inputs do not hash to the captured digests.
    InputError
        Fewer than one trial or thread, a condition that is none, or another replay runs in this process.
    """
    if trials < 1:
        raise InputError(f"{trials} trials show nothing.", "say trials=1 or more")
    func = call or find_op(capture, allow)
    base = Condition(name="", trials=trials, threads=threads, deterministic=deterministic, device=device)
    asked = [base] if conditions is None else conditions_of(conditions, device or capture.device)
    asked = [condition.on(base) for condition in asked]
    runner = _Runner(
        capture=capture,
        func=func,
        function=_importable(call),
        allow=tuple(sorted(allow)),
        isolate=isolate or time_limit_s is not None,
        time_limit_s=time_limit_s,
        executor=executor,
        is_alone=len(asked) == 1,
        progress=ProgressCount(progress, sum(condition.trials or 1 for condition in asked)),
        cancel=cancel,
    )
    with alone():
        report = build_report(capture, asked, runner.all(asked))
        report = replace(report, source=Source(capture, threads, deterministic))
        if against and not _is_set(cancel):
            from detlab.kernel.alternatives import compare_alternatives

            limits: Any = {"threads": threads, "deterministic": deterministic, "device": device}
            found = compare_alternatives(capture, against, trials=trials, call=call, allow=allow, **limits)
            report = replace(report, alternatives=found)
    return report


def _is_set(cancel: Event | None) -> bool:
    return cancel is not None and cancel.is_set()


@dataclass(frozen=True, slots=True)
class _Runner:
    """Makes the trials of conditions: in this process, in others, or through an executor."""

    capture: Capture
    func: Callable[..., Any]
    function: str | None
    allow: tuple[str, ...]
    isolate: bool
    time_limit_s: float | None
    executor: Executor | None
    is_alone: bool
    progress: ProgressCount
    cancel: Event | None

    def all(self, conditions: Sequence[Condition]) -> list[Made]:
        """Make the trials of every condition until the user stops it; one that cannot be had is a row."""
        found: list[Made] = []
        errors: list[Exception] = []
        for condition in conditions:
            try:
                if _is_set(self.cancel):
                    raise KeyboardInterrupt  # it is the same wish
                self.progress.begin(condition.name)
                found.append(self._one(condition))
            except CaptureError as error:
                errors.append(error)
                note = str(error).partition("\n")[0]
                found.append(Made(condition.name, status="refused", note=note))
            except Exception as error:  # such as no memory left, or a kernel that fails when it is waited for
                errors.append(error)
                note = f"{type(error).__name__}: {error}".partition("\n")[0]
                found.append(Made(condition.name, status="crashed", note=note))
            except KeyboardInterrupt:
                found.append(Made(condition.name, problems=["stopped by the user before the first trial"]))
            if _is_stopped(found[-1]):
                break
        if len(errors) == len(conditions):
            raise errors[0]
        return found

    def _one(self, condition: Condition) -> Made:
        trials = condition.trials or 1
        if self.executor is None and not (self.isolate or condition.needs_process):
            return make_trials(
                self.capture,
                self.func,
                condition,
                trials,
                self.progress.one,
                keeps_first=not self.is_alone,
                cancel=self.cancel,
            )
        if not self.capture.is_op and self.function is None:
            note = "the function given as call= has no module from which another process could import it"
            return Made(condition.name, status="refused", note=note)
        request = Request(self.capture.path.absolute(), condition, trials, self.allow)
        if self.executor is None:
            return run_isolated(
                request,
                time_limit_s=self.time_limit_s,
                function=self.function,
                on_result=self.progress.one if self.progress.callback else None,
                cancel=self.cancel,
            )
        return run_elsewhere(
            self.executor, request, self.isolate, self.time_limit_s, self.function, self.cancel
        )


def _is_stopped(made: Made) -> bool:
    return any(problem.startswith("stopped by the user") for problem in made.problems)


def _importable(call: Callable[..., Any] | None) -> str | None:
    """Name a function that the user gave, if another process can import the very same."""
    module, name = getattr(call, "__module__", None), getattr(call, "__qualname__", None)
    if not module or not name or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is call else None

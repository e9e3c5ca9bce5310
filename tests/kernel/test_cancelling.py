"""Stopping a replay from another thread: what was made is kept, what was set is put back, nothing goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel import Condition, Progress, ReplayClass, ReplayReport, replay
from detlab.kernel import capture as capture_call
from detlab.kernel.alternatives import compare_alternatives
from detlab.kernel.perturb.settings import current_settings
from detlab.kernel.worker.__main__ import main
from detlab.kernel.worker.protocol import Request
from tests.kernel import misbehaving
from tests.kernel.processes import workers

aten = torch.ops.aten
Captured = Callable[..., Capture]
MANY = 10_000_000
SOON_S = 20.0
"""Far longer than any end takes, far shorter than the trials that were asked for."""

OTHERWISE = Condition(name="otherwise", threads=3, deterministic=True, fill_memory=False, mkldnn=False)


class Running:
    """A replay in a thread, with what it told so far."""

    def __init__(self, capture: Capture, **options: Any) -> None:
        self.cancel, self.told, self.begun = threading.Event(), [], threading.Event()
        self.report: ReplayReport | None = None
        self._work = lambda: replay(capture, progress=self._hear, cancel=self.cancel, **options)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _hear(self, progress: Progress) -> None:
        self.told.append(progress)
        if progress.made >= 3:
            self.begun.set()

    def _run(self) -> None:
        self.report = self._work()

    def end(self) -> ReplayReport:
        self.cancel.set()
        self.thread.join(SOON_S)
        assert not self.thread.is_alive()
        assert self.report is not None
        return self.report


@contextmanager
def running(capture: Capture, **options: Any) -> Iterator[Running]:
    found = Running(capture, **options)
    try:
        yield found
    finally:
        found.cancel.set()
        found.thread.join()


def wait_for_a_worker() -> None:
    until = time.monotonic() + SOON_S
    while not workers():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def negation(captured: Captured) -> Capture:
    return captured(aten.neg.default, torch.full((3,), 0.1))


def test_cancel_between_trials_keeps_those_made(negation: Capture) -> None:
    with running(negation, trials=MANY) as found:
        assert found.begun.wait(SOON_S)
        report = found.end()
    assert 3 <= report.conditions[0].trials < MANY
    assert report.problems[0].startswith("stopped by the user after")
    assert report.outcome is ReplayClass.NOT_SEEN


def test_cancel_puts_back_what_was_set(negation: Capture) -> None:
    before, seed = current_settings(), torch.initial_seed()
    inside: list[object] = []

    def replayed() -> None:
        inside.append(current_settings())
        cancel = threading.Event()

        def stop(progress: Progress) -> None:
            if progress.made:
                inside.append(current_settings())
                cancel.set()

        replay(negation, trials=MANY, conditions=OTHERWISE, progress=stop, cancel=cancel)
        inside.append(current_settings())

    thread = threading.Thread(target=replayed)
    thread.start()
    thread.join()
    there, while_made, after = inside
    assert while_made != there
    assert after == there
    assert (current_settings(), torch.initial_seed()) == (before, seed)


def test_cancel_keeps_the_conditions_so_far(negation: Capture) -> None:
    cancel = threading.Event()

    def stop(progress: Progress) -> None:
        if progress.condition == "1 thread" and progress.trials == 2:
            cancel.set()

    asked = ["baseline", "1 thread", "poisoned"]
    report = replay(negation, trials=5, conditions=asked, progress=stop, cancel=cancel)
    assert [(row.name, row.trials) for row in report.conditions] == [("baseline", 5), ("1 thread", 2)]


def test_cancel_before_the_first_trial_proves_nothing(negation: Capture) -> None:
    cancel = threading.Event()
    cancel.set()
    report = replay(negation, conditions=["baseline", "1 thread"], cancel=cancel)
    assert (report.outcome, report.conditions) == (ReplayClass.INVALID, ())
    assert report.problems == ("stopped by the user before the first trial",)


def test_cancel_ends_a_process_and_keeps_its_trials(negation: Capture) -> None:
    with running(negation, trials=MANY, isolate=True) as found:
        assert found.begun.wait(60)
        assert len(workers()) == 1
        report = found.end()
    assert workers() == set()
    assert 3 <= report.conditions[0].trials < MANY


def test_cancel_ends_a_process_that_is_starting(negation: Capture) -> None:
    with running(negation, trials=MANY, isolate=True) as found:
        wait_for_a_worker()
        report = found.end()
    assert workers() == set()
    assert (report.outcome, report.conditions) == (ReplayClass.INVALID, ())


def test_cancel_ends_a_trial_that_never_ends_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = misbehaving.hangs_after_three_calls
    capture = capture_call(func, torch.ones(3), path=tmp_path / "call")
    monkeypatch.setenv(misbehaving.SWITCH, "1")
    with running(capture, call=func, isolate=True) as found:
        assert found.begun.wait(60)
        report = found.end()
    assert workers() == set()
    assert report.conditions[0].trials == 3


def test_cancel_ends_every_new_process(negation: Capture) -> None:
    with running(negation, trials=MANY, conditions="fresh process") as found:
        assert found.begun.wait(60)
        report = found.end()
    assert workers() == set()
    assert report.conditions[0].trials >= 3


def test_executor_is_no_longer_waited_for(negation: Capture) -> None:
    cancel, release = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait)
        threading.Timer(0.2, cancel.set).start()
        report = replay(negation, executor=pool, cancel=cancel)
        release.set()
    assert report.problems == ("stopped by the user before the executor answered",)


def test_two_replays_never_run_at_once_in_a_process(negation: Capture) -> None:
    with running(negation, trials=MANY) as found:
        assert found.begun.wait(SOON_S)
        with pytest.raises(InputError, match="another replay is running in this process"):
            replay(negation, trials=1)
        with pytest.raises(InputError, match="another replay is running in this process"):
            compare_alternatives(negation, torch.neg, trials=1)
        found.end()
    assert replay(negation, trials=1).conditions[0].trials == 1


@pytest.mark.parametrize("isolate", [False, True])
def test_progress_tells_the_different_results_as_they_come(racing: Capture, isolate: bool) -> None:
    told: list[Progress] = []
    report = replay(racing, trials=20, conditions=["4 threads"], isolate=isolate, progress=told.append)
    assert [progress.trials for progress in told] == list(range(21))
    assert told[0] == Progress("4 threads", 0, 0, 0, 20)
    assert told[-1].distinct == report.conditions[0].distinct > 1
    assert [p.distinct for p in told] == sorted(p.distinct for p in told)


def test_progress_counts_every_condition_anew(negation: Capture) -> None:
    told: list[Progress] = []
    replay(negation, trials=2, conditions=["baseline", "1 thread"], progress=told.append)
    assert told[3:] == [
        Progress("1 thread", 0, 0, 2, 4),
        Progress("1 thread", 1, 1, 3, 4),
        Progress("1 thread", 2, 1, 4, 4),
    ]


def test_ended_process_has_said_in_what_it_differs_from_training(negation: Capture, tmp_path: Path) -> None:
    content: Any = json.loads((negation.path / "capture.json").read_text("utf-8"))
    content["state"]["threads"], content["digests"]["outputs"] = 2, ["0" * 16]
    folder = tmp_path / "call"
    folder.mkdir()
    for blob in negation.path.glob("*.bin"):
        (folder / blob.name).write_bytes(blob.read_bytes())
    (folder / "capture.json").write_text(json.dumps(content), "utf-8")
    other = Capture.from_json(content, folder)
    with running(other, trials=MANY, conditions=["1 thread"], isolate=True) as found:
        assert found.begun.wait(60)
        report = found.end()
    assert report.traced_output_seen is False
    assert report.other_conditions == "recorded with 2 threads, replayed with 1"
    assert report.outcome is ReplayClass.NOT_SEEN


def test_worker_stops_when_nobody_is_left_to_read_it(
    negation: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(negation.path, Condition(name="baseline"), 1000)
    (tmp_path / "request.json").write_text(json.dumps(request.to_json()), "utf-8")
    parents = chain([42, 42, 42], repeat(1))
    monkeypatch.setattr("os.getppid", lambda: next(parents))
    assert main([str(tmp_path / "request.json"), str(tmp_path)]) == 0
    assert len((tmp_path / "trials.jsonl").read_text("utf-8").splitlines()) == 3

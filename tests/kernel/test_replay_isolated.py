"""Conditions in processes of their own: what a call does to its process is a row of the report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel import Condition, Progress, ReplayClass, replay
from detlab.kernel import capture as capture_call
from detlab.kernel.isolated import run_isolated
from detlab.kernel.worker.__main__ import main, run_request
from detlab.kernel.worker.protocol import Request, made_from_json, request_from_json
from tests.kernel import misbehaving

aten = torch.ops.aten
Captured = Callable[..., Capture]


@pytest.fixture
def negation(captured: Captured) -> Capture:
    return captured(aten.neg.default, torch.full((3,), 0.1))


@pytest.fixture
def misbehaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Give a function that captures a call while it behaves and replays it when it does not."""

    def replayed(func: Callable[..., torch.Tensor], **options: Any) -> Any:
        capture = capture_call(func, torch.full((3,), 0.1), path=tmp_path / "call")
        monkeypatch.setenv(misbehaving.SWITCH, "1")
        return replay(capture, call=func, **{"trials": 4, "isolate": True, **options})

    return replayed


def test_call_that_is_killed_is_a_row(misbehaves: Callable[..., Any]) -> None:
    report = misbehaves(misbehaving.is_killed)
    (row,) = report.conditions
    assert (row.status, row.trials) == ("crashed", 0)
    assert row.note.startswith("ended by SIGSEGV")
    assert (report.outcome, report.exit_code) == (ReplayClass.INVALID, 2)


def test_trials_before_a_crash_count(misbehaves: Callable[..., Any]) -> None:
    (row,) = misbehaves(misbehaving.is_killed_at_its_third_call).conditions
    assert (row.status, row.trials, row.distinct) == ("crashed", 2, 1)


def test_call_that_hangs_is_ended_at_the_limit(misbehaves: Callable[..., Any]) -> None:
    began = time.monotonic()
    (row,) = misbehaves(misbehaving.hangs, time_limit_s=8.0).conditions
    assert (row.status, row.trials) == ("timed out", 0)
    assert time.monotonic() - began < 60


def test_call_that_raises_is_a_row_with_its_error(misbehaves: Callable[..., Any]) -> None:
    (row,) = misbehaves(misbehaving.raises).conditions
    assert row.status == "refused"
    assert "raised RuntimeError: no kernel image is available" in row.note


def test_other_conditions_go_on_after_a_crash(negation: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Condition(name="broken", env=(("OMP_NUM_THREADS", "1"),))
    monkeypatch.setattr(
        "detlab.kernel.isolated._environment", lambda _: {"PATH": os.environ["PATH"], "PYTHONHOME": "."}
    )
    report = replay(negation, trials=2, conditions=["baseline", broken, "1 thread"])
    assert [row.status for row in report.conditions] == ["done", "crashed", "done"]
    assert report.outcome is ReplayClass.NOT_SEEN
    assert "broken" in repr(report)


def test_environment_is_set_in_the_new_process_and_not_here(negation: Capture) -> None:
    condition = Condition(name="bound", env=(("OMP_PROC_BIND", "true"),))
    report = replay(negation, trials=2, conditions=[condition])
    assert report.conditions[0].trials == 2
    assert "OMP_PROC_BIND was absent in training and is true here" in report.problems
    assert "OMP_PROC_BIND" not in os.environ


def test_fresh_processes_give_the_result_of_training(negation: Capture) -> None:
    report = replay(negation, trials=6, conditions="fresh process")
    assert report.conditions[0].note == "in 2 new processes, 4 trials each"
    assert report.conditions[0].trials == 6
    assert report.traced_output_seen is True


def test_function_without_a_module_cannot_go_to_another_process(tmp_path: Path) -> None:
    def local(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5

    capture = capture_call(local, torch.ones(3), path=tmp_path / "call")
    (row,) = replay(capture, call=local, trials=2, isolate=True).conditions
    assert row.status == "refused"
    assert "no module" in row.note


def test_stop_ends_the_process_and_keeps_its_trials(negation: Capture) -> None:
    def stop(progress: Progress) -> None:
        if progress.made == 3:
            raise KeyboardInterrupt

    report = replay(negation, trials=1_000_000, isolate=True, progress=stop)
    assert 3 <= report.conditions[0].trials < 1_000_000
    assert "stopped by the user" in report.problems[0]


def asked(negation: Capture, /, **changes: Any) -> dict[str, Any]:
    request = Request(negation.path, Condition(name="baseline"), 2)
    return {**request.to_json(), **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "detlab.replay-request/9"},
        {"call": "os:system"},
        {"allow": ["os.system"]},
        {"allow": "aten"},
        {"trials": 0},
        {"trials": True},
        {"trials": 10**12},
        {"capture": None},
        {"condition": {"name": "x", "env": [["LD_PRELOAD", "evil.so"]]}},
        {"condition": {"name": "x", "import": "os"}},
    ],
    ids=str,
)
def test_hostile_request_is_refused(negation: Capture, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        request_from_json(asked(negation, **changes))


def test_worker_refuses_a_hostile_file_with_a_sentence(
    negation: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(asked(negation, call="os:system")), "utf-8")
    assert main([str(file), str(tmp_path)]) == 2
    assert "a request is" in capsys.readouterr().err
    assert not (tmp_path / "result.json").exists()


def test_worker_runs_no_op_that_the_user_did_not_allow(negation: Capture, tmp_path: Path) -> None:
    content: Any = negation.to_json()
    folder = tmp_path / "foreign"
    folder.mkdir()
    for blob in negation.path.glob("*.bin"):
        (folder / blob.name).write_bytes(blob.read_bytes())
    (folder / "capture.json").write_text(json.dumps(content | {"op": "os.system.default"}), "utf-8")
    made = run_isolated(Request(folder, Condition(name="baseline"), 2))
    assert made.status == "refused"
    assert "not one of torch's own ops" in made.note


def test_result_of_a_worker_survives_json(negation: Capture) -> None:
    text = run_request(json.dumps(asked(negation)), isolate=False)
    made = made_from_json(json.loads(text))
    assert made.groups == [[negation.output_digests] * 2]
    assert json.dumps(made.to_json()) == text


@pytest.mark.parametrize(
    "change", [{"digests": ["xyz"]}, {"groups": [[[9]]]}, {"status": "green"}, {"more": 1}]
)
def test_damaged_result_of_a_worker_is_refused(negation: Capture, change: dict[str, Any]) -> None:
    body = json.loads(run_request(json.dumps(asked(negation)), isolate=False))
    with pytest.raises(InputError):
        made_from_json(body | change)


def test_executor_makes_the_trials_elsewhere(negation: Capture) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        report = replay(negation, trials=3, conditions=["baseline", "1 thread"], executor=pool)
    assert [row.trials for row in report.conditions] == [3, 3]
    assert report.traced_output_seen is True
    assert report.place is not None


def test_worker_that_is_lost_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = capture_call(misbehaving.is_killed, torch.ones(3), path=tmp_path / "call")
    monkeypatch.setenv(misbehaving.SWITCH, "1")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        report = replay(capture, call=misbehaving.is_killed, trials=2, executor=pool)
    (row,) = report.conditions
    assert row.status == "crashed"
    assert "worker was lost" in row.note


def test_executor_isolates_when_asked(negation: Capture) -> None:
    with ThreadPoolExecutor(1) as pool:
        report = replay(negation, trials=2, isolate=True, executor=pool)
    assert report.conditions[0].note == "in 1 new process"

"""The replay panel: real kernels, replayed in a thread, seen by its traits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import detlab as dl
from detlab.captures import load_capture, save_capture
from detlab.kernel.perturb.settings import current_settings
from detlab.widgets.replay_panel import ReplayPanel
from detlab.widgets.selection import Selection, find_call
from tests.kernel.processes import workers

SOON_S = 60.0
MANY = 1_000_000
RACE = dl.samples.sample_path("race")
aten = torch.ops.aten


@pytest.fixture(scope="module")
def cmp() -> Any:
    return dl.compare(RACE / "a", RACE / "b")


@pytest.fixture
def negation(tmp_path: Path) -> Path:
    """Give the folder of a captured call that takes no time."""
    return captured(tmp_path / "negation", aten.neg.default, torch.full((3,), 0.1))


def captured(folder: Path, func: Any, *args: Any, site: str = "1/0/backward//x#0") -> Path:
    pending = save_capture(folder, func, args, {}, site=site, rank=0)
    pending.complete([func(*args)])
    return folder


@pytest.fixture
def opened() -> Iterator[Callable[..., ReplayPanel]]:
    """Give a function that makes a panel, and close what it made."""
    made: list[ReplayPanel] = []

    def open_panel(*args: Any, **options: Any) -> ReplayPanel:
        made.append(ReplayPanel(*args, **options))
        return made[-1]

    yield open_panel
    for panel in made:
        panel.close()


def choose(panel: ReplayPanel, *conditions: str, trials: int = MANY, isolate: bool = False) -> ReplayPanel:
    panel.controls.trials.value, panel.controls.isolate.value = trials, isolate
    for box in panel.controls.conditions.children:
        box.value = box.description in (conditions or ("baseline",))
    return panel


def wait_for(is_so: Callable[[], Any]) -> None:
    until = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


def made(panel: ReplayPanel) -> int:
    run = panel._run
    return run.progress.made if run is not None and run.progress is not None else 0


def status(panel: ReplayPanel) -> str:
    return str(panel._status.value)


def test_race_of_the_sample_is_seen_with_its_words_and_its_table(cmp: Any, opened: Any) -> None:
    panel = choose(opened(cmp), "1 thread", "4 threads", trials=20)
    for _ in range(5):  # a race is repeated until it is seen
        panel.start()
        report = panel.wait(SOON_S)
        if report.num_distinct > 1:
            break
    shown = panel._result.value
    assert panel.state == "done"
    assert panel.report is report
    assert "<strong>RACE</strong> results of the same inputs differ in: 4 threads; one result" in shown
    assert re.search('<th scope="row"[^>]*>1 thread</th>', shown)
    assert "below 13.9 %" in shown
    assert "distance from the first result" in shown
    assert "dl.replay(dl.load_capture(" in shown


def test_figures_of_the_report_are_made_on_request(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), trials=3)
    assert panel.figures() == []
    panel.start()
    panel.wait(SOON_S)
    assert [fig.layout.title.text for fig in panel.figures()] == [
        "Replay of aten.neg.default",
        "How far results of aten.neg.default lie apart",
    ]


def test_nothing_seen_says_its_bound(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), trials=20)
    panel.start()
    panel.wait(SOON_S)
    assert (
        "<strong>NOT SEEN</strong> no mismatch in 20 trials in this process (baseline)" in panel._result.value
    )
    assert "a rate above 13.9 % is excluded at 95 %" in panel._result.value


def test_distinct_results_are_counted_while_they_come(cmp: Any, opened: Any) -> None:
    panel = choose(opened(cmp), "4 threads", trials=2_000)
    told = []
    panel._progress.observe(lambda _: told.append(time.monotonic()), "value")
    panel.start()
    wait_for(lambda: panel._run.progress is not None and panel._run.progress.distinct > 1)
    wait_for(lambda: "distinct results under 4 threads" in panel._progress.value)
    panel.cancel()
    panel.wait(SOON_S)
    assert len(told) <= (told[-1] - told[0]) / 0.09 + 3  # about ten a second, and what is told at the ends


def test_main_thread_answers_while_trials_are_made(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation))
    panel.start()
    wait_for(lambda: made(panel) > 3)
    before = made(panel)
    assert sum(range(1000)) == 499_500
    assert panel._run.work.is_alive
    wait_for(lambda: made(panel) > before)
    panel.cancel()


@pytest.mark.parametrize("isolate", [False, True])
def test_cancel_ends_the_work_and_keeps_the_trials(negation: Path, isolate: bool, opened: Any) -> None:
    panel = choose(opened(negation), isolate=isolate)
    panel.start()
    wait_for(lambda: made(panel) > 3)
    assert len(workers()) == isolate
    work = panel._run.work
    panel.cancel()
    wait_for(lambda: panel.state == "cancelled")
    work.join(SOON_S)
    assert not work.is_alive
    assert workers() == set()
    assert 3 < panel.report.conditions[0].trials < MANY
    assert "<p>Cancelled after " in status(panel)
    assert "what they gave stands below" in status(panel)


def test_cancel_while_a_process_starts_makes_no_trial(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), isolate=True)
    panel.start()
    wait_for(workers)
    panel.cancel()
    wait_for(lambda: panel.state == "cancelled")
    assert workers() == set()
    assert "Cancelled before the first trial." in status(panel)
    assert (panel.report, panel._result.value) == (None, "")


def test_cancel_while_the_capture_is_read_is_answered_at_once(
    negation: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> Any:
        reading.set()
        go_on.wait(SOON_S)
        return load_capture(path)

    monkeypatch.setattr("detlab.widgets.replay_panel.load_capture", slow)
    panel = choose(opened(negation))
    panel.start()
    assert reading.wait(SOON_S)
    work = panel._run.work
    panel.cancel()
    assert (panel.state, work.is_alive) == ("cancelled", True)
    go_on.set()
    work.join(SOON_S)
    assert (panel.state, panel.report, work.is_alive) == ("cancelled", None, False)


def test_running_trial_of_this_process_is_waited_for_and_said(tmp_path: Path, opened: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(x: torch.Tensor) -> torch.Tensor:
        begun.set()
        go_on.wait(SOON_S)
        return x * 0.5

    go_on.set()
    dl.capture(slow, torch.ones(3), path=tmp_path / "call")
    begun.clear()
    go_on.clear()
    panel = choose(opened(tmp_path / "call", call=slow))
    panel.start()
    assert begun.wait(SOON_S)
    panel.cancel()
    assert panel.state == "stopping"
    assert "Stopping after the running trial." in status(panel)
    go_on.set()
    wait_for(lambda: panel.state == "cancelled")


def test_settings_are_put_back_when_it_is_cancelled(negation: Path, opened: Any) -> None:
    torch.set_num_threads(torch.get_num_threads())
    before = current_settings()
    panel = choose(opened(negation), "deterministic algorithms with memory fill")
    panel.start()
    wait_for(lambda: made(panel) > 3)
    assert torch.are_deterministic_algorithms_enabled()
    work = panel._run.work
    panel.cancel()
    work.join(SOON_S)
    assert current_settings() == before


def test_number_of_threads_of_the_kernel_is_not_that_of_the_trials(negation: Path) -> None:
    code = (
        "import sys, time, torch; from detlab.widgets.replay_panel import ReplayPanel\n"
        "panel = ReplayPanel(sys.argv[1]); panel.controls.isolate.value = False\n"
        "for box in panel.controls.conditions.children: box.value = box.description == '4 threads'\n"
        "panel.controls.trials.value = 1_000_000; panel.start()\n"
        "while not (panel._run.progress and panel._run.progress.made): time.sleep(0.01)\n"
        "print(torch.get_num_threads()); panel.cancel(); panel.wait(); print(torch.get_num_threads())\n"
    )
    command, env = [sys.executable, "-c", code, str(negation)], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=2 * SOON_S)
    assert done.stdout.split() == ["1", "1"]


def test_second_replay_is_refused_with_a_sentence_and_the_first_goes_on(negation: Path, opened: Any) -> None:
    first, second = choose(opened(negation)), choose(opened(negation))
    first.start()
    wait_for(lambda: first.state == "running" and "distinct" in first._progress.value)
    second.start()
    second.wait(SOON_S)
    assert second.state == "failed"
    assert "another replay is running in this process" in status(second)
    first.start()
    assert "This replay is still running" in status(first)
    assert first.state == "running"
    first.cancel()


def test_closing_the_panel_ends_its_process(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), isolate=True)
    panel.start()
    wait_for(workers)
    work = panel._run.work
    panel.close()
    work.join(SOON_S)
    assert workers() == set()


def test_end_of_python_leaves_no_process_behind(negation: Path) -> None:
    code = (
        "import sys, time; from detlab.widgets.replay_panel import ReplayPanel\n"
        "panel = ReplayPanel(sys.argv[1]); panel.controls.trials.value = 1_000_000; panel.start()\n"
        "while not (panel._run.progress and panel._run.progress.made): time.sleep(0.01)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(negation)], check=True, timeout=SOON_S)
    wait_for(lambda: not any_worker_of(negation))


def any_worker_of(capture: Path) -> bool:
    """Say whether a process anywhere makes trials of this very capture."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            asked = next((Path(word.decode()) for word in words if word.endswith(b"request.json")), None)
            if asked and str(capture) in asked.read_text("utf-8"):
                return True
        except OSError:
            continue
    return False


def test_no_torch_is_loaded_before_a_replay_starts() -> None:
    code = (
        "import sys, detlab as dl; from detlab.widgets.replay_panel import ReplayPanel\n"
        "panel = ReplayPanel(dl.samples.sample_path('race') / 'a'); panel.twin()\n"
        "print(len(panel.controls.conditions.children) > 5, 'torch' in sys.modules, 'plotly' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_without_a_capture_it_says_how_to_capture_the_selected_call(opened: Any) -> None:
    cmp = dl.compare(*(dl.load_run(dl.samples.sample_path("clean") / side) for side in "ab"))
    selection = Selection()
    panel = opened(cmp, selection)
    assert "There is no capture. To capture one, run it again with" in panel.controls.note.value
    assert not {panel.controls.trials, panel.controls.conditions, panel._start} & set(panel.children)
    selection.called = (0, 0)
    site = str(cmp.sites(step=cmp.steps[0], rank=0)["site"][0])
    assert f"capture=[&quot;{site}&quot;])" in panel.controls.note.value
    panel.start()
    assert (panel.state, "there is no capture to replay" in status(panel)) == ("idle", True)


def test_captures_of_the_selected_call_come_first(cmp: Any, tmp_path: Path, opened: Any) -> None:
    site = cmp.first_origin["site"][0]
    selection = Selection()
    folder = Path(shutil.copytree(RACE / "a", tmp_path / "a"))
    captured(folder / "captures" / "0-another", aten.neg.default, torch.ones(3))
    panel = opened(dl.compare(folder, RACE / "b"), selection)
    assert panel.controls.chosen.op == "aten.neg.default"
    selection.called = find_call(panel._cmp, 0, site)
    assert panel.controls.chosen.site == site
    assert panel.controls.capture.index == 0
    assert "1 of 2 captures is of the selected site." in panel.controls.note.value
    selection.called = (1, 0)
    assert "The selected call was not captured." in panel.controls.note.value
    assert panel.controls.chosen.site == site


def test_selection_that_moves_while_it_runs_is_followed_afterwards(cmp: Any, opened: Any) -> None:
    selection = Selection()
    panel = choose(opened(cmp, selection))
    panel.start()
    selection.called = (1, 0)
    assert panel.controls.note.value == ""
    panel.cancel()
    wait_for(lambda: panel.state == "cancelled")
    assert "The selected call was not captured." in panel.controls.note.value


def test_hostile_names_of_a_capture_stay_text(tmp_path: Path, opened: Any) -> None:
    site = '1/0/backward/<img src=x onerror="alert(1)">/x#0'
    folder = captured(tmp_path / "<script>alert(1)</script>", aten.neg.default, torch.ones(3), site=site)
    panel = choose(opened(folder), trials=2)
    panel.start()
    panel.wait(SOON_S)
    assert panel.state == "done"
    for shown in (panel._result.value, status(panel), panel.controls.note.value, panel.twin().html):
        assert "<img src=x" not in shown
        assert "<script" not in shown
    assert "&lt;img src=x" in panel.twin().html


def test_report_that_cannot_be_shown_is_a_sentence_and_the_panel_is_ready_again(
    negation: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(report: Any) -> str:
        raise ZeroDivisionError("in the table")

    monkeypatch.setattr("detlab.widgets.replay_panel._report_html", broken)
    panel = choose(opened(negation), trials=2)
    panel.start()
    panel.wait(SOON_S)
    assert (panel.state, panel._start.disabled) == ("failed", False)
    assert "It ended with ZeroDivisionError: in the table." in status(panel)


def test_damaged_capture_is_a_sentence(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), trials=2)
    for blob in negation.glob("*.bin"):
        blob.write_bytes(b"\xff" * blob.stat().st_size)
    panel.start()
    panel.wait(SOON_S)
    assert panel.state == "failed"
    assert "Traceback" not in status(panel)
    assert "Hint:" in status(panel)


def test_unreadable_captures_are_named_and_the_others_offered(
    negation: Path, tmp_path: Path, opened: Any
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "capture.json").write_text("{", "utf-8")
    panel = opened(tmp_path)
    assert [capture.op for _, capture in panel.controls.offer.captures] == ["aten.neg.default"]
    assert "Not offered: " in panel.controls.note.value


def test_no_condition_is_a_sentence(negation: Path, opened: Any) -> None:
    panel = opened(negation)
    for box in panel.controls.conditions.children:
        box.value = False
    panel.start()
    assert (panel.state, "no condition is chosen" in status(panel)) == ("idle", True)


def test_code_of_the_panel_makes_the_same_replay(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), "baseline", "1 thread", trials=3, isolate=False)
    names: dict[str, Any] = {"dl": dl}
    exec(panel.code, names)  # noqa: S102 - the panel's own line
    assert [(row.name, row.trials) for row in names["report"].conditions] == [
        ("baseline", 3),
        ("1 thread", 3),
    ]


def test_twin_holds_the_finished_report_and_its_numbers(negation: Path, opened: Any) -> None:
    panel = choose(opened(negation), trials=20)
    assert "dl.replay(" in panel.twin().html
    panel.start()
    panel.wait(SOON_S)
    data, _ = panel._repr_mimebundle_()
    assert "a rate above 13.9 % is excluded at 95 %" in data["text/html"]
    assert data["text/plain"] == repr(panel.report)
    assert "<script" not in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert json.dumps(data)

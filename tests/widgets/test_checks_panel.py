"""The checks panel: one planted drift is its only finding, and what cannot be checked is a sentence."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import detlab as dl
from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.errors import InputError
from detlab.schema import Coordinate, Kind, Phase
from detlab.testing import Call, make_run
from detlab.widgets.check_outcomes import CHECKS, Check, Outcome, outcome_of, outcomes_html
from detlab.widgets.checks_panel import ChecksPanel

SOON_S = 60.0
NAME = "layers.0.mlp.weight"
HOSTILE = '<img src=x onerror="alert(1)">'


def snapshot(name: str, word: str, step: int) -> Call:
    return Call("state", name, [], [word], step=step, phase=Phase.STATE, kind=Kind.STATE, microbatch=-1)


def replicas(*steps: str, name: str = NAME, label: str = "monday") -> Any:
    """A run of three data-parallel ranks that each show one parameter at every step: a letter for each."""
    calls = {rank: [snapshot(name, words[rank], n) for n, words in enumerate(steps, 1)] for rank in range(3)}
    places = {rank: Coordinate(dp=rank) for rank in calls}
    return make_run(calls, coordinates=places, layout={"dp": 3}, label=label)


def checked(panel: ChecksPanel, *names: str) -> ChecksPanel:
    """Make the checks of these names, or all of them, and wait."""
    for check, box in panel._boxes:
        box.value = not names or check.name in names
    panel.start()
    panel.wait(SOON_S)
    return panel


def wait_for(is_so: Callable[[], Any]) -> None:
    until = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_drift_of_one_rank_is_the_finding_and_names_it() -> None:
    panel = checked(ChecksPanel(replicas("www", "wwW")), "replicas")
    (outcome,) = panel.outcomes
    shown = panel._result.value
    assert (panel.state, outcome.check.name, outcome.found.verdict) == ("done", "replicas", "fail")
    assert outcome.found.findings["outliers"].to_list() == [[2]]
    assert "<strong>FAIL</strong>: 1 finding." in shown
    assert "rank 2 drifts from ranks 0-1" in shown
    assert "layers.*.mlp.weight" in shown
    assert "Looked at ranks 0-2, steps 1-2, 6 calls." in shown


def test_nothing_found_says_what_was_looked_at_and_no_more() -> None:
    panel = checked(ChecksPanel(replicas("www", "www")), "replicas")
    shown = panel._result.value
    assert "<strong>PASS</strong>: nothing found. Looked at ranks 0-2, steps 1-2, 6 calls." in shown
    assert "<p>Verified:</p>" in shown
    assert "replica of a parameter: 1 tensor on ranks 0-2 (data parallel) agree" in shown
    assert "<p>Not checked:</p>" in shown
    assert "results of collectives: the trace shows none" in shown


def test_what_cannot_be_checked_is_invalid_and_says_what_would_help() -> None:
    panel = checked(ChecksPanel(replicas("www")), "recompute")
    shown = panel._result.value
    assert "<strong>INVALID</strong>: it could not be decided." in shown
    assert shown.index("Problems:") < shown.index("Notes:")
    assert "monday makes no call of its forward again." in shown
    assert "record a run with activation recomputation, with inputs=True" in shown
    assert panel.state == "done"


def test_both_runs_of_a_comparison_are_checked() -> None:
    cmp = dl.compare(replicas("www", "www"), replicas("www", "wwW", label="tuesday"))
    panel = checked(ChecksPanel(cmp))
    assert [(each.run, each.check.name) for each in panel.outcomes] == [
        (run, check)
        for run in ("monday", "tuesday")
        for check in ("trace", "recipe", "replicas", "recompute")
    ]
    verdicts = [each.found.verdict for each in panel.outcomes if each.check.name == "replicas"]
    assert verdicts == ["pass", "fail"]
    panel._sides[0].value = False
    assert {each.run for each in checked(panel).outcomes} == {"tuesday"}


def test_run_is_read_from_its_path() -> None:
    panel = checked(ChecksPanel(dl.samples.sample_path("race") / "a"), "replicas")
    assert [outcome.found.verdict for outcome in panel.outcomes] == ["pass"]


def test_path_that_is_no_run_is_a_sentence() -> None:
    panel = checked(ChecksPanel("/nowhere/at/all"))
    assert panel.state == "failed"
    assert "/nowhere/at/all" in panel._status.value
    assert "Traceback" not in panel._status.value


def test_hostile_names_stay_text() -> None:
    panel = checked(ChecksPanel(replicas("www", "wwW", name=HOSTILE, label=HOSTILE)))
    for shown in (panel._result.value, panel._status.value, panel.twin().html):
        assert "<img" not in shown
    assert "&lt;img src=x" in panel._result.value


def test_error_of_a_check_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: Any) -> CheckResult:
        raise ZeroDivisionError("division by <b>zero</b>")

    monkeypatch.setattr(dl, "check_replicas", broken)
    panel = checked(ChecksPanel(replicas("www")), "replicas")
    assert "It ended with ZeroDivisionError: division by &lt;b&gt;zero&lt;/b&gt;." in panel._result.value


def test_cancel_stops_before_the_next_check_and_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    check = dl.check_replicas

    def slow(run: Any) -> CheckResult:
        begun.set()
        go_on.wait(SOON_S)
        return check(run)

    monkeypatch.setattr(dl, "check_replicas", slow)
    panel = ChecksPanel(replicas("www", "wwW"))
    for check_, box in panel._boxes:
        box.value = check_.name in ("replicas", "recompute")
    panel.start()
    assert begun.wait(SOON_S)
    panel.cancel()
    assert (panel.state, "Stopping after the running check." in panel._status.value) == ("stopping", True)
    panel.start()
    assert "still running" in panel._status.value
    go_on.set()
    wait_for(lambda: panel.state == "cancelled")
    assert [each.check.name for each in panel.outcomes] == ["replicas"]
    assert "Cancelled: 1 check made: 1 fail." in panel._status.value
    assert "<strong>FAIL</strong>: 1 finding." in panel._result.value


def test_nothing_chosen_is_a_sentence() -> None:
    panel = ChecksPanel(replicas("www"))
    for _, box in panel._boxes:
        box.value = False
    panel.start()
    assert (panel.state, "Nothing is chosen" in panel._status.value) == ("idle", True)


def test_one_more_check_is_one_more_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"code": f"TAX{n:03}", "severity": "warning", "found": f"thing {n}"} for n in range(60)]
    result = CheckResult("tax", ("monday",), findings_frame(rows), (Verified("step time", "measured"),))
    monkeypatch.setattr(dl, "check_tax", lambda run: result, raising=False)
    check = Check("tax", "check_tax", "What does it cost?")
    shown = outcomes_html([outcome_of(check, replicas("www"))])
    assert "<strong>PASS</strong>: 60 findings." in shown
    assert ("TAX049" in shown, "TAX050" in shown, "… and 10 more." in shown) == (True, False, True)


@pytest.mark.parametrize("part", ["verified", "not_checked", "problems", "notes", "findings"])
def test_every_part_of_a_result_is_shown_and_none_as_markup(part: str) -> None:
    made: dict[str, Any] = {
        "verified": (Verified("what", HOSTILE),),
        "not_checked": (NotChecked("what", HOSTILE),),
        "problems": (Problem("where", HOSTILE),),
        "notes": (HOSTILE,),
        "findings": findings_frame([{"component": HOSTILE, "severity": "error", "next": HOSTILE}]),
    }
    parts = {"findings": findings_frame([]), part: made[part]}
    shown = outcomes_html(
        [Outcome("monday", CHECKS[0], "a call", CheckResult("trace", ("monday",), **parts))]
    )
    assert "&lt;img src=x" in shown
    assert "<img" not in shown


def test_every_check_of_the_panel_is_public() -> None:
    assert all(callable(getattr(dl, check.function)) for check in CHECKS)


def test_the_status_says_how_the_checks_ended_and_the_worst_first() -> None:
    panel = checked(ChecksPanel(replicas("www", "wwW")), "replicas", "recompute")
    assert "Done: 2 checks made: 1 fail, 1 invalid." in panel._status.value


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(InputError, match="no runs to check"):
        ChecksPanel([3])


def test_twin_shows_what_was_found_and_before_that_what_can_be_asked() -> None:
    panel = ChecksPanel(replicas("www", "wwW"))
    assert "Do ranks that should hold the same tensor hold the same bits?" in panel.twin().html
    checked(panel, "replicas")
    data, _ = panel._repr_mimebundle_()
    assert "layers.*.mlp.weight" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data


def test_checks_load_no_torch() -> None:
    code = (
        "import sys, detlab as dl; from detlab.widgets.checks_panel import ChecksPanel\n"
        "panel = ChecksPanel(dl.samples.sample_path('race') / 'a'); panel.start(); panel.wait()\n"
        "print(len(panel.outcomes), 'torch' in sys.modules, 'plotly' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "False", "False"]


def test_the_panel_has_a_name_among_the_widgets() -> None:
    assert dl.widgets.checks is ChecksPanel

"""The checks panel: one planted drift is its only finding, and what cannot be checked is a sentence."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import detlab as dl
from detlab.errors import InputError
from detlab.schema import Coordinate, Kind, Phase
from detlab.testing import Call, make_run
from detlab.widgets.check_outcomes import CHECKS, Check, outcome_of, outcomes_html
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
    assert (panel.state, outcome.check.name, len(outcome.found)) == ("done", "replicas", 1)
    assert outcome.found["outliers"].to_list() == [[2]]
    assert "<strong>1 finding</strong>" in shown
    assert "layers.*.mlp.weight" in shown
    assert "Looked at ranks 0-2, steps 1-2, 6 calls." in shown


def test_nothing_found_says_what_was_looked_at_and_no_more() -> None:
    panel = checked(ChecksPanel(replicas("www", "www")), "replicas")
    shown = panel._result.value
    assert "<strong>Nothing found</strong>: nothing that is known to be a replica differs." in shown
    assert "Looked at ranks 0-2, steps 1-2, 6 calls." in shown


def test_what_cannot_be_checked_is_a_sentence_with_its_hint() -> None:
    panel = checked(ChecksPanel(replicas("www")), "recompute")
    shown = panel._result.value
    assert "<strong>Not possible</strong>: monday makes no call of its forward again." in shown
    assert "Hint: record a run with activation recomputation, with inputs=True" in shown
    assert panel.state == "done"


def test_both_runs_of_a_comparison_are_checked() -> None:
    cmp = dl.compare(replicas("www", "www"), replicas("www", "wwW", label="tuesday"))
    panel = checked(ChecksPanel(cmp))
    assert [(each.run, each.check.name) for each in panel.outcomes] == [
        ("monday", "replicas"),
        ("monday", "recompute"),
        ("tuesday", "replicas"),
        ("tuesday", "recompute"),
    ]
    assert [len(each.found) for each in panel.outcomes if each.check.name == "replicas"] == [0, 1]
    panel._sides[0].value = False
    assert {each.run for each in checked(panel).outcomes} == {"tuesday"}


def test_run_is_read_from_its_path() -> None:
    panel = checked(ChecksPanel(dl.samples.sample_path("race") / "a"), "replicas")
    assert [len(outcome.found) for outcome in panel.outcomes] == [0]


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
    def broken(run: Any) -> pl.DataFrame:
        raise ZeroDivisionError("division by <b>zero</b>")

    monkeypatch.setattr(dl, "check_replicas", broken)
    panel = checked(ChecksPanel(replicas("www")), "replicas")
    assert "It ended with ZeroDivisionError: division by &lt;b&gt;zero&lt;/b&gt;." in panel._result.value


def test_cancel_stops_before_the_next_check_and_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    check = dl.check_replicas

    def slow(run: Any) -> pl.DataFrame:
        begun.set()
        go_on.wait(SOON_S)
        return check(run)

    monkeypatch.setattr(dl, "check_replicas", slow)
    panel = ChecksPanel(replicas("www", "wwW"))
    panel.start()
    assert begun.wait(SOON_S)
    panel.cancel()
    assert (panel.state, "Stopping after the running check." in panel._status.value) == ("stopping", True)
    panel.start()
    assert "still running" in panel._status.value
    go_on.set()
    wait_for(lambda: panel.state == "cancelled")
    assert [each.check.name for each in panel.outcomes] == ["replicas"]
    assert "Cancelled: 1 check made." in panel._status.value
    assert "<strong>1 finding</strong>" in panel._result.value


def test_nothing_chosen_is_a_sentence() -> None:
    panel = ChecksPanel(replicas("www"))
    for _, box in panel._boxes:
        box.value = False
    panel.start()
    assert (panel.state, "Nothing is chosen" in panel._status.value) == ("idle", True)


def test_one_more_check_is_one_more_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pl.DataFrame({"what": ["a thing"] * 60, "ranks": [[0, 1]] * 60})
    monkeypatch.setattr(dl, "check_tax", lambda run: found, raising=False)
    check = Check("tax", "check_tax", "What does it cost?", "nothing", {"on": "ranks"}, {"thing": "what"})
    shown = outcomes_html([outcome_of(check, replicas("www"))])
    assert "<strong>60 findings</strong>" in shown
    assert "0-1" in shown
    assert "… and 10 more." in shown


def test_every_check_shows_columns_that_its_frame_has() -> None:
    columns = {
        "replicas": dl.check_replicas(replicas("www")).columns,
        "recompute": list(dl.comparison.within.RECOMPUTE_COLUMNS),
    }
    assert {check.name for check in CHECKS} == columns.keys()
    for check in CHECKS:
        assert {*check.columns.values(), *check.more.values()} <= set(columns[check.name])


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
    assert done.stdout.split() == ["2", "False", "False"]


def test_the_panel_has_a_name_among_the_widgets() -> None:
    assert dl.widgets.checks is ChecksPanel

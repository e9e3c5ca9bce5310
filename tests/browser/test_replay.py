"""The replay panel in JupyterLab: it runs, says how far it is, leaves the kernel free, stops when told."""

from __future__ import annotations

import pytest

from tests.browser.audit import faults, show, violations
from tests.browser.lab import LIMIT_MS, ask, set_theme

pytestmark = pytest.mark.browser

SOURCE = """
import detlab as dl
from tests.browser.stories import race
panel = dl.widgets.replay(race())
panel
"""
MOST = 1_000_000
TRIALS, START, CANCEL = (
    ".detlab-replay input[type=number] >> nth=0",
    ".detlab-replay-start",
    ".detlab-replay-cancel",
)


@pytest.fixture(scope="module")
def page(lab, open_page):
    """Display a panel of the captures of the shipped runs."""
    page = open_page().page
    lab.run(page, lab.write("replay.ipynb", SOURCE))
    return page


@pytest.fixture
def idle(page):
    """Have nothing replayed, whatever the test before left."""
    ask(page, "panel.cancel()")
    page.wait_for_selector(f"{START}:enabled", timeout=LIMIT_MS)
    return page


def start(page, trials):
    page.locator(TRIALS).fill(str(trials))
    page.locator(TRIALS).press("Tab")
    page.locator(START).click()


def says(page, words):
    page.wait_for_function(
        "words => document.querySelector('.detlab-replay').textContent.includes(words)",
        arg=words,
        timeout=LIMIT_MS,
    )


def running(page):
    """Start more trials than anybody waits for, and wait until some are made."""
    start(page, MOST)
    page.wait_for_selector(f"{CANCEL}:enabled", timeout=LIMIT_MS)
    page.wait_for_function(
        r"() => /[1-9][\d,]* of 1,000,000/.test("
        "document.querySelector('.detlab-replay-progress').textContent)",
        timeout=LIMIT_MS,
    )


def test_a_replay_says_what_it_saw_and_its_bound(idle):
    start(idle, 20)
    says(idle, "Done: 20 trials")
    told = idle.locator(".detlab-replay-result").inner_text()
    assert "NOT SEEN" in told.upper() or "RACE" in told.upper()
    assert ask(idle, "print(panel.report.conditions[0].trials)") == "20"


def test_the_kernel_answers_while_a_replay_runs_and_cancel_stops_it(idle):
    running(idle)
    assert ask(idle, "print(panel.state)") == "running"
    idle.locator(CANCEL).click()
    says(idle, "Cancelled after")
    assert 0 < int(ask(idle, "print(panel.report.conditions[0].trials)")) < MOST


def test_the_count_of_trials_and_of_results_goes_on_by_itself(idle):
    running(idle)
    progress = idle.locator(".detlab-replay-progress")
    before = progress.inner_text()
    idle.wait_for_function(
        "before => document.querySelector('.detlab-replay-progress').innerText !== before", arg=before
    )
    assert "distinct" in before or "different" in before
    idle.locator(CANCEL).click()
    says(idle, "Cancelled after")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_replay_panel(idle, theme):
    set_theme(idle, theme)
    assert violations(idle, ".detlab-replay") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 800])
def test_nothing_of_the_replay_panel_overlaps_is_cut_sticks_out_or_is_too_small(idle, width, theme):
    set_theme(idle, theme)
    idle.set_viewport_size({"width": width, "height": 900})
    show(idle, f"replay-{width}-{theme}")
    found = faults(idle, ".detlab-replay")
    idle.set_viewport_size({"width": 1200, "height": 900})
    assert found == {}

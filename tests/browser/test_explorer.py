"""The explorer in JupyterLab: what is selected in one panel is selected in all of them."""

from __future__ import annotations

import json
import re

import pytest

from detlab.schema import Verdict
from tests.browser.audit import faults, show, violations
from tests.browser.lab import LIMIT_MS, ask, set_theme
from tests.browser.maps import MapOnPage

pytestmark = pytest.mark.browser

SOURCE = """
import detlab as dl
from tests.browser.stories import race
explorer = dl.explore(race(), journal="notes.json")
explorer
"""
DETAILS = ".detlab-explorer .dl-below .dl-framed >> nth=0"


@pytest.fixture(scope="module")
def opened(lab, open_page):
    """Display an explorer in a notebook."""
    page = open_page().page
    lab.run(page, lab.write("explorer.ipynb", SOURCE))
    return MapOnPage(page, "explorer.map")


@pytest.fixture
def shown(opened):
    """Show the whole map, and select nothing."""
    ask(opened.page, "explorer.selection.clear()")
    opened.reset()
    says(opened.page, "No call is selected")
    return opened


def details(page):
    return page.locator(DETAILS).inner_text()


def says(page, words):
    """Wait until the details contain words."""
    page.locator(DETAILS).filter(has_text=words).wait_for(timeout=LIMIT_MS)


def select_finding(shown):
    """Click on the first finding, and wait for everything that is said of its first call."""
    shown.page.locator(".dl-findings button").first.click()
    says(shown.page, "aten.index_put.default")
    assert ask(shown.page, "print(explorer.details.wait())") == "True"
    says(shown.page, "How the difference got here")
    shown.drawn()


def selected(page):
    """Give rank and site of the selected call, as the kernel has them."""
    told = ask(
        page,
        "from detlab.widgets.selection import place_of; import json; "
        "print(json.dumps(place_of(explorer.cmp, explorer.selection.called)))",
    )
    return json.loads(told)


def test_the_verdict_stands_first_in_one_sentence(shown):
    text = shown.page.locator(".detlab-explorer").inner_text()
    assert re.match(r"\s*DIVERGED\s.*aten\.index_put\.default", text, re.I | re.S)


def test_a_click_on_a_cell_changes_the_details(shown):
    row, column = next(
        (row, column) for row, column, code in shown.get("m.meta['markers']") if code == 1 + Verdict.ORIGIN
    )
    shown.page.mouse.click(*shown.place(row, column))
    says(shown.page, "aten.index_put.default")
    assert "origin" in details(shown.page)


def test_keys_in_the_map_change_the_details(shown):
    shown.plot.focus()
    shown.page.keyboard.press("o")
    shown.page.keyboard.press("Enter")
    says(shown.page, "aten.index_put.default")
    first = selected(shown.page)
    shown.page.keyboard.press("ArrowRight")
    shown.page.keyboard.press("Enter")
    shown.becomes("m.called and m.selected['site'] != " + repr(first[1]))
    says(shown.page, shown.get("m.selected['site']").split("/")[-1].split("#")[0])


def test_a_click_on_a_finding_selects_its_first_call_in_the_map(shown):
    select_finding(shown)
    assert shown.get("m.selected['verdict']") == "origin"


def test_the_buttons_of_the_details_select_the_calls_that_they_name(shown):
    select_finding(shown)
    before = selected(shown.page)
    button = shown.page.locator(f"{DETAILS} >> button[data-rank][data-site]:visible").last
    wanted = [int(button.get_attribute("data-rank")), button.get_attribute("data-site")]
    assert wanted != before
    button.press("Enter")
    shown.becomes("m.called and [m.selected['rank'], m.selected['site']] == " + repr(wanted))


def test_the_details_of_a_receiver_name_the_origin_that_it_came_from(shown):
    code = (
        "from detlab.widgets.selection import find_call; "
        "row = explorer.cmp.first.filter(__import__('polars').col('rank') == 1).row(0, named=True); "
        "explorer.selection.called = find_call(explorer.cmp, 1, row['site'])"
    )
    ask(shown.page, code)
    says(shown.page, "c10d.allreduce_.default")
    assert ask(shown.page, "print(explorer.details.wait())") == "True"
    says(shown.page, "aten.index_put.default")
    says(shown.page, "How the difference got here")


def test_a_step_chosen_in_the_metrics_is_the_step_of_the_map(shown):
    assert shown.get("m.state['step']") == 1
    ask(shown.page, "explorer.selection.step = 2")
    shown.becomes("m.state['step'] == 2")


def test_escape_lets_the_selection_go_everywhere(shown):
    select_finding(shown)
    shown.plot.focus()
    shown.page.keyboard.press("Escape")
    says(shown.page, "No call is selected")
    assert selected(shown.page) is None


def test_the_code_that_is_shown_makes_the_same_selection(shown):
    select_finding(shown)
    before = selected(shown.page)
    code = ask(shown.page, "print(explorer.tools.copy.code)")
    assert "dl.explore(" in code and before[1] in code


def test_a_note_is_kept_with_the_call_that_it_is_about(shown, lab):
    select_finding(shown)
    rank, site = selected(shown.page)
    shown.page.get_by_label("text", exact=True).fill("seen <b>twice</b>")
    shown.page.get_by_role("button", name="Add note").click()
    shown.page.get_by_text("seen <b>twice</b>").wait_for(timeout=LIMIT_MS)
    kept = json.loads(ask(shown.page, "print(explorer.notes.journal.path.read_text())"))
    assert [(note["text"], note["rank"], note["site"]) for note in kept["notes"]] == [
        ("seen <b>twice</b>", rank, site)
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_explorer(shown, theme):
    set_theme(shown.page, theme)
    select_finding(shown)
    assert violations(shown.page, ".detlab-explorer") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 800])
def test_nothing_of_the_explorer_overlaps_is_cut_sticks_out_or_is_too_small(shown, width, theme):
    set_theme(shown.page, theme)
    shown.page.set_viewport_size({"width": width, "height": 4000 if width == 800 else 2800})
    select_finding(shown)
    show(shown.page, f"explorer-{width}-{theme}")
    found = faults(shown.page, ".detlab-explorer")
    shown.page.set_viewport_size({"width": 1200, "height": 900})
    assert found == {}

"""The divergence map in JupyterLab, by mouse and by keyboard: what a hand does is what the kernel hears."""

from __future__ import annotations

import pytest

from detlab.schema import Verdict
from tests.browser.audit import faults, show, violations
from tests.browser.lab import set_theme
from tests.browser.maps import MapOnPage

pytestmark = pytest.mark.browser

SOURCE = """
from detlab.widgets.divergence_map import DivergenceMap
from tests.browser.stories import race
m = DivergenceMap(race())
m
"""
VERDICT = "int(m.cmp.ranks[m.called[0]].verdicts[m.called[1]])"


@pytest.fixture(scope="module")
def opened(lab, open_page):
    """Display a map in a notebook."""
    page = open_page().page
    lab.run(page, lab.write("map.ipynb", SOURCE))
    return MapOnPage(page, "m")


@pytest.fixture
def shown(opened):
    """Show the whole map."""
    opened.reset()
    return opened


def origin_of(shown):
    """Give row and column of the first marker of an origin."""
    return next(
        (row, column) for row, column, code in shown.get("m.meta['markers']") if code == 1 + Verdict.ORIGIN
    )


def test_a_click_on_a_marker_selects_that_origin(shown):
    shown.page.mouse.click(*shown.place(*origin_of(shown)))
    shown.becomes("m.called")
    assert shown.get(VERDICT) == Verdict.ORIGIN
    assert "aten.index_put.default" in shown.root.locator(".detlab-live").inner_text()


def test_the_arrow_keys_move_a_cursor_and_enter_selects(shown):
    shown.page.mouse.click(*shown.place(*origin_of(shown)))
    shown.becomes("m.called")
    row, column = shown.get("[m.selected['row'], m.selected['column']]")
    shown.page.keyboard.press("ArrowRight")
    shown.page.keyboard.press("Enter")
    shown.becomes(f"m.selected and m.selected['column'] > {column}")
    assert shown.get("m.selected['row']") == row


def test_escape_clears_the_selection(shown):
    shown.page.mouse.click(*shown.place(*origin_of(shown)))
    shown.becomes("m.called")
    shown.page.keyboard.press("Escape")
    shown.becomes("not m.called")


def test_plus_zooms_to_finer_cells_and_home_shows_all_again(shown):
    whole, factor = shown.get("[m.meta['num_columns'], m.meta['column_factor']]")
    shown.plot.focus()
    for _ in range(4):
        shown.page.keyboard.press("+")
    shown.becomes("m.state['window']")
    *_, c0, c1 = shown.get("m.meta['window']")
    assert c1 - c0 < whole / 4 and shown.get("m.meta['column_factor']") <= factor
    shown.page.keyboard.press("Home")
    shown.becomes("m.state['window'] is None")


def test_a_rectangle_zooms_to_the_cells_in_it(shown):
    left, top = shown.place(0, 100)
    right, bottom = shown.place(1, 200)
    shown.page.mouse.move(left, top)
    shown.page.mouse.down()
    shown.page.mouse.move(right, bottom, steps=4)
    shown.page.mouse.up()
    shown.becomes("m.state['window']")
    r0, r1, c0, c1 = shown.get("m.meta['window']")
    assert (r0, r1) == (0, 2) and abs(c0 - 100) <= 2 and abs(c1 - 200) <= 2


def test_a_verdict_of_the_legend_is_hidden_and_shown_again(shown):
    before, button = shown.picture(), shown.root.locator("[data-verdict=receiver]")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    shown.becomes("m.state['hidden'] == ['receiver']")
    assert button.get_attribute("aria-pressed") == "false" and shown.picture() != before
    button.press("Enter")
    shown.becomes("m.state['hidden'] == []")


def test_a_search_counts_its_hits_and_goes_on_to_the_next(shown):
    search, count = shown.root.locator(".detlab-search"), shown.root.locator(".detlab-count")
    search.fill("index_put")
    search.press("Enter")
    shown.page.wait_for_function("() => /1 of \\d/.test(document.querySelector('.detlab-count').textContent)")
    of = int(count.inner_text().split("of")[1].split()[0])
    assert of == shown.get("len(m.source.search(m.state, 'index_put'))") > 1
    search.press("Enter")
    shown.page.wait_for_function("() => /2 of \\d/.test(document.querySelector('.detlab-count').textContent)")


def test_a_search_without_a_hit_says_so(shown):
    search = shown.root.locator(".detlab-search")
    search.fill("no such op")
    search.press("Enter")
    shown.page.wait_for_function("() => /no/.test(document.querySelector('.detlab-count').textContent)")


def test_the_step_control_shows_another_step(shown):
    first = shown.get("m.state['step']")
    shown.root.get_by_label("Next step").click()
    shown.becomes(f"m.state['step'] != {first}")
    shown.root.get_by_role("button", name="worst over steps").click()
    shown.becomes("m.state['step'] is None")


def test_the_order_control_groups_the_rows_anew(shown):
    orders = shown.get("m.meta['orders']")
    labels = shown.get("m.meta['row_labels']")
    assert {"dp", "tp"} <= set(orders)
    other = next(order for order in ("tp", "dp") if order != shown.get("m.state['order']"))
    shown.root.get_by_label("Rows by").select_option(other)
    shown.becomes(f"m.state['order'] == {other!r}")
    assert shown.get("m.meta['row_labels']") != labels


@pytest.mark.parametrize(("rows", "columns"), [("op", "step"), ("rank", "step")])
def test_the_view_control_shows_steps_as_columns(shown, rows, columns):
    shown.root.get_by_label("View").select_option(f"{rows} {columns}")
    shown.becomes(f"(m.state['rows'], m.state['columns']) == ({rows!r}, {columns!r})")
    assert shown.get("m.meta['num_columns']") == 2


def test_the_pointer_tells_what_is_under_it(shown):
    shown.page.mouse.move(*shown.place(*origin_of(shown)))
    tip = shown.root.locator(".detlab-tip")
    tip.wait_for()
    shown.page.wait_for_function(
        "() => document.querySelector('.detlab-tip').textContent.includes('aten.index_put.default')"
    )
    assert "origin" in tip.inner_text()


def test_keys_in_the_map_are_no_commands_of_the_notebook(shown):
    count = "() => window.jupyterapp.shell.currentWidget.content.model.cells.length"
    before = shown.page.evaluate(count)
    shown.plot.focus()
    for key in ("a", "b", "d", "d", "x", "m"):
        shown.page.keyboard.press(key)
    shown.drawn()
    assert shown.page.evaluate(count) == before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_map(shown, theme):
    set_theme(shown.page, theme)
    assert violations(shown.page, ".detlab-map") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 800])
def test_nothing_of_the_map_overlaps_is_cut_sticks_out_or_is_too_small(shown, width, theme):
    set_theme(shown.page, theme)
    shown.page.set_viewport_size({"width": width, "height": 900})
    shown.drawn()
    show(shown.page, f"map-{width}-{theme}")
    found = faults(shown.page, ".detlab-map")
    shown.page.set_viewport_size({"width": 1200, "height": 900})
    assert found == {}

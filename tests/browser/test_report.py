"""The report opened from its file: asks for nothing, complains of nothing, and can be read by everyone."""

from __future__ import annotations

import re

import pytest

from detlab.schema import Verdict
from detlab.views import report
from detlab.views.cells import MapSource
from tests.browser.audit import faults, show, violations
from tests.browser.stories import EVIL, hostile, race
from tests.views.stories import one_in_a_million

pytestmark = pytest.mark.browser

LOOKS = [(width, theme) for width in (1200, 800) for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return report(race(), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def looked_at(request, open_page, path):
    """Open the report at a width, in a theme; give the page and how it is looked at."""
    width, theme = request.param
    watched = open_page(width, 900, theme)
    watched.page.goto(path.as_uri())
    return watched, f"report-{width}-{theme}"


def test_the_report_asks_for_nothing_but_itself(looked_at, path):
    watched, _ = looked_at
    assert watched.requests == [path.as_uri()]


def test_axe_finds_nothing_serious_in_the_report(looked_at):
    assert violations(looked_at[0].page) == []


def test_nothing_in_the_report_overlaps_is_cut_sticks_out_or_is_too_small(looked_at):
    watched, name = looked_at
    show(watched.page, name)
    assert faults(watched.page, may_scroll=".detlab-map, .paths .scroll") == {}


@pytest.fixture(scope="module")
def opened(open_page, path):
    """Open the report to work with its map."""
    watched = open_page()
    watched.page.goto(path.as_uri())
    return watched


@pytest.fixture
def page(opened):
    """Show the whole map of the report, and select nothing."""
    page = opened.page
    page.reload()
    drawn(page, 0)
    return page


def drawn(page, seq):
    """Wait until a later tile than this one is drawn, and give its number."""
    page.wait_for_function(
        "seq => { const {dataset} = document.querySelector('.detlab-map') ?? {dataset: {}};"
        " return Number(dataset.seq) > seq && !dataset.busy; }",
        arg=seq,
    )
    return int(page.locator(".detlab-map").get_attribute("data-seq"))


def place_of_an_origin(page):
    """Give the place on the page of the first origin of the map as it is at first."""
    source = MapSource(race())
    meta, _ = source.window(source.normal({}), 600, 1600)
    row, column = next((row, column) for row, column, code in meta["markers"] if code == 1 + Verdict.ORIGIN)
    cells = page.locator(".detlab-cells")
    cells.scroll_into_view_if_needed()
    box = cells.bounding_box()
    x, y = (column + 0.5) / meta["num_columns"], (row + 0.5) / meta["num_rows"]
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def picture(page):
    return page.locator(".detlab-cells").evaluate("canvas => canvas.toDataURL()")


def test_a_click_in_the_map_of_the_report_shows_the_call_that_was_clicked(page):
    page.mouse.click(*place_of_an_origin(page))
    page.locator("#detlab-call").filter(has_text="aten.index_put.default").wait_for()
    assert "origin" in page.locator("#detlab-call").inner_text()


def test_the_other_steps_are_in_the_report_too(page):
    before = picture(page)
    seq = drawn(page, 0)
    page.locator(".detlab-map").get_by_label("Next step").click()
    drawn(page, seq)
    assert picture(page) != before


def test_zooming_in_the_report_shows_finer_cells(open_page, tmp_path):
    page = open_page().page
    page.goto(report(one_in_a_million(123_456, 700_000), tmp_path / "report.html").as_uri())

    def factor():
        told = page.locator(".detlab-map").inner_text()
        return int(re.search(r"1 rank . ([\d,]+) calls", told)[1].replace(",", ""))

    seq, coarse = drawn(page, 0), factor()
    page.locator(".detlab-plot").focus()
    page.keyboard.press("o")
    for _ in range(3):
        page.keyboard.press("+")
        seq = drawn(page, seq)
    assert factor() < coarse / 4
    page.keyboard.press("Home")
    drawn(page, seq)
    assert factor() >= coarse


def test_working_with_the_report_asks_for_nothing(opened, page, path):
    page.mouse.click(*place_of_an_origin(page))
    page.locator("#detlab-call").filter(has_text="aten.index_put.default").wait_for()
    assert set(opened.requests) == {path.as_uri()}


def test_without_scripts_and_styles_the_report_still_says_the_verdict(open_page, path):
    text = re.sub(r"(?s)<(script|style)\b.*?</\1>|\sstyle=\"[^\"]*\"", "", path.read_text("utf-8"))
    page = open_page().page
    page.set_content(text)
    verdict = page.locator("body").inner_text()
    assert re.search(r"(?i)diverged", verdict) and "aten.index_put.default" in verdict


def test_hostile_names_stay_text_in_the_report(open_page, tmp_path):
    page = open_page().page
    page.goto(report(hostile(tmp_path), tmp_path / "report.html").as_uri())
    assert page.evaluate("() => window.detlabOwned") is None
    assert "<script>window.detlabOwned = true</script>" in page.locator("body").inner_text()
    assert EVIL.count("\x1b") and "\x1b" not in page.content()

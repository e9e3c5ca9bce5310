"""Names that try to run stay text in every panel, in every chart, and in what a notebook saves of them."""

from __future__ import annotations

import nbformat
import pytest
from nbconvert import HTMLExporter

from tests.browser.lab import LIMIT_MS, ask, save
from tests.browser.maps import MapOnPage
from tests.browser.stories import MARK

pytestmark = pytest.mark.browser

PREPARE = """
from pathlib import Path
import detlab as dl
from tests.browser.stories import hostile, EVIL
cmp = hostile(Path("runs"))
first = cmp.first.row(0, named=True)
"""
SHOWN = {
    "text": "cmp",
    "frame": "cmp.first",
    "explorer": "explorer = dl.explore(cmp, journal='hostile.json'); explorer",
    "details": "dl.widgets.details(cmp, rank=first['rank'], site=first['site'])",
    "metrics": "dl.widgets.metrics(cmp)",
    "replay": "dl.widgets.replay(cmp)",
    "checks": "dl.widgets.checks(cmp)",
    "heatmap": "dl.views.heatmap(cmp)",
    "curves": "dl.views.curves(cmp.a, cmp.b, EVIL)",
}
OWNED = "() => window.detlabOwned ?? null"
SCRIPT = f"<script>{MARK}</script>"


@pytest.fixture(scope="module")
def opened(lab, open_page):
    """Display everything of a comparison with hostile names."""
    page = open_page(1200, 2400).page
    lab.run(page, lab.write("hostile.ipynb", PREPARE, *SHOWN.values()))
    page.locator(".detlab-map[data-seq]").first.wait_for(timeout=LIMIT_MS)
    page.locator(".js-plotly-plot .main-svg").nth(2).wait_for(timeout=LIMIT_MS)
    return MapOnPage(page, "explorer.map")


def output_of(page, name):
    return (
        page.locator(".jp-Notebook .jp-Cell").nth(1 + list(SHOWN).index(name)).locator(".jp-Cell-outputArea")
    )


@pytest.mark.parametrize("name", ["text", "explorer", "details"])
def test_a_name_that_tries_to_run_is_shown_as_text(opened, name):
    assert "</title></style></script><" in output_of(opened.page, name).inner_text().replace("\n", "")
    assert opened.page.evaluate(OWNED) is None


def test_nothing_runs_when_a_call_is_selected_searched_and_pointed_at(opened):
    page = opened.page
    page.locator(".dl-findings button").first.click()
    page.mouse.move(*opened.place(0, 0))
    page.locator(".detlab-tip").first.filter(has_text="detlabOwned").wait_for(timeout=LIMIT_MS)
    search = page.locator(".detlab-search").first
    search.fill("<script>")
    search.press("Enter")
    page.locator(".detlab-count").first.filter(has_text="of").wait_for(timeout=LIMIT_MS)
    assert page.evaluate(OWNED) is None


@pytest.mark.parametrize("order", ["host", "rack"])
def test_nothing_runs_when_ranks_are_grouped_by_a_hostile_name(opened, order):
    ask(opened.page, f"explorer.map.state = {{**explorer.map.state, 'order': {order!r}}}")
    opened.becomes(f"m.meta['state']['order'] == {order!r}")
    assert opened.page.evaluate(OWNED) is None


def test_nothing_runs_in_a_chart_that_is_pointed_at(opened):
    page = opened.page
    for name in ("heatmap", "curves"):
        plot = output_of(page, name).locator(".nsewdrag").first
        plot.scroll_into_view_if_needed()
        plot.hover()
    assert page.evaluate(OWNED) is None


def test_a_note_that_tries_to_run_stays_text(opened):
    page = opened.page
    page.get_by_label("text", exact=True).first.fill(SCRIPT)
    page.get_by_role("button", name="Add hypothesis").first.click()
    page.locator(".detlab-explorer li").filter(has_text=f"open: {SCRIPT}").wait_for(timeout=LIMIT_MS)
    assert page.evaluate(OWNED) is None


def test_what_the_notebook_saves_holds_no_escape_and_runs_nothing_on_another_page(
    opened, lab, open_page, tmp_path
):
    save(opened.page)
    read = nbformat.read(lab.folder / "hostile.ipynb", as_version=4)
    texts = [
        str(text)
        for cell in read.cells
        for output in cell.outputs
        for kind, text in output.get("data", {}).items()
        if kind.startswith("text/")
    ]
    assert texts and not [text for text in texts if "\x1b" in text]
    path = tmp_path / "hostile.html"
    exporter = HTMLExporter(require_js_url="", mathjax_url="")
    path.write_text(exporter.from_notebook_node(read)[0], "utf-8")
    page = open_page().page
    page.goto(path.as_uri())
    assert page.evaluate(OWNED) is None and SCRIPT in page.locator("body").inner_text()

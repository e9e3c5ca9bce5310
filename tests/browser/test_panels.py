"""Every panel by itself in JupyterLab: in light and dark, wide and narrow, to see and to be read out."""

from __future__ import annotations

import pytest

from tests.browser.audit import faults, show, violations
from tests.browser.lab import LIMIT_MS, set_theme
from tests.browser.panels import CELLS, PANELS, output_of

pytestmark = pytest.mark.browser

ALONE = [name for name in PANELS if name != "explorer"]


@pytest.fixture(scope="module")
def page(lab, open_page):
    """Display every panel."""
    page = open_page(1200, 2400).page
    lab.run(page, lab.write("panels.ipynb", *CELLS))
    for name in PANELS:
        output_of(page, name).locator("visible=true").first.wait_for(timeout=LIMIT_MS)
    return page


def marked(page, name):
    """Give a selector of a panel's output."""
    output_of(page, name).evaluate("(element, name) => { element.dataset.panel = name; }", name)
    return f"[data-panel={name}]"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ALONE)
def test_axe_finds_nothing_serious_in_a_panel(page, name, theme):
    set_theme(page, theme)
    assert violations(page, marked(page, name)) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 800])
@pytest.mark.parametrize("name", ALONE)
def test_nothing_of_a_panel_overlaps_is_cut_sticks_out_or_is_too_small(page, name, width, theme):
    set_theme(page, theme)
    page.set_viewport_size({"width": width, "height": 2400})
    show(page, f"{name}-{width}-{theme}", marked(page, name))
    assert faults(page, marked(page, name)) == {}


CHART_FITS = """() => {
  const width = selector => document.querySelector(selector).getBoundingClientRect().width;
  return Math.abs(width('.dl-chart:has(.js-plotly-plot)') - width('.js-plotly-plot .main-svg')) < 2;
}"""


@pytest.fixture
def chart(page):
    """Open the chart of the metrics, and close it again."""
    set_theme(page, "light")
    metrics = output_of(page, "metrics")
    metrics.get_by_role("button", name="zoomable chart").click()
    metrics.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=LIMIT_MS)
    yield metrics
    metrics.get_by_role("button", name="close the chart").click()
    metrics.locator(".js-plotly-plot").wait_for(state="detached", timeout=LIMIT_MS)


def test_the_chart_of_the_metrics_has_no_button_that_uploads_it(chart, page):
    titles = chart.locator(".modebar-btn").evaluate_all("all => all.map(each => each.dataset.title)")
    assert titles and not [title for title in titles if "hare" in title or "loud" in title]


@pytest.mark.parametrize("width", [1200, 800])
def test_the_chart_of_the_metrics_is_as_wide_as_its_panel(chart, page, width):
    page.set_viewport_size({"width": width, "height": 2400})
    page.wait_for_function(CHART_FITS)
    show(page, f"metrics-chart-{width}-light", marked(page, "metrics"))
    assert faults(page, marked(page, "metrics")) == {}


def test_the_chart_of_the_metrics_is_no_white_block_in_the_dark(chart, page):
    set_theme(page, "dark")
    show(page, "metrics-chart-1200-dark", marked(page, "metrics"))
    colours = chart.locator(".main-svg, .bg").evaluate_all(
        "all => all.flatMap(each => [getComputedStyle(each).backgroundColor, each.style.fill])"
    )
    assert colours and not {"rgb(255, 255, 255)", "white"} & set(colours)

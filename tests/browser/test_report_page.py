"""The report in Chromium, from its file: the living map, its calls, and what is left without scripts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import detlab as dl
from detlab.comparison import compare
from detlab.testing import Call, make_run
from detlab.views.document import report
from tests.browser.audit import faults, show, violations
from tests.views.stories import story

pytestmark = pytest.mark.browser

ORIGIN = "1/0/backward/embedding.word_embeddings/aten.index_put.default#1"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    runs = (dl.load_run(dl.samples.sample_path("race") / run) for run in "ab")
    return report(dl.compare(*runs), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(open_page, path):
    return living(open_page().page, path)


def living(page, path):
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready] .detlab-map[data-seq]")
    return page


def answered(page, act):
    """Do something that asks for another tile, and wait for it."""
    seq = page.locator(".detlab-map").get_attribute("data-seq")
    act()
    page.wait_for_selector(f".detlab-map:not([data-seq='{seq}'])")


def select_first_origin(page):
    page.locator(".detlab-plot").focus()
    page.keyboard.press("o")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#detlab-call[data-site='{ORIGIN}']")


def click_at(page, right, down):
    """Click the cells at a place given as fractions of them."""
    cells = page.locator(".detlab-cells")
    size = cells.bounding_box()
    cells.click(position={"x": right * size["width"], "y": down * size["height"]})


def said(page):
    return page.locator(".detlab-live").inner_text()


def test_the_living_map_stands_in_the_place_of_the_still_pictures(page):
    assert page.locator(".detlab-cells").is_visible() and not page.locator(".still").is_visible()
    assert page.locator("#detlab-call").is_hidden() and page.locator("#detlab-note").is_hidden()


def test_a_call_is_chosen_by_keyboard_and_its_details_are_shown(page):
    select_first_origin(page)
    text = page.locator("#detlab-call").inner_text()
    for part in (
        "aten.index_put.default",
        "Tensors of both runs",
        "same (exact)",
        "differs",
        "rank 0 (tp0 dp0)",
    ):
        assert part in text


def test_a_click_chooses_the_call_under_the_pointer(page):
    click_at(page, 0.1, 0.9)
    page.wait_for_selector("#detlab-call[data-written='false']")
    text = page.locator("#detlab-call").inner_text()
    assert re.search(r"rank 3, tp1 dp1[\s\S]*step 1, microbatch 0, forward", text)
    site = page.locator("#detlab-call").get_attribute("data-site")
    assert f'cmp.call(rank=3, site="{site}")' in text and "not in this file" in text


def test_what_the_page_says_to_paste_gives_that_call(page, path):
    click_at(page, 0.1, 0.9)
    page.wait_for_selector("#detlab-call[data-written='false']")
    cmp = dl.compare(*(dl.load_run(dl.samples.sample_path("race") / run) for run in "ab"))
    site = page.locator("#detlab-call").get_attribute("data-site")
    assert str(cmp.call(rank=3, site=site).call.site) == site


def test_zooming_brings_finer_cells_and_their_names(page):
    select_first_origin(page)
    for _ in range(3):
        answered(page, lambda: page.keyboard.press("+"))
    page.mouse.move(0, 0)
    assert (
        page.locator(".detlab-note").inner_text().startswith("phases and layers")
    )  # not "a cell is the worst"


def test_hiding_a_verdict_takes_it_off_the_map(page):
    button = page.locator("button[data-verdict=origin]")
    answered(page, button.click)
    assert button.get_attribute("aria-pressed") == "false"
    page.locator(".detlab-plot").focus()
    page.keyboard.press("o")
    assert said(page) == "no origin is in the window"


def test_a_search_counts_what_it_finds(page):
    page.locator(".detlab-search").fill("index_put.default")
    page.keyboard.press("Enter")
    page.get_by_text(re.compile(r"^1 of \d+$")).wait_for()


def test_every_call_that_the_page_names_has_a_way_to_the_map(page):
    answered(page, lambda: page.locator(".detlab-tools select").first.select_option("rank step"))
    answered(page, lambda: page.locator("#firsts button.jump").last.click())
    page.wait_for_selector(f"#detlab-call[data-site='{ORIGIN}']")
    page.wait_for_function(
        "document.querySelector('.detlab-live').textContent.startsWith('selected: rank 2')"
    )
    assert said(page).startswith("selected: rank 2 · tp0 dp1 · step 1 · backward · call 301")
    assert page.locator(".detlab-tools select").first.input_value() == "rank call"


def test_a_call_named_in_the_details_can_be_followed(page):
    select_first_origin(page)
    page.locator("#detlab-call button[data-site]").first.click()
    page.wait_for_selector(f"#detlab-call:not([data-site='{ORIGIN}'])")
    assert "aten.new_zeros.default" in page.locator("#detlab-call").inner_text()


def test_a_call_of_run_b_alone_leads_to_no_call_of_run_a(open_page, tmp_path):
    both = [Call("aten.mm.default", "lin", ["x"], ["y"]), Call("aten.mm.default", "out", ["y"], ["z"])]
    other = [both[0], Call("aten.mm.default", "lin", ["p"], ["Y"]), replace(both[1], inputs=["Y"])]
    cmp = compare(make_run({0: both}), make_run({0: other}))
    page = living(open_page().page, report(cmp, tmp_path / "report.html"))
    click_at(page, 0.9, 0.5)
    page.wait_for_selector("#detlab-call[data-site^='1/0/forward/out/']")
    links = page.locator("#detlab-call button[data-run=b]")
    assert links.count() and all(link.is_disabled() for link in links.all())


@pytest.mark.parametrize("width", [1200, 800])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_with_a_chosen_call_nothing_is_cut_and_axe_finds_nothing_serious(open_page, path, width, theme):
    page = living(open_page(width, 900, theme).page, path)
    select_first_origin(page)
    show(page, f"report-call-{width}-{theme}", "#map")
    assert faults(page, "#map") == {}
    assert violations(page) == []


def test_printed_the_still_pictures_are_back(page):
    page.emulate_media(media="print")
    assert page.locator(".still figure").first.is_visible() and not page.locator(".detlab-cells").is_visible()
    assert not page.locator("button.jump").first.is_visible()


def test_without_scripts_the_still_pictures_say_the_same(browser, path):
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    assert page.locator(".still figure").count() == 2 and page.locator(".still figure").first.is_visible()
    assert page.locator(".lively").is_hidden()
    page.close()


def test_a_browser_that_cannot_read_the_map_says_so_and_shows_the_pictures(open_page, path):
    page = open_page().page
    page.add_init_script("delete window.DecompressionStream")
    page.goto(path.as_uri())
    page.locator("#detlab-note").wait_for()
    assert "This browser cannot show the map" in page.locator("#detlab-note").inner_text()
    assert page.locator(".still figure").first.is_visible() and page.locator(".lively").is_hidden()


def test_even_a_name_that_somebody_forgot_to_escape_runs_nothing(browser, tmp_path):
    cmp = compare(story("a", {0: ["y"]}), story("b", {0: ["z"]}))
    written = report(cmp, tmp_path / "report.html")
    run = "window.owned = 1"
    evil = f'<script>{run}</script><img src="x" onerror="{run}"><b onclick="{run}">x</b>'
    written.write_text(written.read_text("utf-8").replace("<main>", f"<main>{evil}"), "utf-8")
    page = browser.new_page()
    answered = []
    page.on("requestfinished", lambda request: answered.append(request.url))
    living(page, written)
    page.locator("main > b").click()
    assert page.evaluate("() => window.owned") is None
    assert answered == [written.as_uri()]
    page.close()

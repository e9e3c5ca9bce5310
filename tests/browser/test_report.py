"""The report opened from its file: asks for nothing, complains of nothing, and can be read by everyone."""

from __future__ import annotations

import re

import pytest

from detlab.views import report
from tests.browser.audit import faults, show, violations
from tests.browser.stories import EVIL, hostile, race

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
    assert faults(watched.page, may_scroll=".map, .scroll") == {}


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

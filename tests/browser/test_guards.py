"""The guards of the browser tests fire: each sees the one thing that is planted for it."""

from __future__ import annotations

import pytest

from tests.browser.audit import faults, violations
from tests.browser.watch import Watched

pytestmark = pytest.mark.browser

FORM = "<!DOCTYPE html><html lang='en'><title>A form</title><main><label>Name <input></label></main>"


@pytest.fixture
def watched(browser):
    """Give a page whose faults fail no other test."""
    context = browser.new_context(viewport={"width": 800, "height": 600})
    yield Watched(context.new_page())
    context.close()


def test_every_page_of_the_other_tests_is_watched(open_page, watching):
    assert open_page() is watching[-1]


def test_a_page_without_faults_passes_every_guard(watched):
    watched.page.set_content(FORM)
    watched.check()
    assert violations(watched.page) == [] and faults(watched.page) == {}


@pytest.mark.parametrize("address", ["http://detlab.invalid/x.png", "https://192.0.2.1/x.png"])
def test_a_request_that_leaves_the_machine_is_caught(watched, address):
    with watched.page.expect_event("requestfailed"):
        watched.page.evaluate("address => { new Image().src = address; }", address)
    with pytest.raises(AssertionError, match=f"request: {address}"):
        watched.check()


def test_a_web_socket_that_leaves_the_machine_is_caught(watched):
    with watched.page.expect_event("websocket"):
        watched.page.evaluate("() => { new WebSocket('ws://detlab.invalid/'); }")
    with pytest.raises(AssertionError, match=r"request: ws://detlab\.invalid/"):
        watched.check()


def test_an_error_on_the_console_is_caught(watched):
    watched.page.evaluate("() => console.error('a wrong turn')")
    with pytest.raises(AssertionError, match="console: a wrong turn"):
        watched.check()


def test_an_exception_that_nobody_catches_is_caught(watched):
    with watched.page.expect_event("pageerror"):
        watched.page.evaluate("() => { setTimeout(() => { throw new Error('fallen'); }); }")
    with pytest.raises(AssertionError, match="exception: fallen"):
        watched.check()


def test_axe_finds_a_control_without_a_name_and_text_that_can_hardly_be_read(watched):
    watched.page.set_content(FORM + "<main><input><p style='color: #ddd'>pale</p></main>")
    found = " ".join(violations(watched.page))
    assert "critical label" in found and "serious color-contrast" in found


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("overflow", "<div style='width: 900px; height: 9px'></div>"),
        ("overlaps", "<p>first</p><p style='margin-top: -2em'>second</p>"),
        ("cut", "<p style='width: 40px; overflow: hidden; white-space: nowrap'>a long sentence</p>"),
        ("sideways", "<div style='overflow: auto; width: 90px'><p style='width: 99px'>wide</p></div>"),
        ("small", "<p style='font-size: 9px'>tiny</p>"),
    ],
)
def test_what_sticks_out_overlaps_is_cut_or_too_small_is_found_as_that_and_nothing_else(watched, kind, body):
    watched.page.set_content(f"<body>{body}</body>")
    assert set(faults(watched.page)) == {kind}

"""Looking a page over: axe for those who cannot see it well, boxes for what overlaps or is cut."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.browser.tools import AXE

if TYPE_CHECKING:
    from playwright.sync_api import Page

SERIOUS: Final = ("serious", "critical")

_AXE: Final = """async selector => {
  const found = await axe.run(selector, {resultTypes: ['violations']});
  return found.violations.map(each => [each.impact, each.id, each.nodes.map(({html}) => html.slice(0, 99))]);
}"""


@cache
def _source(path: Path) -> str:
    return path.read_text("utf-8")


def violations(page: Page, inside: str = "html") -> list[str]:
    """Name what axe finds serious or critical in the elements of a selector, with their HTML."""
    assert page.locator(inside).count(), f"nothing on the page is {inside}"
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_source(AXE))
    found = page.evaluate(_AXE, inside)
    return [f"{impact} {name}: {nodes}" for impact, name, nodes in found if impact in SERIOUS]


def faults(page: Page, inside: str = "body", may_scroll: str = ".detlab-map") -> dict[str, list[str]]:
    """Name what sticks out, overlaps, is cut, too small or scrolls sideways below an element of the page."""
    found: dict[str, list[str]] = page.locator(inside).first.evaluate(
        f"(root, may) => ({_source(Path(__file__).with_name('audit.js')).rstrip()})(root, may)", may_scroll
    )
    return {kind: names for kind, names in found.items() if names}


def show(page: Page, name: str, inside: str | None = None) -> None:
    """Keep a picture for people to look at, in the folder that DETLAB_SCREENSHOTS names."""
    if folder := os.environ.get("DETLAB_SCREENSHOTS"):
        path = Path(folder) / f"{name}.png"
        if inside:
            page.locator(inside).first.screenshot(path=path, timeout=10_000)
        else:
            page.screenshot(path=path, full_page=True)

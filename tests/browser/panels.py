"""One notebook that displays every panel by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PREPARE: Final = """
import detlab as dl
from tests.browser.stories import race
cmp = race()
first = cmp.first.row(0, named=True)
"""
PANELS: Final = {
    "comparison": "cmp",
    "explorer": "dl.explore(cmp, journal='notes.json')",
    "map": "dl.widgets.map(cmp)",
    "findings": "dl.widgets.findings(cmp)",
    "details": "dl.widgets.details(cmp, rank=first['rank'], site=first['site'])",
    "metrics": "dl.widgets.metrics(cmp)",
    "replay": "dl.widgets.replay(cmp)",
    "checks": "dl.widgets.checks(cmp)",
}
"""What is displayed, by the name of what it shows."""

CELLS: Final = (PREPARE, *PANELS.values())


def output_of(page: Page, name: str) -> Locator:
    """Give the output of the cell that displays a panel."""
    return (
        page.locator(".jp-Notebook .jp-Cell").nth(1 + list(PANELS).index(name)).locator(".jp-Cell-outputArea")
    )

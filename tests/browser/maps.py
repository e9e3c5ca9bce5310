"""A divergence map in an open notebook: where its cells are on the page, and what its kernel holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.browser.lab import LIMIT_MS, ask

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


@dataclass(frozen=True)
class MapOnPage:
    """A map that is displayed once.

    Attributes
    ----------
    page
        The page of the notebook.
    name
        Of the `DivergenceMap` in the kernel.
    """

    page: Page
    name: str

    @property
    def root(self) -> Locator:
        """The map's element."""
        return self.page.locator(".detlab-map")

    @property
    def plot(self) -> Locator:
        """What takes the keys."""
        return self.root.locator(".detlab-plot")

    def get(self, expression: str) -> Any:
        """Evaluate an expression about the map, named ``m`` there, in the kernel; its value is JSON."""
        return json.loads(ask(self.page, f"import json; m = {self.name}; print(json.dumps({expression}))"))

    def reset(self) -> None:
        """Show everything, and select nothing."""
        ask(self.page, f"{self.name}.clear(); {self.name}.state = {self.name}.source.normal({{}})")
        self.drawn()

    def drawn(self) -> None:
        """Wait until what the kernel sent last is drawn."""
        self.page.wait_for_function(
            "seq => { const {dataset} = document.querySelector('.detlab-map');"
            " return Number(dataset.seq) >= seq && !dataset.busy; }",
            arg=self.get("m.meta['seq']"),
            timeout=LIMIT_MS,
        )

    def becomes(self, expression: str) -> None:
        """Wait until an expression about the map is true in the kernel."""
        for _ in range(200):
            if self.get(f"bool({expression})"):
                return self.drawn()
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {expression}; the state is {self.get('m.state')}")

    def place(self, row: float, column: float) -> tuple[float, float]:
        """Give the place on the page of a displayed cell's middle."""
        r0, r1, c0, c1 = self.get("m.meta['window']")
        cells = self.root.locator(".detlab-cells")
        cells.scroll_into_view_if_needed()
        box = cells.bounding_box() or {}
        x, y = (column + 0.5 - c0) / (c1 - c0), (row + 0.5 - r0) / (r1 - r0)
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    def picture(self) -> str:
        """Give what is painted, as text to compare."""
        return str(self.root.locator(".detlab-cells").evaluate("canvas => canvas.toDataURL()"))

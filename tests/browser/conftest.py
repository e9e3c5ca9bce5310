"""Fixtures: one JupyterLab and one Chromium for the whole session, and pages that are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import LIMIT_MS, Lab, running_lab
from tests.browser.tools import chromium, what_is_missing
from tests.browser.watch import Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    OpenPage = Callable[..., Watched]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run Chromium."""
    assert not (missing := what_is_missing()), f"install {', '.join(missing)}"
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run JupyterLab."""
    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="session")
def watching() -> list[Watched]:
    """Hold the pages that are open now."""
    return []


@pytest.fixture(scope="module")
def open_page(browser: Browser, watching: list[Watched]) -> Iterator[OpenPage]:
    """Open pages that are watched, and close them at the end of the module."""
    contexts = []

    def new(width: int = 1200, height: int = 900, theme: str = "light") -> Watched:
        contexts.append(
            browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, service_workers="block"
            )
        )
        contexts[-1].set_default_timeout(LIMIT_MS)
        watching.append(Watched(contexts[-1].new_page()))
        return watching[-1]

    yield new
    for context in contexts:
        context.close()
    watching.clear()


@pytest.fixture(autouse=True)
def quiet(watching: list[Watched]) -> Iterator[None]:
    """Fail a test during which an open page logged an error, threw, or asked for something elsewhere."""
    yield
    for watched in watching:
        watched.check()

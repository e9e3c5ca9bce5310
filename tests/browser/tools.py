"""What the browser tests need of a machine (Chromium, Node, axe), and how to install what it lacks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser

AXE: Final = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""Where ``make setup`` puts axe-core."""

_FLAGS: Final = (
    "--no-sandbox",  # CI is root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
    # a second wall behind the guard: no name is looked up, whatever a page asks for
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def chromium_path() -> str | None:
    """Give the Chromium on the path, as Debian installs it."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def what_is_missing() -> list[str]:
    """Name what the tests need and the machine lacks, each with how to install it."""
    needs = {
        "chromium (apt-get install chromium)": chromium_path(),
        "node (apt-get install nodejs)": shutil.which("node"),
        "playwright (make setup)": find_spec("playwright"),
        "jupyterlab (make setup)": find_spec("jupyterlab"),
        "axe-core (apt-get install npm, then make setup)": AXE.is_file(),
    }
    return [name for name, found in needs.items() if not found]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium that reaches this machine only."""
    # Playwright's own Node has crashed on these pages
    os.environ["PLAYWRIGHT_NODEJS_PATH"] = shutil.which("node") or ""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()

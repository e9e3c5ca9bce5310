"""What all tests share: patience with a busy machine, none with what hides a failure.

Hypothesis judges what is computed, never how long it takes. Tests that need a CUDA device or a browser are
left out, all at once and with a line that says so, where there is none. In CI a test that is skipped has
failed, and so have tests without the browser that they need.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.browser.tools import what_is_missing

settings.register_profile("detlab", deadline=None, max_examples=50)
settings.load_profile("detlab")

_left_out = pytest.StashKey[list[str]]()


@pytest.hookimpl(trylast=True)  # what -m and -k leave out is no matter here, and no plugin shuffles after it
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this machine has no device or browser for; let the browser's tests come last.

    Playwright keeps an event loop running in this thread, in which no other test could start its own.
    """
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
    config.stash[_left_out] = []
    if config.option.collectonly:
        return
    for marker, why_not in (("gpu", _no_device), ("browser", _no_browser)):
        chosen = [item for item in items if item.get_closest_marker(marker)]
        if chosen and (why := why_not()):
            config.hook.pytest_deselected(items=chosen)
            config.stash[_left_out].append(f"{len(chosen)} tests of the marker {marker} left out: {why}")
            items[:] = [item for item in items if item not in chosen]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and why."""
    for line in config.stash.get(_left_out, ()):
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that CI would skip: whatever it needs, CI has to have it."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped in CI: {report.longrepr[-1]}"  # type: ignore[index]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let a file of tests fail that CI would skip."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped in CI: {report.longrepr[-1]}"  # type: ignore[index]
    return report


def _no_device() -> str:
    import torch  # it takes a second, and most runs need no device

    return "" if torch.cuda.is_available() else "torch finds no CUDA device here"


def _no_browser() -> str:
    missing = () if os.environ.get("CI") else what_is_missing()  # CI goes on, and fails where one is used
    return f"install {', '.join(missing)}" if missing else ""

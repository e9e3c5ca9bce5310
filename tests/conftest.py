"""What all tests share: patience with a busy machine, none with what hides a failure.

Hypothesis judges what is computed, never how long it takes. Tests that need a CUDA device are left out, all
at once and with a line that says so, where there is none. In CI a test that is skipped has failed.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("detlab", deadline=None, max_examples=50)
settings.load_profile("detlab")

_left_out = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)  # what -m and -k leave out is no matter here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a CUDA device where there is none."""
    chosen = [item for item in items if item.get_closest_marker("gpu")]
    if config.option.collectonly or not chosen or _has_cuda():
        return
    config.hook.pytest_deselected(items=chosen)
    config.stash[_left_out] = len(chosen)
    items[:] = [item for item in items if item not in chosen]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and why."""
    if number := config.stash.get(_left_out, 0):
        terminalreporter.write_line(
            f"{number} tests of the marker gpu left out: torch finds no CUDA device here"
        )


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


def _has_cuda() -> bool:
    import torch  # it takes a second, and most runs need no device

    return torch.cuda.is_available()

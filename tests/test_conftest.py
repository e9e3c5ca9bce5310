"""What is left out of a test run is said, and CI skips nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

DEVICE_TESTS = """
import pytest

@pytest.mark.gpu
def test_on_a_device(): raise AssertionError("this ran without a device")

@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_on_both(device): assert device == "cpu"
"""
BROWSER_TESTS = """
import pytest

@pytest.mark.browser
def test_in_a_browser(): raise AssertionError("this ran without a browser")

def test_elsewhere(): pass
"""
SKIPPED_TEST = """
import pytest

def test_one(): pytest.skip("no compiler")
"""
SKIPPED_FILE = 'import pytest; pytest.skip("no module", allow_module_level=True)'


def run_pytest(file: Path, source: str, *options: str, **variables: str) -> tuple[int, str]:
    """Run one file of tests under this repository's rules, in a process that sees no device."""
    file.write_text(source, "utf-8")
    without_ci = {name: value for name, value in os.environ.items() if name != "CI"}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", "--rootdir", file.parent, file, *options],
        cwd=ROOT,
        env=without_ci | {"CUDA_VISIBLE_DEVICES": ""} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_needs_a_device_is_left_out_where_there_is_none_and_the_last_lines_say_so(
    tmp_path: Path,
) -> None:
    code, text = run_pytest(tmp_path / "test_devices.py", DEVICE_TESTS)
    assert code == 0, text
    assert "2 tests of the marker gpu left out: torch finds no CUDA device here" in text
    assert "1 passed, 2 deselected" in text


def test_run_of_nothing_but_device_tests_fails_without_a_device(tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path / "test_devices.py", DEVICE_TESTS, "-m", "gpu")
    assert code == 5, text  # pytest's "no tests ran", never a green line
    assert "2 tests of the marker gpu left out" in text


def test_device_tests_are_collected_everywhere(tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path / "test_devices.py", DEVICE_TESTS, "-m", "gpu", "--collect-only", "-q")
    assert code == 0, text
    assert "2/3 tests collected" in text


def test_what_needs_a_browser_is_left_out_where_there_is_none_and_the_last_line_says_what_to_install(
    tmp_path: Path,
) -> None:
    code, text = run_pytest(tmp_path / "test_page.py", BROWSER_TESTS, PATH=str(tmp_path))
    assert code == 0, text
    assert "1 tests of the marker browser left out: install chromium (apt-get install chromium)" in text
    assert "1 passed, 1 deselected" in text


def test_ci_leaves_out_no_browser_test(tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path / "test_page.py", BROWSER_TESTS, PATH=str(tmp_path), CI="true")
    assert code == 1 and "this ran without a browser" in text, text


def test_the_tests_of_the_browser_come_last(tmp_path: Path) -> None:
    code, text = run_pytest(
        tmp_path / "test_page.py", BROWSER_TESTS, "--collect-only", "-q", "-p", "no:randomly"
    )
    assert code == 0, text
    assert text.index("test_elsewhere") < text.index("test_in_a_browser")


def test_skipped_test_fails_in_ci_and_nowhere_else(tmp_path: Path) -> None:
    file = tmp_path / "test_skipped.py"
    assert run_pytest(file, SKIPPED_TEST)[0] == 0
    code, text = run_pytest(file, SKIPPED_TEST, CI="true")
    assert code == 1, text
    assert "nothing may be skipped in CI: Skipped: no compiler" in text


def test_skipped_file_fails_in_ci(tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path / "test_skipped.py", SKIPPED_FILE, CI="true")
    assert code != 0, text
    assert "nothing may be skipped in CI: Skipped: no module" in text

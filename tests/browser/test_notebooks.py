"""Every shipped notebook in a real JupyterLab: runs from top to bottom, and nothing in the page complains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.browser.lab import shut_down

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def page(open_page):
    return open_page().page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_jupyterlab_without_an_error_in_an_output_or_on_the_console(path, lab, page):
    shutil.copy(path, lab.folder)
    lab.run(page, path.name)
    shut_down(page)


@pytest.mark.parametrize(
    ("cell", "found"),
    [("1 / 0", "ZeroDivisionError"), ("import sys; print('odd', file=sys.stderr)", "odd")],
)
def test_a_cell_that_fails_or_complains_is_found(cell, found, lab, page):
    name = lab.write("failing.ipynb", cell)
    with pytest.raises(AssertionError, match=found):
        lab.run(page, name)

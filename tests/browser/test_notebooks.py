"""Every shipped notebook in a real JupyterLab: runs from top to bottom, and nothing in the page complains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def page(open_page):
    return open_page().page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_jupyterlab_without_an_error_in_an_output_or_on_the_console(path, lab, page):
    shutil.copy(path, lab.folder)
    lab.run(page, path.name)

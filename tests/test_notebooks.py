"""Every notebook runs from top to bottom on the shipped samples, asserts its answer, and stores no output."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LIMIT_S = 30


def load(path):
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def check_form(notebook):
    """Hold a notebook against the house rules for guests."""
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown" and "?" in notebook.cells[0].source, (
        "begins with no question"
    )
    assert not any(cell.outputs or cell.execution_count for cell in code), "stores outputs"
    assert "assert " in code[-1].source and notebook.cells[-1] is code[-1], (
        "does not end by asserting its answer"
    )
    assert all(cell.id for cell in notebook.cells)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_asks_one_question_stores_no_output_and_asserts_its_answer(path):
    check_form(load(path))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda cells: cells[0].update(source="A title"), "begins with no question"),
        (lambda cells: cells[1].update(execution_count=1), "stores outputs"),
        (lambda cells: cells.pop(), "does not end by asserting its answer"),
    ],
)
def test_a_notebook_of_another_form_is_found(wrong, why):
    notebook = load(NOTEBOOKS[0])
    wrong(notebook.cells)
    with pytest.raises(AssertionError, match=why):
        check_form(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    copy = Path(shutil.copy(path, tmp_path))
    resources = {"metadata": {"path": str(tmp_path)}}
    notebook = load(copy)
    NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=resources).execute()
    assert not any(
        output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ())
    )

"""Every notebook runs from top to bottom on the shipped samples, asserts its answer, and stores no output."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LIMIT_S = 30
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


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


def check_source(path):
    """Hold the text of a notebook against the form in which diffs are readable."""
    text = path.read_text("utf-8")
    content = json.loads(text)
    same = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    assert text == same, "is written in another way: sorted keys, one space, one newline at the end"
    ids = [cell["id"] for cell in content["cells"]]
    assert len(set(ids)) == len(ids), "has two cells of one id"
    assert all(re.fullmatch("[a-z][a-z0-9-]*", each) for each in ids), "has an id that says nothing"
    assert content["metadata"] == METADATA, "keeps more in its metadata than the kernel"
    extra = [cell["id"] for cell in content["cells"] if set(cell["metadata"]) - {"tags"}]
    assert not extra, f"keeps how cells were shown: {extra}"


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
def test_a_notebook_is_written_in_the_one_form_that_makes_diffs_readable(path):
    check_source(path)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda text: text.rstrip("\n"), "written in another way"),
        (lambda text: text.replace('\n "nbformat": 4', '\n  "nbformat": 4'), "written in another way"),
        (lambda text: re.sub('"id": "[^"]*"', '"id": "same"', text), "two cells of one id"),
        (lambda text: text.replace('"id": "question"', '"id": "3f2A9c"'), "id that says nothing"),
        (
            lambda text: text.replace('"name": "python"\n', '"name": "python",\n   "version": "3.11.7"\n'),
            "metadata",
        ),
        (lambda text: text.replace('"metadata": {},', '"metadata": {"scrolled": true},', 1), "written|shown"),
    ],
    ids=["newline", "indent", "ids", "random", "version", "cell"],
)
def test_a_notebook_in_another_form_is_found(wrong, why, tmp_path):
    path = tmp_path / "odd.ipynb"
    text = NOTEBOOKS[0].read_text("utf-8")
    path.write_text(wrong(text), "utf-8")
    assert path.read_text("utf-8") != text
    with pytest.raises(AssertionError, match=why):
        check_source(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    copy = Path(shutil.copy(path, tmp_path))
    resources = {"metadata": {"path": str(tmp_path)}}
    notebook = load(copy)
    NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=resources).execute()
    assert not any(
        output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ())
    )

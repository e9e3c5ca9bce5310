"""``detlab lab``: a notebook that is ready for the runs, that replaces nothing, and that runs to its end."""

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from detlab.cli import lab, main
from detlab.samples import sample_path
from tests.test_notebooks import check_source

RACE, CLEAN, SPIKE = (sample_path(name) for name in ("race", "clean", "spike"))
TEMPLATES = sorted((Path(lab.__file__).parents[1] / "templates").glob("*.ipynb"))


@pytest.fixture
def served(monkeypatch, tmp_path):
    """What JupyterLab is started with, the notebook by its name, in an empty working folder."""
    told = []
    monkeypatch.setattr(lab, "_serve", lambda arguments: told.append(list(arguments)) or 0)
    monkeypatch.setattr(lab, "_opened", lambda notebook: [str(notebook)])
    monkeypatch.chdir(tmp_path)
    return told


def parameters(path):
    """The values that the cell of parameters gives."""
    (cell,) = (each for each in nbformat.read(path, 4).cells if "parameters" in each.metadata.get("tags", ()))
    return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(cell.source).body}


def test_two_runs_are_written_into_a_copy_of_the_template_and_opened(served, capsys):
    assert main(["lab", str(RACE / "a"), str(RACE / "b"), "--no-browser", "--jupyter=--port=9000"]) == 0
    assert served == [["two_runs.ipynb", "--no-browser", "--port=9000"]]
    assert capsys.readouterr().out == f"notebook: {Path('two_runs.ipynb').resolve()}\n"
    assert parameters("two_runs.ipynb") == {
        "run_a": str(RACE / "a"), "run_b": str(RACE / "b"), "report": "two_runs.html",
    }  # fmt: skip


def test_only_the_cell_of_parameters_is_another_one_than_in_the_template(served):
    main(["lab", str(RACE / "a"), str(RACE / "b")])
    template, written = (
        json.loads(path.read_text("utf-8")) for path in (TEMPLATES[1], Path("two_runs.ipynb"))
    )
    odd = [a["id"] for a, b in zip(template["cells"], written["cells"], strict=True) if a != b]
    assert odd == ["parameters"]
    assert {**template, "cells": []} == {**written, "cells": []}


def test_nothing_is_replaced_not_even_a_report(served):
    Path("two_runs.ipynb").write_text("mine")
    Path("two_runs-2.html").write_text("my report")
    main(["lab", str(RACE / "a"), str(RACE / "b")])
    assert served == [["two_runs-3.ipynb"]]
    assert parameters("two_runs-3.ipynb")["report"] == "two_runs-3.html"
    assert Path("two_runs.ipynb").read_text() == "mine"


def test_a_chosen_name_replaces_nothing_either(served):
    for _ in range(2):
        main(["lab", str(RACE / "a"), str(RACE / "b"), "-o", "notes/monday.ipynb"])
    assert served == [["notes/monday.ipynb"], ["notes/monday-2.ipynb"]]


def test_a_name_that_is_taken_at_the_last_moment_is_left_alone(served, monkeypatch):
    free = lab._free
    monkeypatch.setattr(lab, "_free", lambda path: (Path("two_runs.ipynb").touch(), free(path))[1])
    Path("other").mkdir()
    lab._write_new(Path("two_runs.ipynb"), {"cells": []})
    Path("two_runs.ipynb").write_text("mine")
    assert lab._write_new(Path("two_runs.ipynb"), {"cells": []}) == Path("two_runs-2.ipynb")
    assert Path("two_runs.ipynb").read_text() == "mine"


def test_a_folder_that_takes_no_file_is_named_with_what_to_do(served, capsys):
    Path("taken").write_text("a file")
    assert main(["lab", str(RACE / "a"), str(RACE / "b"), "-o", "taken/monday.ipynb"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("detlab lab: taken/monday.ipynb cannot be written: ")
    assert "Errno" not in told
    assert told.endswith("\nHint: give -o a file in a writable folder\n")
    assert served == []


def test_a_path_that_is_full_of_quotes_is_a_python_literal(served, tmp_path):
    odd = tmp_path / "it's \"); import os \\ \n\x1b"
    odd.mkdir()
    main(["lab", str(odd), str(odd)])
    assert parameters("two_runs.ipynb")["run_a"] == str(odd)


def test_one_run_gets_a_notebook_of_its_own(served):
    assert main(["lab", str(SPIKE / "monday.log")]) == 0
    assert served == [["one_run.ipynb"]]
    assert parameters("one_run.ipynb") == {"run": str(SPIKE / "monday.log")}


def test_without_runs_a_copy_of_the_first_sample_notebook_is_opened(served):
    assert main(["lab"]) == 0
    assert served == [["01_first_divergence.ipynb"]]
    assert json.loads(Path("01_first_divergence.ipynb").read_text("utf-8"))["cells"][0]["id"] == "question"


def test_without_runs_an_installed_package_opens_jupyterlab_itself(served, monkeypatch, capsys):
    monkeypatch.setattr(lab, "_SAMPLE", Path("nowhere.ipynb"))
    assert main(["lab"]) == 0
    assert (served, list(Path().iterdir()), capsys.readouterr().out) == ([[]], [], "")


@pytest.mark.parametrize(
    ("runs", "why"),
    [(["no", "nowhere"], "no does not exist."), (["a", "b", "c"], "3 runs were given.")],
)
def test_runs_that_cannot_be_opened_write_nothing(runs, why, served, capsys):
    assert main(["lab", *runs]) == 2
    said = capsys.readouterr().err
    assert why in said and "\nHint: " in said
    assert (served, list(Path().iterdir())) == ([], [])


def test_without_jupyterlab_one_sentence_says_how_to_get_it(served, monkeypatch, capsys):
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    assert main(["lab", str(RACE / "a"), str(RACE / "b")]) == 2
    expected = "detlab lab: JupyterLab is not installed here.\nHint: pip install 'detlab[lab]'\n"
    assert capsys.readouterr().err == expected
    assert list(Path().iterdir()) == []


def test_an_interrupted_write_leaves_no_notebook(served, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab.json, "dumps", interrupt)
    assert main(["lab", str(RACE / "a"), str(RACE / "b")]) == 130
    assert list(Path().iterdir()) == []


# ---------------------------------------------------------------- the templates


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_begins_with_a_question_and_has_one_cell_to_fill_in(path):
    check_source(path)
    notebook = nbformat.read(path, 4)
    assert "?" in notebook.cells[0].source
    assert list(parameters(path)) in (["run"], ["run_a", "run_b", "report"])
    assert all(len(cell.source.splitlines()) <= 5 for cell in notebook.cells)


def outputs_of(path):
    """Run a notebook in its folder; give the text of what each cell shows, by its id."""
    notebook = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
    return {
        cell.id: "".join(str(each.get("data", {}).get("text/plain", "")) for each in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


@pytest.mark.parametrize(
    ("runs", "verdict", "where"),
    [
        ((RACE / "a", RACE / "b"), "DIVERGED: kernel: aten.index_put.default", "kernel"),
        ((CLEAN / "a", CLEAN / "b"), "MATCH: nothing differs", "shape: (0,"),
        ((SPIKE / "monday.log", SPIKE / "rerun.log"), "DIVERGED: monday and rerun differ", "NOT REPRODUCED"),
    ],
    ids=["race", "clean", "spike"],
)
def test_the_notebook_of_two_runs_runs_to_its_end(runs, verdict, where, served, tmp_path):
    main(["lab", *map(str, runs)])
    shown = outputs_of(tmp_path / "two_runs.ipynb")
    assert verdict in shown["verdict"] and where in shown["where"]
    assert (tmp_path / "two_runs.html").exists() == all(run.is_dir() for run in runs)


@pytest.mark.parametrize(
    ("run", "said"),
    [(SPIKE / "monday.log", "spike from step 218"), (RACE / "a", "loss")],
    ids=["log", "trace"],
)
def test_the_notebook_of_one_run_runs_to_its_end(run, said, served, tmp_path):
    main(["lab", str(run)])
    assert said in outputs_of(tmp_path / "one_run.ipynb")["curves"]


# ---------------------------------------------------------------- a real server


def test_a_real_jupyterlab_starts_on_the_notebook_and_ends_with_ctrl_c(tmp_path):
    homes = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")
    env = {**os.environ, **{name: str(tmp_path / name.lower()) for name in homes}}
    options = ["--no-browser", "--jupyter=--allow-root", "--jupyter=--port=0"]
    command = [sys.executable, "-m", "detlab", "lab", str(RACE / "a"), str(RACE / "b"), *options]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    give_up = threading.Timer(60, os.killpg, (process.pid, signal.SIGKILL))
    give_up.start()
    try:
        address = next((line for line in process.stderr if "/lab/tree/" in line), "none")
        assert "/lab/tree/two_runs.ipynb?token=" in address
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.5)
        process.communicate()
    finally:
        give_up.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0

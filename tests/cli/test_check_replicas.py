"""``detlab check replicas`` and ``detlab check recompute``: what they print and how they exit."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main
from detlab.testing import save_run
from tests.checks.test_replicas import norms, recomputing, seven

SCHEMA = json.loads(files("detlab").joinpath("schemas/check.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("words", "code", "begins"), [("aaa", 0, "PASS"), ("aab", 1, "FAIL"), ("a", 2, "INVALID")]
)
def test_the_verdict_stands_first_and_decides_the_exit_code(tmp_path, capsys, words, code, begins):
    folder = save_run(norms(words), tmp_path / "run")
    assert main(["check", "replicas", str(folder)]) == code
    assert capsys.readouterr().out.startswith(f"{begins}: replicas of synthetic: ")


def test_a_part_of_a_run_can_be_asked_for(tmp_path, capsys):
    folder = save_run(norms("aaab"), tmp_path / "run")
    assert main(["check", "replicas", str(folder), "--ranks", "0-2"]) == 0
    assert "not checked: ranks 3: left out by request" in capsys.readouterr().out
    assert main(["check", "replicas", str(folder), "--steps", "1"]) == 0


def test_several_runs_are_asked_for_what_they_share(tmp_path, capsys):
    folders = [str(save_run(run, tmp_path / run.label)) for run in seven()]
    assert main(["check", "replicas", *folders]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "note common factor: n55 is an outlier in 3 of 3 runs that drift" in text
    assert "next: replay the suspect step on n55 and on another host" in text


def test_the_json_form_follows_its_schema(tmp_path, capsys):
    folders = [str(save_run(run, tmp_path / run.label)) for run in seven()]
    assert main(["check", "replicas", *folders, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert (document["check"], document["table"][0]["place"]) == ("replicas", "n55")


def test_a_run_that_is_not_there_exits_with_2_and_one_message(tmp_path, capsys):
    assert main(["check", "replicas", str(tmp_path / "nowhere"), "--json"]) == 2
    told = capsys.readouterr()
    jsonschema.validate(json.loads(told.out), SCHEMA)
    assert "does not exist" in told.err


@pytest.mark.parametrize(("word", "code"), [("y", 0), ("Y", 1), (None, 2)])
def test_a_recomputation_decides_its_exit_code(tmp_path, capsys, word, code):
    folder = save_run(recomputing(word), tmp_path / "run")
    assert main(["check", "recompute", str(folder), "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["check"] == "recompute"

"""``detlab check resume``: exit codes, what is asked for, and its JSON form."""

import json
from importlib.resources import files

import pytest
from jsonschema import validate

from detlab.cli import main
from detlab.testing import save_run
from tests.checks.resume.stories import loaded, saved

SCHEMA = json.loads(files("detlab").joinpath("schemas/check.json").read_text("utf-8"))


def call(*args):
    return main(["check", "resume", *map(str, args)])


@pytest.fixture
def runs(tmp_path):
    save_run(saved(), tmp_path / "reference")
    save_run(loaded(), tmp_path / "resumed")
    save_run(loaded(numbers={"optimizer.param_groups.0.step": "0"}), tmp_path / "reset")
    return tmp_path


def golden(path, first, last, *, planted=None):
    """A log in the form of Megatron's golden values; a resumed one has "nan" for steps it did not run."""
    steps = range(1, last + 1)
    values = {str(step): round(10 - step / 8, 5) if step >= first else "nan" for step in steps}
    zeros = {str(step): 600.0 + step if step >= first else "nan" for step in steps}
    zeros |= {str(step): 1.0 for step in planted or ()}
    content = {
        name: {"start_step": 1, "end_step": last, "step_interval": 1, "values": numbers}
        for name, numbers in (("lm loss", values), ("num-zeros", zeros))
    }
    path.write_text(json.dumps(content))
    return path


def test_a_resume_that_holds_passes(runs, capsys):
    assert call(runs / "reference", runs / "resumed") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PASS: resume of ")
    assert (
        "verified: moments: 2 tensors equal, right after loading (exact: a digest over every byte)" in shown
    )
    assert "controls: 8 of 8 caught" in shown


def test_a_reset_fails_and_stands_first(runs, capsys):
    assert call(runs / "reference", runs / "reset") == 1
    assert "error optimizer step: optimizer step 3000 -> 0" in capsys.readouterr().out.split("\n\n")[1]


def test_the_json_form_is_one_of_its_schema(runs, capsys):
    for resumed in ("resumed", "reset"):
        call(runs / "reference", runs / resumed, "--json")
        content = json.loads(capsys.readouterr().out)
        validate(content, SCHEMA)
        assert content["check"] == "resume"
    assert content["findings"][0]["component"] == "optimizer step"
    assert content["findings"][0]["details"]["kind"] == "reset"


def test_golden_values_of_a_clean_resume_pass_as_printed(tmp_path, capsys):
    a, b = golden(tmp_path / "a.json", 1, 20), golden(tmp_path / "a_2nd.json", 11, 20)
    assert call(a, b) == 0
    assert "Bitwise equality was not shown" in capsys.readouterr().out


def test_golden_values_that_differ_fail_at_the_first_resumed_step(tmp_path, capsys):
    a, b = golden(tmp_path / "a.json", 1, 20), golden(tmp_path / "a_2nd.json", 11, 20, planted=[11, 12])
    assert call(a, b) == 1
    assert "first visible here: num-zeros at step 11 (resume+0)" in capsys.readouterr().out


def test_pieces_are_given_beside_the_two_sides(runs, capsys):
    (runs / "a.txt").write_text("3\n7\n0\n")
    (runs / "b.txt").write_text("7\n1\n6\n")
    assert call(runs / "reference", runs / "resumed", "--samples", runs / "a.txt", runs / "b.txt") == 1
    shown = capsys.readouterr().out
    assert "error data order" in shown
    assert "verified: parameters" in shown


def test_pieces_alone_are_enough(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("1\n2\n3\n4\n")
    (tmp_path / "b.txt").write_text("3\n4\n")
    assert call("--samples", tmp_path / "a.txt", tmp_path / "b.txt", "--offset", 2) == 0
    assert call("--samples", tmp_path / "a.txt", tmp_path / "b.txt") == 2
    assert "offset=N" in capsys.readouterr().err


def test_controls_can_be_left_out(runs, capsys):
    assert call(runs / "reference", runs / "resumed", "--no-controls") == 0
    assert "controls were not asked for" in capsys.readouterr().out


def test_a_component_alone_can_be_asked_for(runs, capsys):
    assert call(runs / "reference", runs / "reset", "--only", "parameters") == 0
    assert call(runs / "reference", runs / "reset", "--only", "soul") == 2
    assert "choose among: parameters" in capsys.readouterr().err


@pytest.mark.parametrize("args", [(), ("only one",), ("--name", "x"), ("a", "b", "--name", "x")])
def test_what_makes_no_pair_is_refused(args, capsys):
    assert call(*args) == 2
    assert "Hint: " in capsys.readouterr().err


def test_a_place_that_is_nothing_known_says_what_can_be_given(tmp_path, capsys):
    (tmp_path / "poem.txt").write_text("roses\n")
    assert call(tmp_path / "poem.txt", tmp_path / "poem.txt") == 2
    assert "is no checkpoint, no trace and no log" in capsys.readouterr().err

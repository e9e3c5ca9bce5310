"""``detlab triage``: what it prints and how it exits."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main

SCHEMA = json.loads(files("detlab").joinpath("schemas/triage.json").read_text("utf-8"))


def log(path, peak=None, shift=0.0):
    """A log of sixty steps; a peak at step 50."""
    lines = []
    for step in range(1, 61):
        loss = 2 + 0.01 * (step % 5) + shift
        loss = peak if peak and step in (50, 51) else loss
        lines.append(
            f" iteration {step:8d}/    1000 | consumed samples: {step * 8:12d} | lm loss: {loss:.6E} | "
            "grad norm: 0.300 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_calm_run_exits_with_0(tmp_path, capsys):
    assert main(["triage", log(tmp_path / "a.log")]) == 0
    assert capsys.readouterr().out.startswith("NO SPIKE in a.")


def test_a_spike_exits_with_1_and_the_conclusion_is_first(tmp_path, capsys):
    assert main(["triage", log(tmp_path / "a.log", 7)]) == 1
    assert capsys.readouterr().out.startswith(
        "NOT ENOUGH EVIDENCE: a: lm loss rose from 2.02 to 7 at step 50"
    )


def test_reruns_and_a_reference_are_held_against_it(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", 7), log(tmp_path / "b.log", 7)
    assert main(["triage", a, "--rerun", b, "--rerun", b]) == 1
    assert capsys.readouterr().out.startswith("DETERMINISTIC: a:")
    assert main(["triage", a, "--reference", log(tmp_path / "c.log", shift=0.001), "--rerun", b]) == 1
    assert capsys.readouterr().out.startswith("DIVERGED BEFORE ONSET: a:")


def test_the_json_form_follows_its_schema(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", 7), log(tmp_path / "b.log")
    assert main(["triage", a, "--rerun", b, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["conclusion"] == "not reproduced"
    assert document["spikes"][document["main"]]["onset"] == 50
    assert document["reruns"][0]["first_difference"] == {"step": 50, "metrics": ["lm loss"]}


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_input_that_cannot_be_used_exits_with_2_and_one_message(tmp_path, capsys, json_flag):
    assert main(["triage", str(tmp_path / "nowhere"), *json_flag]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"detlab triage: {tmp_path / 'nowhere'} does not exist.\nHint: ")
    if json_flag:
        document = json.loads(printed.out)
        jsonschema.validate(document, SCHEMA)
        assert document["verdict"] == "invalid"


def test_steps_that_are_not_asked_for_are_not_looked_at(tmp_path):
    assert main(["triage", log(tmp_path / "a.log", 7), "--steps", "1-40"]) == 0


def test_a_format_can_be_chosen(tmp_path):
    assert main(["triage", log(tmp_path / "a.log"), "--format", "megatron"]) == 0
    assert main(["triage", log(tmp_path / "a.log"), "--format", "no such"]) == 2

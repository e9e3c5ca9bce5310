"""``detlab check trace``: what it prints and how it exits."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main
from detlab.testing import save_run
from tests.checks.test_trace import PLANTED, sound

SCHEMA = json.loads(files("detlab").joinpath("schemas/check.json").read_text("utf-8"))


@pytest.fixture
def folder(tmp_path):
    return str(save_run(sound(), tmp_path / "run"))


def test_a_sound_trace_exits_with_0(folder, capsys):
    assert main(["check", "trace", folder]) == 0
    assert capsys.readouterr().out.startswith("PASS: trace of synthetic: 19 verified.")


def test_a_breach_exits_with_1_and_says_what_to_do(tmp_path, capsys):
    run, _ = PLANTED["nobody waited for a collective"]
    assert main(["check", "trace", str(save_run(run, tmp_path / "run"))]) == 1
    text = capsys.readouterr().out
    assert text.startswith("FAIL: trace of synthetic: 1 error; ")
    assert "next: check without the last step" in text
    assert main(["check", "trace", str(tmp_path / "run"), "--steps", "1"]) == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--expect-ranks", "0-1"], 0), (["--expect-ranks", "0-3"], 1), (["--expect-steps", "1-4"], 1),
     (["--expect-steps", "x"], 2), (["--strict"], 0)],
)  # fmt: skip
def test_what_is_expected_can_be_said(folder, options, code):
    assert main(["check", "trace", folder, *options]) == code


def test_strict_lets_a_warning_fail(tmp_path):
    run, _ = PLANTED["deterministic mode is off"]
    folder = str(save_run(run, tmp_path / "run"))
    assert [main(["check", "trace", folder, *more]) for more in ([], ["--strict"])] == [0, 1]


@pytest.mark.parametrize("planted", ["a rank lacks a step", "a digest is weak"])
def test_the_json_form_follows_its_schema(tmp_path, capsys, planted):
    run, expected = PLANTED[planted]
    main(["check", "trace", str(save_run(run, tmp_path / "run")), "--json"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert {each["code"]: each["severity"] for each in document["findings"]} == expected


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b'{"not": "a trace"}\n'])
def test_what_is_no_trace_exits_with_2_and_one_message(tmp_path, capsys, content):
    path = tmp_path / "rank_000000.jsonl"
    path.write_bytes(content)
    assert main(["check", "trace", str(path)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("detlab check: ")
    assert "Traceback" not in told.err

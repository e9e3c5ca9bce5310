"""``detlab replay``: what it prints and how it exits."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from detlab.captures import save_capture
from detlab.cli import main

SCHEMA = json.loads(files("detlab").joinpath("schemas/replay.json").read_text("utf-8"))


@pytest.fixture
def racing_run(tmp_path: Path) -> Path:
    """Give a run that holds one capture, of a call that races with more than one thread."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 1000, (1_000_000,), generator=generator)
    values = torch.randn(1_000_000, generator=generator)
    func = torch.ops.aten.index_put_.default
    args: tuple[Any, ...] = (torch.zeros(1000), [index], values, True)
    pending = save_capture(tmp_path / "captures" / "x", func, args, {}, site="1/0/backward//x#0", rank=0)
    pending.complete([func(*args)])
    return tmp_path


def test_race_exits_with_one(racing_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(racing_run), "--threads", "4", "--trials", "20"]) == 1
    assert capsys.readouterr().out.startswith("verdict   race: ")


@pytest.mark.parametrize("held", [["--threads", "1"], ["--threads", "4", "--deterministic"]], ids=" ".join)
def test_nothing_seen_exits_with_zero(
    racing_run: Path, held: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(racing_run / "captures" / "x"), "--trials", "20", *held]) == 0
    assert "13.9 %" in capsys.readouterr().out


def test_another_result_in_training_under_the_same_conditions_exits_with_one(
    racing_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = racing_run / "captures" / "x" / "capture.json"
    content = json.loads(file.read_text("utf-8"))
    content["state"]["threads"] = 1
    content["digests"]["outputs"] = ["0" * 16]
    file.write_text(json.dumps(content), "utf-8")
    assert main(["replay", str(racing_run), "--trials", "3"]) == 1
    assert capsys.readouterr().out.startswith("verdict   differs from training: ")


@pytest.mark.parametrize("columns", [70, 100, 300])
def test_lines_are_wrapped_as_those_of_the_comparison_are(
    racing_run: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    file = racing_run / "captures" / "x" / "capture.json"
    content = json.loads(file.read_text("utf-8"))
    content["state"]["env"] = {"OMP_PROC_BIND": "a long value, " * 12}
    file.write_text(json.dumps(content), "utf-8")
    main(["replay", str(racing_run), "--threads", "4", "--deterministic", "--trials", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    assert any(re.match(r"    \S", line) for line in lines)


def test_json_is_one_document_of_the_schema(racing_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["replay", str(racing_run), "--threads", "1", "--trials", "5", "--json"])
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, SCHEMA)
    assert content["class"] == "not_seen"


def test_missing_capture_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path), "--json"]) == 2
    shown = capsys.readouterr()
    assert "Hint:" in shown.err
    jsonschema.validate(json.loads(shown.out), SCHEMA)

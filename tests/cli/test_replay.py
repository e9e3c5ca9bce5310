"""``detlab replay``: what it prints and how it exits."""

from __future__ import annotations

import json
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from detlab.captures import save_capture
from detlab.cli import main
from detlab.kernel import load_replay

SCHEMA = json.loads(files("detlab").joinpath("schemas/replay.json").read_text("utf-8"))
SIZE_SCHEMA = json.loads(files("detlab").joinpath("schemas/size_sweep.json").read_text("utf-8"))


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


def test_conditions_are_named_each_with_its_number_of_trials(
    racing_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--condition", "1 thread=3", "--condition", "poisoned with nan", "--threads", "1"]
    assert main(["replay", str(racing_run), "--trials", "2", *asked, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, SCHEMA)
    assert [(row["name"], row["trials"]) for row in content["conditions"]] == [
        ("1 thread", 3),
        ("poisoned with nan", 2),
    ]


def test_json_of_the_command_is_the_report_of_another_machine(
    racing_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["replay", str(racing_run), "--condition", "4 threads=20", "--condition", "1 thread=5", "--json"])
    (tmp_path / "report.json").write_text(capsys.readouterr().out, "utf-8")
    report = load_replay(tmp_path / "report.json")
    assert (report.outcome.value, report.exit_code) == ("race", 1)
    assert repr(report).startswith("verdict   race: results of the same inputs differ in: 4 threads")


def test_isolated_call_that_outlasts_its_limit_exits_with_two(
    racing_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(racing_run), "--trials", "100000", "--time-limit", "0.5"]) == 2
    assert "timed out: ended at its time limit" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["chaos", "baseline=0", "0 threads"])
def test_condition_that_is_none_exits_with_two(
    racing_run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(racing_run), "--condition", name]) == 2
    assert "Hint:" in capsys.readouterr().err


def test_missing_capture_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path), "--json"]) == 2
    shown = capsys.readouterr()
    assert "Hint:" in shown.err
    jsonschema.validate(json.loads(shown.out), SCHEMA)


def test_device_that_is_not_here_is_to_be_left_out(
    racing_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(racing_run), "--device", "cuda:77"]) == 2
    assert (
        "leave the device out (on the command line --device) to replay it on cpu" in capsys.readouterr().err
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_each_condition_is_told_on_a_terminal_and_nowhere_else(
    racing_run: Path,
    is_terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    main(["replay", str(racing_run), "--trials", "1", "--condition", "1 thread", "--condition", "baseline"])
    told = ["replaying under: 1 thread", "replaying under: baseline"] if is_terminal else []
    assert capsys.readouterr().err.splitlines() == told


def test_function_of_ours_stands_beside_the_call(
    racing_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--threads", "4", "--trials", "5", "--against", "index_put_"]
    assert main(["replay", str(racing_run), *asked, "--json"]) in (0, 1)
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, SCHEMA)
    names = [row["name"] for row in content["alternatives"]["contenders"]]
    assert names == ["aten.index_put_.default", "index_put_"]


def test_function_of_the_user_is_imported_from_this_folder_by_its_name(
    racing_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from detlab.kernel.fixed import index_put_ as in_order\n"
    (racing_run / "of_the_user.py").write_text(source, "utf-8")
    monkeypatch.chdir(racing_run)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = "of_the_user:in_order"
    assert main(["replay", str(racing_run), "--threads", "1", "--trials", "3", "--against", name]) == 0
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "hint"),
    [("index_putt_", "is it index_put_"), ("detlab:nothing", "module of its own"), ("qqqq", "choose one of")],
)
def test_function_that_is_none_exits_with_two(
    racing_run: Path, name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(racing_run), "--against", name]) == 2
    assert hint in capsys.readouterr().err


def test_sizes_list_what_each_proves_and_match_their_schema(
    racing_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--sizes", "1/50, 1/10", "--threads", "1", "--trials", "20"]
    assert main(["replay", str(racing_run), *asked]) == 0
    shown = capsys.readouterr().out
    assert "20,000 of 1,000,000 rows" in shown
    assert shown.count("a rate above 13.9 % is excluded at 95 %") == 2
    assert main(["replay", str(racing_run), *asked, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, SIZE_SCHEMA)
    assert [size["rows"] for size in content["sizes"]] == [20_000, 100_000]


def test_race_at_a_size_exits_with_one(racing_run: Path) -> None:
    asked = ["replay", str(racing_run), "--sizes", "1", "--threads", "4", "--trials", "20"]
    assert 1 in (main(asked) for _ in range(5))  # a race is repeated until it is seen


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--sizes", "half"], "are not shares of the rows"),
        (["--sizes", "1/0"], "are not shares of the rows"),
        (["--sizes", "2"], "are not shares of the rows"),
        (["--sizes", "--standard", "--isolate"], "--sizes goes without --standard and --isolate"),
        (["--sizes", "--against", "index_put_"], "--sizes goes without --against"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_sizes_that_cannot_be_exit_with_two(
    racing_run: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(racing_run), *more]) == 2
    assert says in capsys.readouterr().err

"""``detlab check tax``: what it prints and how it exits."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main
from tests.readers.profiles.profiles import event, kern_sum, write_kineto

SCHEMA = json.loads(files("detlab").joinpath("schemas/check.json").read_text("utf-8"))


@pytest.fixture
def logs(tmp_path):
    def write(label, level):
        lines = [
            f" iteration {step:8}/ 100 | consumed samples: {step * 8} | elapsed time per iteration (ms):"
            f" {level + step % 3:.1f} | global batch size:     8 | lm loss: 2.0E+00 |\n"
            for step in range(1, 41)
        ]
        path = tmp_path / f"{label}.log"
        path.write_text("".join(lines))
        return str(path)

    return write


def tax(*args):
    return main(["check", "tax", *args])


def printed(capsys):
    return " ".join(capsys.readouterr().out.split())


def document(capsys):
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    return found


def test_the_tax_is_measured(logs, capsys):
    assert tax(logs("default", 100), logs("det", 120)) == 0
    text = printed(capsys)
    assert text.startswith("PASS: tax of default and det")
    assert "+19.8 % (95 % interval" in text


@pytest.mark.parametrize(("budget", "code"), [("0.10", 1), ("10%", 1), ("0.5", 0), ("50 %", 0)])
def test_a_budget_decides_the_exit_code(logs, budget, code):
    assert tax(logs("default", 100), logs("det", 120), "--budget", budget) == code


def test_json_has_the_table_and_fits_its_schema(logs, capsys):
    assert tax(logs("default", 100), logs("det", 120), "--budget", "0.10", "--json") == 1
    found = document(capsys)
    assert (found["verdict"], found["table"][0]["table"]) == ("fail", "step")
    assert found["findings"][0]["component"] == "step time"


def test_repeats_of_both_sides_are_compared_in_pairs(logs, capsys):
    more = ["--default", logs("default2", 101), "--deterministic", logs("det2", 121)]
    assert tax(logs("default", 100), logs("det", 120), *more) == 0
    assert "4 pairs of arms" in printed(capsys)


def test_gpu_days_are_reckoned(logs, capsys):
    assert (
        tax(logs("default", 100), logs("det", 120), "--gpus", "3072", "--days", "30", "--warm-up", "5") == 0
    )
    assert "assuming 3,072 GPUs, 30 days" in printed(capsys)


def test_profiles_print_their_tables(tmp_path, capsys):
    a = write_kineto(tmp_path / "a.json", [event(f"aten::op{n}", 10 * n, 1) for n in range(4)])
    b = write_kineto(tmp_path / "b.json", [event(f"aten::op{n}", 10 * n, 2 + n) for n in range(4)])
    assert tax(str(a), str(b), "--rows", "2") == 0
    text = printed(capsys)
    assert "op default ms determ. ms delta ms share count aten::op3 0.001 0.005 +0.004" in text
    assert "… and 2 more: see table, or --json" in text


def test_steps_of_profiles_can_be_said(tmp_path, capsys):
    for name, num in (("a", 10), ("b", 5)):
        rows = [(kernel, num * 1_000_000, num) for kernel in ("gemm", "fill", "copy")]
        (tmp_path / f"{name}.csv").write_text(kern_sum(rows))
    paths = [str(tmp_path / f"{name}.csv") for name in "ab"]
    assert tax(*paths) == 2
    assert "--profile-steps 10,5" in capsys.readouterr().err
    assert tax(*paths, "--profile-steps", "10,5") == 0


def test_what_cannot_be_used_exits_with_2_and_says_what_to_do(tmp_path, logs, capsys):
    path = tmp_path / "empty.log"
    path.write_text("")
    assert tax(str(path), logs("det", 120), "--json") == 2
    found = capsys.readouterr()
    assert json.loads(found.out)["verdict"] == "invalid"
    assert "Hint:" in found.err


@pytest.mark.parametrize(
    "args", [["--budget", "much"], ["--budget", "10"], ["--profile-steps", "x"], ["--gpus", "many"]]
)
def test_numbers_that_are_none_are_refused(logs, args):
    with pytest.raises(SystemExit) as refused:
        tax(logs("default", 100), logs("det", 120), *args)
    assert refused.value.code == 2


def test_one_profile_on_both_sides_is_refused(tmp_path, capsys):
    path = str(write_kineto(tmp_path / "a.json", [event("aten::mm", 0, 1)]))
    assert tax(path, path) == 2
    assert "was given twice" in capsys.readouterr().err


def test_names_from_files_steer_no_terminal(tmp_path, capsys):
    events = [event("aten::\x1b[31m\u202eevil", 0, 1)]
    assert tax(*(str(write_kineto(tmp_path / f"{each}.json", events)) for each in "ab")) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and "\u202e" not in text

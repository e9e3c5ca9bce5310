"""``detlab check recipe``: exit codes, JSON of the schema, two recipes, and what is wrong with a source."""

import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main
from detlab.samples import sample_path

GOOD = """\
ENV_VARS: {NCCL_ALGO: Ring, NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0, CUBLAS_WORKSPACE_CONFIG: ':4096:8'}
MODEL_ARGS: {--deterministic-mode: true, --seed: 7, --micro-batch-size: 2}
"""
BAD = """\
ENV_VARS: {NCCL_ALGO: Tree, NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0, CUBLAS_WORKSPACE_CONFIG: ':4096:8'}
MODEL_ARGS: {--deterministic-mode: true, --seed: 8, --micro-batch-size: 2}
"""


@pytest.fixture
def recipes(tmp_path):
    """Two recipes: one that keeps the rules and one with another seed and a tree."""
    paths = [tmp_path / name for name in ("good.yaml", "bad.yaml")]
    for path, text in zip(paths, (GOOD, BAD), strict=True):
        path.write_text(text, "utf-8")
    return [str(path) for path in paths]


def check(content):
    schema = json.loads(files("detlab.schemas").joinpath("check.json").read_text("utf-8"))
    jsonschema.validate(content, schema)
    return content


def test_a_recipe_that_keeps_the_rules_passes(recipes, capsys):
    assert main(["check", "recipe", recipes[0]]) == 0
    assert capsys.readouterr().out.startswith("PASS: recipe of good.yaml")


def test_a_recipe_that_breaks_one_fails_and_names_the_line_to_paste(recipes, capsys):
    assert main(["check", "recipe", recipes[1]]) == 1
    out = capsys.readouterr().out
    assert "error DET002: NCCL_ALGO is Tree" in out and "next: export NCCL_ALGO=Ring" in out


def test_the_json_is_of_the_schema(recipes, capsys):
    assert main(["check", "recipe", recipes[1], "--json"]) == 1
    content = check(json.loads(capsys.readouterr().out))
    assert [each["code"] for each in content["findings"]] == ["DET002"]
    assert content["findings"][0]["details"]["setting"] == "env.NCCL_ALGO"
    assert {row["code"] for row in content["table"]} >= {"DET001", "DET002"}


def test_two_recipes_are_compared(recipes, capsys):
    assert main(["check", "recipe", *recipes, "--json"]) == 1
    content = check(json.loads(capsys.readouterr().out))
    assert [(each["component"], each["details"]["setting"]) for each in content["findings"]] == [
        ("seeds", "args.seed"),
        ("choice of kernels", "env.NCCL_ALGO"),
    ]
    assert content["subjects"] == ["good.yaml", "bad.yaml"]


def test_the_recorded_runs_of_a_sample_are_checked(capsys):
    race = sample_path("race")
    assert main(["check", "recipe", str(race / "a")]) == 1
    assert "DET030: torch.deterministic is false" in capsys.readouterr().out
    assert main(["check", "recipe", str(race / "a"), str(race / "b")]) == 0


def test_the_framework_of_an_environment_can_be_said(tmp_path, capsys):
    path = tmp_path / "job.env"
    path.write_text("NCCL_ALGO=Tree\nPYTHONHASHSEED=0\nHOME=/home/me\n", "utf-8")
    assert main(["check", "recipe", str(path)]) == 2
    assert "does not name its framework" in capsys.readouterr().out
    assert main(["check", "recipe", str(path), "--framework", "megatron-lm"]) == 1
    assert "error DET002: NCCL_ALGO is Tree" in capsys.readouterr().out
    assert main(["check", "recipe", str(path), "--framework", "caffe"]) == 2
    assert "give one of megatron-lm" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "\n", "[]", "just words", "{unclosed: ["])
def test_a_file_that_is_no_recipe_is_exit_two(content, tmp_path, capsys):
    path = tmp_path / "odd.yaml"
    path.write_text(content, "utf-8")
    assert main(["check", "recipe", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_file_that_is_not_there_is_exit_two(tmp_path, capsys):
    assert main(["check", "recipe", str(tmp_path / "none.yaml")]) == 2
    assert "Hint:" in capsys.readouterr().err


def test_names_and_values_of_a_file_steer_no_terminal(tmp_path, capsys):
    path = tmp_path / "hostile.yaml"
    path.write_text(
        'ENV_VARS: {NCCL_ALGO: "Tree\\e[31m\\u202e"}\nMODEL_ARGS: {--deterministic-mode: true}\n', "utf-8"
    )
    assert main(["check", "recipe", str(path)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out


def test_reading_a_recipe_needs_no_torch(recipes):
    code = (
        "import sys; from detlab.cli import main; "
        f"assert main(['check', 'recipe', {recipes[0]!r}]) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_framework_for_two_recipes_is_refused(recipes, capsys):
    assert main(["check", "recipe", *recipes, "--framework", "torch"]) == 2
    assert "--framework is for the rules of one recipe" in capsys.readouterr().err

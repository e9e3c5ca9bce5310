"""``detlab check kernels``: the verdict as text, JSON and exit code."""

import json

import pytest

from detlab import compare
from detlab.cli import main
from detlab.testing import Call, make_run, save_run
from tests.readers.choices.logs import SPLIT, WHOLE, product


@pytest.fixture
def paths(tmp_path):
    """Two traces that differ in one product, its logs, and the saved comparison."""

    def run(label, odd):
        sizes = {"x": (16, 4096), "w": (4096, 32), "y" + odd: (16, 32)}
        made = make_run(
            {0: [Call("aten.mm.default", "fc", ["x", "w"], ["y" + odd], shapes=sizes, dtype="bfloat16")]}
        )
        return save_run(made, tmp_path / label)

    compare(run("a", ""), run("b", "!")).save(tmp_path / "cmp")
    for name, algo in (("split", SPLIT), ("whole", WHOLE)):
        (tmp_path / f"{name}.log").write_text(product(32, 16, 4096, algo))
    return tmp_path


def test_another_choice_fails_only_with_a_comparison_that_shows_other_bits(paths, capsys):
    logs = [str(paths / "split.log"), str(paths / "whole.log")]
    assert main(["check", "kernels", *logs]) == 2  # nothing failed, and nothing was found to hold
    assert "which may explain a difference" in capsys.readouterr().out
    assert main(["check", "kernels", *logs, "--comparison", str(paths / "cmp")]) == 1
    assert capsys.readouterr().out.startswith("FAIL: kernels of ")


def test_the_document_is_of_its_schema(paths, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    from importlib.resources import files

    main(["check", "kernels", str(paths / "split.log"), str(paths / "whole.log"), "--json"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(files("detlab").joinpath("schemas/check.json").read_text()))
    (finding,) = document["findings"]
    assert finding["component"] == "selection"
    assert finding["details"]["choice_a"].endswith("numSplitsK=3 reductionScheme=INPLACE")


def test_logs_without_choices_cannot_be_decided(tmp_path, capsys):
    (tmp_path / "console.log").write_text("iteration 1\n")
    path = str(tmp_path / "console.log")
    assert main(["check", "kernels", path, path]) == 2
    assert "nothing tells what it chose" in capsys.readouterr().out


def test_a_place_that_is_not_there_is_named_with_a_hint(capsys):
    assert main(["check", "kernels", "/nowhere/a", "/nowhere/b"]) == 2
    assert "Hint:" in capsys.readouterr().err

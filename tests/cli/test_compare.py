"""``detlab compare``: what it prints and how it exits."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main
from detlab.comparison.ignored import WHY
from detlab.schema import Flag
from detlab.testing import Call, make_run, save_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/comparison.json").read_text("utf-8"))


def saved(folder, word, **options):
    call = Call("aten.mm.default", "lin", ["w", "x"], [word])
    return str(save_run(make_run({0: [call]}, label=folder.name, **options), folder))


def test_a_match_exits_with_0_and_says_so_first(tmp_path, capsys):
    assert main(["compare", saved(tmp_path / "a", "y"), saved(tmp_path / "b", "y")]) == 0
    assert capsys.readouterr().out.startswith("MATCH: nothing differs between a and b")


def test_a_divergence_exits_with_1_and_says_where_first(tmp_path, capsys):
    assert main(["compare", saved(tmp_path / "a", "y"), saved(tmp_path / "b", "Y")]) == 1
    assert capsys.readouterr().out.startswith("DIVERGED: kernel: aten.mm.default in lin (forward)")


def test_an_incomplete_comparison_exits_with_2(tmp_path, capsys):
    a, b = saved(tmp_path / "a", "y"), saved(tmp_path / "b", "y")
    stream = tmp_path / "b" / "rank00000.events.arrows"
    stream.write_bytes(stream.read_bytes()[:-8])
    assert main(["compare", a, b]) == 2
    assert capsys.readouterr().out.startswith("INCOMPLETE: nothing differs")


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_input_that_cannot_be_used_exits_with_2_and_one_message(tmp_path, capsys, json_flag):
    assert main(["compare", saved(tmp_path / "a", "y"), str(tmp_path / "nowhere"), *json_flag]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"detlab compare: {tmp_path / 'nowhere'} does not exist.\nHint: ")
    assert printed.err.count("\n") == 2
    if json_flag:
        document = json.loads(printed.out)
        jsonschema.validate(document, SCHEMA)
        assert document["verdict"] == "invalid"


def test_two_layouts_are_refused_with_what_differs(tmp_path, capsys):
    a, b = saved(tmp_path / "a", "y", layout={"tp": 2}), saved(tmp_path / "b", "y", layout={"tp": 4})
    assert main(["compare", a, b]) == 2
    assert "different parallel layouts (tp 2 and 4)" in capsys.readouterr().err


def test_the_json_form_follows_its_schema(tmp_path, capsys):
    assert main(["compare", saved(tmp_path / "a", "y"), saved(tmp_path / "b", "Y"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert [finding["class"] for finding in document["findings"]] == ["kernel"]


@pytest.mark.parametrize(
    ("options", "code", "counted"),
    [
        ([], 0, None),
        (["--count", "padding"], 0, ["padding"]),
        (["--count", "pointers"], 1, ["pointers"]),
        (["--count", "padding,pointers"], 1, ["pointers", "padding"]),
        (["--count", "padding", "--count", "pointers"], 1, ["pointers", "padding"]),
    ],
)
def test_what_is_set_aside_can_be_counted(tmp_path, capsys, options, code, counted):
    a, b = (
        str(save_run(make_run({0: [Call("moe.pointers", "", ["w"], [word], flags=Flag.POINTERS)]}), place))
        for word, place in (("p", tmp_path / "a"), ("P", tmp_path / "b"))
    )
    assert main(["compare", a, b, "--json", *options]) == code
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document.get("counted") == counted
    assert main(["compare", a, b, *options]) == code
    assert ("counted on request: " in capsys.readouterr().out) == bool(options)


def test_an_unknown_kind_to_count_exits_with_2_and_names_the_known_ones(tmp_path, capsys):
    a, b = saved(tmp_path / "a", "y"), saved(tmp_path / "b", "y")
    assert main(["compare", a, b, "--count", "paddings"]) == 2
    assert "'paddings' is no kind of thing that is set aside; the kinds are not_" in capsys.readouterr().err


def test_the_schema_knows_every_kind():
    counted = SCHEMA["$defs"]["comparison"]["properties"]["counted"]
    assert counted["items"]["enum"] == list(WHY)


def test_a_command_is_required(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "COMMAND" in capsys.readouterr().err


def test_a_file_that_the_system_does_not_give_is_said_in_json_too(tmp_path, capsys, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "run")

    monkeypatch.setattr("detlab.readers.load_run", refuse)
    assert main(["metrics", str(tmp_path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["problems"][0]["what"] == "[Errno 13] Permission denied: 'run'"
    assert err.startswith("detlab metrics: ")

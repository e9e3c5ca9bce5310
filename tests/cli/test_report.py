"""``detlab report``: it writes one file, prints its path, and exits with 0 whatever the runs say."""

import json
from importlib.resources import files

import jsonschema

from detlab.cli import main
from detlab.testing import Call, make_run, save_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/report.json").read_text("utf-8"))


def saved(folder, word):
    return str(
        save_run(make_run({0: [Call("aten.mm.default", "lin", ["x"], [word])]}, label=folder.name), folder)
    )


def test_a_written_report_exits_with_0_though_the_runs_differ(tmp_path, capsys):
    target = tmp_path / "out" / "report.html"
    assert main(["report", saved(tmp_path / "a", "y"), saved(tmp_path / "b", "z"), "-o", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert "aten.mm.default" in target.read_text("utf-8")


def test_the_json_form_keeps_its_schema(tmp_path, capsys):
    run = saved(tmp_path / "a", "y")
    assert main(["report", run, run, "-o", str(tmp_path / "r.html"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMA)
    assert printed["verdict"] == "match"


def test_a_kind_to_count_is_passed_on(tmp_path, capsys):
    run = saved(tmp_path / "a", "y")
    assert main(["report", run, run, "-o", str(tmp_path / "r.html"), "--count", "padding,no"]) == 2
    assert "'no' is no kind of thing that is set aside" in capsys.readouterr().err
    assert main(["report", run, run, "-o", str(tmp_path / "r.html"), "--count", "padding"]) == 0


def test_runs_that_cannot_be_read_exit_with_2_and_write_nothing(tmp_path, capsys):
    target = tmp_path / "r.html"
    assert main(["report", str(tmp_path / "no"), str(tmp_path / "no"), "-o", str(target), "--json"]) == 2
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)
    assert not target.exists()

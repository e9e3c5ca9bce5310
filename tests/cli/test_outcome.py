"""How verdicts reach continuous integration: JUnit XML and GitHub's summary say what the exit code says."""

import json
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import samples
from detlab.checks.result import SEVERITIES, CheckResult, NotChecked, Problem, Verified, findings_frame
from detlab.cli import main
from detlab.cli.cases import Case, cases_of
from detlab.cli.junit import junit_xml
from detlab.cli.markdown import markdown

words = st.text(max_size=30)
rows = st.fixed_dictionaries(
    {"component": words.map("c".__add__), "severity": st.sampled_from(SEVERITIES)},
    optional=dict.fromkeys(("found", "expected", "where", "why", "next", "source"), words),
)
checks = st.builds(
    CheckResult,
    check=st.just("recipe"),
    subjects=st.tuples(words),
    findings=st.lists(rows, max_size=4).map(findings_frame),
    verified=st.lists(st.builds(Verified, words, words, words), max_size=3).map(tuple),
    not_checked=st.lists(st.builds(NotChecked, words, words), max_size=3).map(tuple),
    problems=st.lists(st.builds(Problem, words, words), max_size=2).map(tuple),
)


def counted(xml):
    """The outcome of every test case in a JUnit file."""
    cases = ElementTree.fromstring(xml).iter("testcase")
    return [next((child.tag for child in case if child.tag != "system-out"), "passed") for case in cases]


@given(checks)
def test_the_cases_say_what_the_exit_code_says(check):
    outcomes = {case.outcome for case in cases_of(check.to_json(), check.exit_code)}
    assert ("fail" in outcomes) == (check.exit_code == 1)
    assert check.exit_code != 2 or "error" in outcomes
    assert check.exit_code != 0 or ("pass" in outcomes and not outcomes & {"fail", "error"})


@given(checks)
def test_junit_counts_every_case_and_is_xml_whatever_the_names_are(check):
    cases = cases_of(check.to_json(), check.exit_code)
    xml = junit_xml("detlab check", cases)
    found = counted(xml)
    suite = ElementTree.fromstring(xml).find("testsuite")
    assert len(found) == len(cases) == int(suite.get("tests"))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(attribute)) == found.count(tag)


@given(
    st.lists(st.builds(Case, words, st.sampled_from(["pass", "fail", "error", "skipped"]), words), max_size=9)
)
def test_a_summary_has_one_row_per_case_and_no_name_breaks_its_table(cases):
    lines = markdown("detlab check", "fail", cases).split("\n")
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(cases)
    assert all(line.replace("\\|", "").count("|") == 4 for line in table)


def test_a_summary_reads_no_name_as_markup_link_or_mention():
    said = markdown("t", "fail", [Case("<img src=x> [a](http://b) @team **x** `y`", "fail", "| a |")])
    assert "&lt;img src=x&gt; \\[a\\]\\(http\\://b\\) \\@team \\*\\*x\\*\\* \\`y\\`" in said
    assert "\\| a \\|" in said


def race(which):
    return str(samples.sample_path(which) / "a"), str(samples.sample_path(which) / "b")


@pytest.mark.parametrize(("which", "code", "outcome"), [("race", 1, "failure"), ("clean", 0, "passed")])
def test_comparing_writes_both_files_and_a_second_summary_is_added(which, code, outcome, tmp_path, capsys):
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    told = ["--junit", str(junit), "--summary", str(summary)]
    assert main(["compare", *race(which), *told]) == code
    once = summary.read_text("utf-8")
    assert main(["compare", *race(which), *told, "--json"]) == code
    assert counted(junit.read_text("utf-8")) == [outcome]
    assert summary.read_text("utf-8") == once * 2
    assert json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))["schema"]


def test_runs_that_cannot_be_read_are_an_error_and_not_a_missing_file(tmp_path, capsys):
    junit = tmp_path / "junit.xml"
    assert main(["compare", "nowhere", "nowhere", "--junit", str(junit)]) == 2
    assert counted(junit.read_text("utf-8")) == ["error"]


def test_metrics_are_cases_and_measurements_decide_nothing(tmp_path, capsys):
    junit, logs = tmp_path / "junit.xml", samples.sample_path("spike")
    code = main(["metrics", str(logs / "monday.log"), str(logs / "rerun.log"), "--junit", str(junit)])
    cases = {case.get("name"): case for case in ElementTree.parse(junit).iter("testcase")}
    assert code == 1
    assert [name for name, case in cases.items() if case.find("failure") is not None] == [
        "lm loss",
        "grad norm",
    ]
    assert cases["elapsed time per iteration (ms)"].find("skipped") is not None


def test_a_folder_that_cannot_be_written_into_is_said_and_exits_with_2(tmp_path, capsys):
    junit = tmp_path / "nowhere" / "junit.xml"
    assert main(["compare", *race("clean"), "--junit", str(junit)]) == 2
    assert f"{junit} cannot be written" in capsys.readouterr().err


def test_an_accepted_difference_is_told_and_fails_no_case(tmp_path, capsys):
    accepted = tmp_path / "accepted.toml"
    accepted.write_text('[[accept]]\nreason = "known since May"\nphase = "backward"\n')
    junit = tmp_path / "junit.xml"
    assert main(["compare", *race("race"), "--accept", str(accepted), "--junit", str(junit)]) == 0
    capsys.readouterr()
    assert counted(junit.read_text("utf-8")) == ["passed", "skipped"]
    assert "accepted: known since May" in junit.read_text("utf-8")


def test_a_pipe_that_closes_early_loses_no_file_and_no_verdict(tmp_path, monkeypatch):
    def closed(*_args, **_options):
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    junit = tmp_path / "junit.xml"
    assert main(["compare", *race("race"), "--junit", str(junit)]) == 1
    assert counted(Path(junit).read_text("utf-8")) == ["failure"]


def test_a_check_that_looked_at_nothing_or_found_damage_is_never_a_pass():
    nothing = CheckResult("recipe", ("a",), findings_frame([]))
    damaged = CheckResult(
        "recipe", ("a",), findings_frame([]), (Verified("x", "holds"),), problems=(Problem("a", "cut"),)
    )
    assert [each.verdict for each in (nothing, damaged)] == ["invalid", "invalid"]
    warned = findings_frame([{"code": "DET001", "severity": "warning", "found": "x"}])
    assert CheckResult("recipe", ("a",), warned).verdict == "invalid"
    assert CheckResult("recipe", ("a",), warned, (Verified("x", "holds"),)).verdict == "pass"


def test_findings_are_worst_first_and_own_columns_come_after_the_shared_ones():
    rows = [
        {"component": str(n), "severity": each, "n": n} for n, each in enumerate(["note", "error", "note"])
    ]
    frame = findings_frame(rows, {"n": pl.Int64})
    assert frame["n"].to_list() == [1, 0, 2]
    assert frame.columns[-1] == "n"
    assert CheckResult("tax", ("a",), frame).to_json()["findings"][0]["details"] == {"n": 1}

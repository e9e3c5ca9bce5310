"""The certificate: it passes only on what was shown, and each of its controls can fail."""

import copy
import json
import shutil
from dataclasses import replace
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab import certify, load_run, samples
from detlab.checks.certificate import REQUIRED, Certificate, Scope
from detlab.checks.certificate import controls as controls_module
from detlab.checks.certificate.controls import metrics_control, trace_control
from detlab.checks.certificate.gates import Gate, checked, negative_controls, repeatability, resumed
from detlab.checks.result import CheckResult, Problem, Verified, findings_frame
from detlab.errors import InputError, NotComparable
from detlab.schema import Evidence, Flag
from detlab.store import Subset
from detlab.testing import Call, make_metrics_run, make_run
from detlab.views.certificate import certificate_html, write_certificate

SCHEMA = json.loads(files("detlab").joinpath("schemas/certificate.json").read_text("utf-8"))
NAMES = SCHEMA["$defs"]["gate"]["properties"]["name"]["enum"]
VERDICTS = ("pass", "fail", "invalid", "not shown")


def scope(**changes):
    usual = Scope("a recipe", ("monday", "tuesday"), "1-3", "0-1", 2, {"dp": 2}, "same", {}, 0)
    return usual._replace(**changes)


def certificate(verdicts, **changes):
    """A certificate whose gates have these verdicts, in the order of their names."""
    gates = tuple(Gate(name, each, "said") for name, each in zip(NAMES, verdicts, strict=True))
    return Certificate(scope(**changes), gates, "2026-11-30T12:00:00+00:00")


@given(st.lists(st.sampled_from(VERDICTS), min_size=len(NAMES), max_size=len(NAMES)))
def test_it_passes_only_when_nothing_stands_against_it_and_all_that_is_required_passed(verdicts):
    found = certificate(verdicts)
    required = [each for name, each in zip(NAMES, verdicts, strict=True) if name in REQUIRED]
    holds = set(verdicts) <= {"pass", "not shown"} and set(required) == {"pass"}
    assert (found.verdict == "pass") == holds
    assert ("fail" in verdicts) == (found.verdict == "fail")
    assert found.statement.startswith("CERTIFIED") == holds
    jsonschema.validate(found.to_json(), SCHEMA)


@pytest.mark.parametrize("silent", [name for name in NAMES if name not in REQUIRED])
def test_a_gate_without_an_answer_is_told_as_not_shown(silent):
    found = certificate(["not shown" if name == silent else "pass" for name in NAMES])
    assert found.verdict == "pass"
    assert any(each.startswith(f"{silent}: ") for each in found.not_shown)


def test_the_statement_says_no_more_than_the_scope():
    everything = ["pass"] * len(NAMES)
    said = (
        "2 runs (monday, tuesday) on the same hosts gave the same bits in all that was recorded of steps 1-3"
    )
    said += " on ranks 0-1 of 2"
    assert certificate(everything, resumes=2).statement == f"CERTIFIED: {said}."
    silent = ["not shown" if name == "resume" else "pass" for name in NAMES]
    assert certificate(silent).statement == f"CERTIFIED: {said}."
    part = certificate(everything, ranks="0", allocation="other").not_shown
    assert "any rank but 0 of 2" in part
    assert not any("another allocation" in each for each in part)
    assert any("another allocation" in each for each in certificate(everything).not_shown)
    assert any("a race can be rare" in each for each in certificate(everything).not_shown)


def calls(last="y", **options):
    return [
        Call("aten.mm.default", "fc1", ["x", "w"], ["h"], **options),
        Call("aten.mm.default", "fc2", ["h", "v"], [last], **options),
    ]


def pair(a=None, b=None):
    return [
        make_run({0: a or calls(), 1: calls()}, label="monday"),
        make_run({0: b or calls(), 1: calls()}, label="tuesday"),
    ]


def test_equal_traces_pass_and_name_their_extent():
    gate = repeatability(pair())
    assert (gate.verdict, gate.evidence) == ("pass", "exact")
    assert "ranks 2 of 2, steps 1, 4 calls" in gate.says


def test_one_differing_bit_fails_and_is_named():
    gate = repeatability(pair(b=calls("Y")))
    assert gate.verdict == "fail"
    assert "rank 0 at 1/0/forward/fc2/aten.mm.default#0 (origin)" in gate.says


@pytest.mark.parametrize("evidence", [Evidence.SCREEN, Evidence.STATISTIC, Evidence.PARTIAL])
def test_equality_that_proves_less_than_every_byte_is_no_certificate(evidence):
    weak = calls(evidence=evidence)
    gate = repeatability(pair(weak, weak))
    assert gate.verdict == "invalid"
    assert evidence.name.lower() in gate.says


def test_a_missing_rank_is_no_certificate():
    whole = make_run({0: calls(), 1: calls()}, label="monday")
    part = replace(whole, label="tuesday", ranks=whole.ranks[:1])
    assert repeatability([whole, part]).verdict == "invalid"


def test_printed_digits_are_no_certificate_and_bits_are():
    printed = [make_metrics_run({"loss": {1: "2.5", 2: "2.25"}}, label=label) for label in ("a", "b")]
    bits = [make_metrics_run({"loss": {1: 2.5, 2: 2.25}}, label=label) for label in ("a", "b")]
    other = make_metrics_run({"loss": {1: 2.5, 2: np.nextafter(2.25, 3)}}, label="c")
    assert repeatability(printed).verdict == "invalid"
    assert repeatability(bits).verdict == "pass"
    assert repeatability([bits[0], other]).verdict == "fail"


def test_a_run_is_not_compared_with_itself():
    path = samples.sample_path("clean") / "a"
    gate = repeatability([load_run(path), load_run(str(path))])
    assert gate.verdict == "invalid"
    assert "are one run, not two independent ones" in gate.says


def test_a_copy_of_a_run_is_not_a_second_run(tmp_path):
    copy = shutil.copytree(samples.sample_path("clean") / "a", tmp_path / "b")
    gate = repeatability([load_run(samples.sample_path("clean") / "a"), load_run(copy)])
    assert gate.verdict == "invalid"
    assert "both began at" in gate.says


def test_the_control_finds_a_turned_bit_in_a_trace_and_in_metrics():
    a, b = (load_run(samples.sample_path("clean") / each) for each in "ab")
    for found in (trace_control(a, b), metrics_control(a, b)):
        assert found.is_possible
        assert found.is_caught


def test_a_comparison_that_sees_nothing_is_caught_by_the_control(monkeypatch):
    a, b = pair()
    unchanged = controls_module.compare(a, b)
    monkeypatch.setattr(controls_module, "compare", lambda *_: unchanged)
    assert not trace_control(a, b).is_caught
    gate = negative_controls([a, b], Gate("repeatability", "pass", ""), Gate("resume", "not shown", ""))
    assert gate.verdict == "fail"
    assert "was not found" in gate.says


def test_a_trace_without_exact_evidence_has_no_control():
    none = [make_run({0: calls(flags=Flag.VIEW)}, label=each) for each in "ab"]
    assert not trace_control(*none).is_possible
    assert "no output with exact evidence" in trace_control(*none).says
    gate = negative_controls(none, Gate("repeatability", "pass", ""), Gate("resume", "not shown", ""))
    assert gate.verdict == "invalid"


def test_what_was_not_found_equal_needs_no_control():
    a, b = pair(b=calls("Y"))
    equal, resume = repeatability([a, b]), Gate("resume", "not shown", "")
    assert negative_controls([a, b], equal, resume).verdict == "not shown"


def raises(error):
    def check():
        raise error

    return check


def result(*severities):
    rows = [{"component": "c", "severity": each, "found": "f"} for each in severities]
    return CheckResult("recipe", ("a",), findings_frame(rows), (Verified("w", "holds"),))


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([], "not shown"),
        ([lambda: result()], "pass"),
        ([lambda: result("warning", "note")], "pass"),
        ([lambda: result(), lambda: result("error")], "fail"),
        ([lambda: result(), raises(InputError("damaged"))], "invalid"),
        ([lambda: result(), raises(NotComparable("another layout"))], "invalid"),
        ([lambda: replace(result("warning"), verified=())], "invalid"),
        ([raises(InputError("damaged")), lambda: result("error")], "fail"),
    ],
)
def test_the_worst_answer_decides_a_gate(checks, verdict):
    gate = checked("recipe", checks, "nothing was given")
    assert gate.verdict == verdict
    assert gate.says


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [("exact: every byte", "pass"), ("as printed, 5 decimals", "invalid"), ("", "invalid")],
)
def test_a_resume_that_was_shown_in_printed_digits_is_not_certified(evidence, verdict):
    shown = [Verified("parameters", "all equal", "exact: every byte"), Verified("loss", "equal", evidence)]
    found = CheckResult("resume", ("a", "b"), findings_frame([]), tuple(shown))
    assert resumed([lambda: found]).verdict == verdict


def test_what_a_run_does_not_have_is_not_shown_and_forbids_nothing():
    def without():
        return replace(result(), verified=(), problems=(Problem("a", "makes no call of its forward again."),))

    assert checked("recomputation", [without], "", may_be_empty=True).verdict == "not shown"
    assert checked("recipe", [without], "").verdict == "invalid"


def deterministic(name, *, host="n0", load=None, label="", **env):
    """A sample that says of itself that it was deterministic."""
    run = load_run(samples.sample_path("clean") / name, **(load or {}))
    ranks = []
    for rank in run.ranks:
        recipe = copy.deepcopy(dict(rank.header.recipe))
        for part, setting in (
            ("state", "deterministic"),
            ("arguments", "deterministic_mode"),
            ("model", "deterministic_mode"),
        ):
            recipe[part][setting] = True
        recipe["env"].update(env)
        recipe["host"] = host
        ranks.append(replace(rank, header=replace(rank.header, recipe=recipe)))
    return replace(run, ranks=tuple(ranks), label=label or run.label)


def later(run, label="later"):
    """The run again, as one that began at another time."""
    return replace(
        run, label=label, source="", manifest=replace(run.manifest, created="2026-12-01T00:00:00+00:00")
    )


def gates_of(found):
    return {gate.name: gate for gate in found.gates}


def test_two_deterministic_runs_are_certified_in_either_order():
    runs = [deterministic("a"), deterministic("b")]
    for order in (runs, runs[::-1]):
        found = certify(order)
        assert found.verdict == "pass"
        assert found.exit_code == 0
        jsonschema.validate(found.to_json(), SCHEMA)
    assert "repeatability: a: 60 of 4,044 calls have no evidence of their outputs" in found.not_shown
    assert any(each.startswith("recomputation: b makes no call") for each in found.not_shown)
    assert any(each.startswith("recipe: a: DET005, ") for each in found.not_shown)


def test_part_of_a_copy_is_no_second_run(tmp_path):
    whole = load_run(samples.sample_path("clean") / "a")
    copy_of = shutil.copytree(samples.sample_path("clean") / "a", tmp_path / "b")
    gate = repeatability([whole, load_run(copy_of, ranks="0")])
    assert gate.verdict == "invalid"
    assert "a copy cannot be told from a second run" in gate.says


def test_one_run_under_two_labels_is_no_second_run():
    run = pair()[0]
    assert "are one run" in repeatability([run, replace(run, label="other")]).says


def test_a_run_without_a_trace_is_not_certified_beside_two_with_one():
    runs = [deterministic("a"), deterministic("b")]
    third = replace(later(runs[0]), ranks=())
    assert len(third.metrics)
    gate = repeatability([*runs, third])
    assert (gate.verdict, "later has none" in gate.says) == ("invalid", True)


@pytest.mark.parametrize("what", ["ranks", "steps"])
def test_runs_of_which_all_share_nothing_are_not_certified_by_pairs_that_do(what):
    whole = load_run(samples.sample_path("clean") / "a")
    first = load_run(samples.sample_path("clean") / "b", **{what: 1})
    second = later(load_run(samples.sample_path("clean") / "a", **{what: 2}))
    gate = repeatability([whole, first, second])
    assert gate.verdict == "invalid"
    assert gate.says == f"no {what[:-1]} is in the traces of all 3 runs"


def test_runs_of_one_label_are_told_apart_with_their_hosts():
    found = certify([deterministic("a", label="x", host="n0"), deterministic("b", label="x", host="n1")])
    assert found.scope.allocation == "other"
    assert found.scope.hosts == {"x [1]": ("n0",), "x [2]": ("n1",)}


def test_the_same_hosts_are_claimed_only_where_every_rank_named_its_host():
    part = [deterministic("a", load={"ranks": "0"}), deterministic("b", load={"ranks": "0"})]
    found = certify(part)
    assert (found.verdict, found.scope.ranks) == ("pass", "0")
    assert found.scope.allocation == "not known"
    assert certify([replace(each, ranks=()) for each in part]).scope.allocation == "not known"


@pytest.mark.parametrize(
    ("env", "recipe"),
    [
        ({"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "1"}, {"NCCL_ALGO": "Ring"}),
        ({"NCCL_ALGO": "CollnetDirect"}, {"NCCL_ALGO": "Ring"}),
        ({}, {"NCCL_ALGO": "Ring"}),
    ],
    ids=["the runs broke a rule", "the runs had another value", "the runs did not set it"],
)
def test_a_recipe_that_the_runs_did_not_follow_certifies_nothing(env, recipe):
    found = certify([deterministic("a", **env), deterministic("b", **env)], recipe=recipe)
    assert gates_of(found)["recipe"].verdict == "fail"
    assert found.verdict == "fail"


def test_a_recipe_that_the_runs_followed_is_named_without_what_is_in_it():
    runs = [deterministic(name, NCCL_ALGO="Ring") for name in "ab"]
    flags = {"deterministic": True, "deterministic_warn_only": False, "cudnn_benchmark": False}
    recipe = {"framework": "torch", "torch": flags, "env": {"NCCL_ALGO": "Ring"}}
    assert certify(runs, recipe=recipe).verdict == "pass"
    secret = {"NCCL_ALGO": "Ring", "HF_TOKEN": "not for a certificate"}
    assert certify(runs, recipe=secret).scope.recipe == "a mapping of 2 settings"


def test_a_resume_that_cannot_be_compared_is_no_certificate():
    runs = [deterministic("a"), deterministic("b")]
    assert gates_of(certify(runs, resumes=[(runs[0], runs[1])]))["resume"].verdict == "invalid"


def test_a_resume_of_another_recipe_says_nothing_of_this_one():
    resume = [samples.sample_path("resume") / each for each in ("reference", "resumed")]
    gate = gates_of(certify([deterministic("a"), deterministic("b")], resumes=[resume]))["resume"]
    assert gate.verdict == "invalid"
    assert "of another recipe than a" in gate.says


def test_a_resume_is_counted_once_and_says_which_components_were_equal(tmp_path):
    sides = [tmp_path / name for name in ("saved.pt", "loaded.pt")]
    for side in sides:
        torch.save({"model": {"weight": torch.arange(4.0)}}, side)
    found = certify([deterministic("a"), deterministic("b")], resumes=[sides, list(map(str, sides))])
    assert found.scope.resumes == 1
    assert found.statement.endswith(", and 1 resume had equal parameters.")
    assert any(each.startswith("resume: ") and "moments" in each for each in found.not_shown)
    assert "(parameters)" in gates_of(found)["negative controls"].says


def test_a_resume_without_controls_has_no_negative_control():
    shown = CheckResult("resume", ("a", "b"), findings_frame([]), (Verified("loss", "equal", "exact: bits"),))
    gate = negative_controls([], Gate("repeatability", "fail", ""), resumed([lambda: shown]))
    assert gate.verdict == "invalid"


def test_the_control_turns_a_number_that_was_compared():
    """Not one of a step that was left out, nor one that a restart made void."""
    again = [{"loss": {1: 1.5, 2: 1.25, 3: 1.125}}, {"loss": {3: 1.0, 4: 0.5}}]
    a, b = make_metrics_run(again, label="a"), make_metrics_run(again, label="b")
    assert metrics_control(a, b).is_caught
    assert metrics_control(replace(a, subset=Subset.parse(None, "1")), b).is_caught
    zeros = [make_metrics_run({"skipped": {1: 0.0}}, label=each) for each in "ab"]
    assert metrics_control(*zeros).is_caught


def test_one_path_is_not_taken_for_a_list_of_runs():
    with pytest.raises(InputError, match="one run"):
        certify(str(samples.sample_path("clean") / "a"))


def test_the_page_escapes_names_and_holds_no_script(tmp_path):
    evil = "<script>alert(1)</script>"
    found = certificate(["pass"] * len(NAMES), runs=(evil, "b"), recipe=evil)
    page = certificate_html(found)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page
    assert write_certificate(found, tmp_path / "made" / "c.html").read_text("utf-8") == page


def test_two_runs_without_a_recipe_are_not_certified():
    found = certify(pair())
    assert found.verdict != "pass"
    assert next(gate for gate in found.gates if gate.name == "repeatability").verdict == "pass"
    jsonschema.validate(found.to_json(), SCHEMA)


def test_a_world_of_one_rank_is_shown_whole():
    found = certificate(["pass"] * len(NAMES), ranks="0", world_size=1)
    assert "of steps 1-3 on its only rank" in found.statement
    assert not any(each.startswith("any rank") for each in found.not_shown)


def test_an_environment_is_judged_by_the_rules_of_the_framework_that_is_told(tmp_path):
    environment = tmp_path / "job.env"
    environment.write_text("PATH=/bin\nNCCL_ALGO=Ring\n")
    runs = [deterministic(name, NCCL_ALGO="Ring") for name in "ab"]
    silent, told = (
        gates_of(certify(runs, recipe=environment, framework=each))["recipe"].documents[0]
        for each in (None, "torch")
    )
    assert "DET041" in [each["what"] for each in told["verified"]]
    assert "framework" in str(silent["problems"]) and "framework" not in str(told["problems"])

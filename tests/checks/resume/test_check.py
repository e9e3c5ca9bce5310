"""The whole check: what it asks for, what it says it did not see, and its negative controls."""

import json
from importlib.resources import files

import numpy as np
import polars as pl
import pytest
from jsonschema import validate

from detlab.checks.resume import check_resume, controls
from detlab.errors import InputError, NotComparable
from detlab.schema import Coordinate, Evidence, Phase
from detlab.testing import Call, make_metrics_run, make_run, save_run
from tests.checks.resume.stories import (
    STEP,
    errors,
    finding,
    loaded,
    number,
    saved,
    snapshot,
    state,
    verified,
)


def calls(result="y", *, step=STEP):
    return [
        Call("get_batch", "tokens", outputs=[f"t{step}"], step=step, phase=Phase.DATA),
        Call("get_batch", "loss_mask", outputs=[f"m{step}"], step=step, phase=Phase.DATA),
        Call("aten.mm.default", "fc", ["x", "w"], [result], step=step),
    ]


def test_a_resume_that_holds_is_verified_part_by_part():
    result = check_resume(saved(*calls()), loaded(*calls()))
    assert result.verdict == "pass"
    assert set(verified(result)) == {
        "parameters", "moments", "optimizer step", "param groups", "rng", "calls", "data order", "loss mask",
    }  # fmt: skip
    assert verified(result)["parameters"].evidence == "exact: a digest over every byte"
    assert verified(result)["optimizer step"].says == (
        "1 scalar equal (optimizer.param_groups.0.step: 3000), right after loading"
    )


def test_each_component_that_was_verified_has_a_control_that_is_caught():
    result = check_resume(saved(*calls()), loaded(*calls()))
    assert result.table["caught"].all()
    assert set(result.table["component"]) == set(verified(result))
    num = len(result.table)
    assert any(note.startswith(f"controls: {num} of {num} caught") for note in result.notes)
    assert [each._asdict() for each in controls(saved(*calls()), loaded(*calls()))] == result.table.rows(
        named=True
    )
    assert result.to_json()["table"] == result.table.rows(named=True)


def test_controls_can_be_left_out_and_it_is_said():
    result = check_resume(saved(), loaded(), controls=False)
    assert result.table.is_empty()
    assert any("controls were not asked for" in note for note in result.notes)


def test_a_control_that_is_not_noticed_makes_the_check_invalid(monkeypatch):
    monkeypatch.setattr(
        "detlab.checks.resume.negative_controls.catches", lambda judged, component: component != "rng"
    )
    result = check_resume(saved(), loaded())
    assert result.verdict == "invalid"
    assert [each.where for each in result.problems] == ["negative control"]
    assert "rng" in result.problems[0].what


def test_a_component_that_the_resumed_run_did_not_record_is_not_verified():
    result = check_resume(saved(), loaded(tensors={"rng.cuda": None}))
    assert result.verdict == "invalid"
    assert "rng" in {each.what for each in result.not_checked}
    assert "rng" not in verified(result)


def test_what_nothing_says_anything_of_is_listed():
    result = check_resume(saved(), loaded())
    assert any("scheduler, data position, data order" in each.what for each in result.not_checked)


def test_ranks_are_named_where_one_of_them_lost_its_generator():
    def run(moment, word):
        return make_run(
            {0: [state("rng.cuda", moment, "r0")], 1: [state("rng.cuda", moment, word)]}, label=moment
        )

    result = check_resume(run("saved", "r1"), run("loaded", "r0"))
    assert errors(result) == ["rng"]
    assert finding(result, "rng")["names"] == ["rank 1 rng.cuda"]
    assert "1 of 2" in finding(result, "rng")["found"]


def test_the_state_of_the_step_of_the_load_is_taken_where_several_were_saved():
    earlier = [state("rng.cuda", "saved", "r4", step=STEP - 100)]
    a = make_run({0: [*earlier, *snapshot("saved")]}, label="reference")
    assert check_resume(a, loaded()).verdict == "pass"


def test_a_load_at_a_step_at_which_nothing_was_saved_is_refused():
    a = make_run({0: [state("rng.cuda", "saved", "r", step=step) for step in (100, 200)]}, label="reference")
    b = make_run({0: [state("rng.cuda", "loaded", "r", step=1)]}, label="resumed")
    with pytest.raises(NotComparable, match="start_step"):
        check_resume(a, b)


def test_later_states_are_compared_at_the_same_step():
    def later(word):
        return [*calls(), state("model.decoder.0.fc1.weight", "saved", word, step=STEP + 3)]

    a = make_run({0: [*snapshot("saved"), *later("v")]}, label="reference")
    result = check_resume(a, loaded(*later("V")))
    assert errors(result) == ["parameters"]
    assert finding(result, "parameters")["stage"] == "state later"
    assert verified(result)["parameters"].says.endswith("right after loading")


def test_statistics_that_differ_prove_nothing():
    def run(moment, word):
        return make_run({0: [state("rng.cuda", moment, word, evidence=Evidence.STATISTIC)]}, label=moment)

    result = check_resume(run("saved", "a"), run("loaded", "b"))
    assert result.verdict == "invalid"
    assert "cannot be compared" in result.problems[0].what


def test_a_run_that_counts_its_steps_anew_is_asked_for_its_offset():
    a, b = make_run({0: calls(step=1) + calls(step=2)}), make_run({0: calls(step=1)}, label="resumed")
    with pytest.raises(NotComparable, match=r"counts its steps anew.*\nHint: give offset=N"):
        check_resume(a, b)


def test_states_are_judged_where_the_steps_are_refused():
    a = make_run({0: [*snapshot("saved"), *calls()]}, label="reference")
    b = make_run({0: [*(number("optimizer.param_groups.0.step", "loaded", "3000", step=1),), *calls(step=1)]})
    result = check_resume(a, b)
    assert result.verdict != "pass"
    assert any("counts its steps anew" in each.what for each in result.problems)


def test_another_parallel_layout_is_not_compared_and_does_not_fail():
    def run(moment, tp):
        ranks = {0: snapshot(moment) + calls(f"y{tp}")}
        return make_run(ranks, label=moment, coordinates={0: Coordinate()}, layout={"tp": tp}, world_size=tp)

    result = check_resume(run("saved", 2), run("loaded", 1))
    assert errors(result) == []
    assert any("tp 2 and 1" in each.why for each in result.not_checked)
    assert "calls" not in verified(result)


def log(first, last, changed=(), **more):
    numbers = {step: f"{5 - step / 100:.4f}" for step in range(first, last + 1)} | dict(changed)
    return make_metrics_run({"lm loss": numbers, "grad norm": dict.fromkeys(numbers, "1.000")}, **more)


def test_printed_numbers_pass_as_printed_and_not_as_bits():
    result = check_resume(log(1, 20, label="a"), log(11, 20, label="b"))
    assert result.verdict == "pass"
    assert verified(result)["loss"].says == "lm loss equal at steps 11-20 (10 steps after the resume)"
    assert "proves nothing about the bits" in verified(result)["loss"].evidence
    assert any("Bitwise equality was not shown" in note for note in result.notes)
    assert set(result.table.select("component", "caught").rows()) == {("loss", True), ("grad norm", True)}


def test_exact_numbers_pass_to_the_bit():
    def run(first, label):
        steps = range(first, 9)
        return make_metrics_run({"loss": {step: np.float32(1 / step) for step in steps}}, label=label)

    result = check_resume(run(1, "a"), run(5, "b"))
    assert verified(result)["loss"].evidence == "exact: every bit of these numbers"
    assert result.table["caught"].to_list() == [True]


def test_a_log_that_counts_anew_is_refused_and_moved_on_request():
    whole = log(1, 20, label="a")
    moved = log(1, 20, label="a").metrics.filter(pl.col("step") > 10)["value"].to_list()
    numbers = {"lm loss": {n + 1: f"{value:.4f}" for n, value in enumerate(moved[:10])}}
    local = make_metrics_run(numbers, label="b")
    with pytest.raises(NotComparable, match="counts its steps anew"):
        check_resume(whole, local)
    result = check_resume(whole, local, offset=10)
    assert set(verified(result)) == {"loss"}
    assert result.problems[0].what == "has no grad norm"


def test_a_restart_in_one_log_is_held_against_the_steps_before():
    before = {"loss": {step: f"{1 / step:.4f}" for step in range(1, 9)}}
    again = {"loss": {step: f"{1 / step:.4f}" for step in range(5, 9)}}
    assert check_resume(*2 * [make_metrics_run([before, again], label="log")]).verdict == "pass"
    again["loss"][7] = "0.1429001"
    result = check_resume(
        *2 * [make_metrics_run([before, {"loss": again["loss"] | {7: "0.2"}}], label="log")]
    )
    assert errors(result) == ["loss"]
    assert finding(result, "loss")["first_step"] == 7


def test_steps_that_the_resumed_run_lacks_in_between_are_a_problem():
    b = log(11, 20, label="b")
    holed = make_metrics_run(
        {"lm loss": {step: f"{5 - step / 100:.4f}" for step in range(11, 21) if step != 15}}, label="b"
    )
    assert check_resume(log(1, 20, label="a"), b).verdict == "pass"
    assert check_resume(log(1, 20, label="a"), holed).verdict == "invalid"


def test_a_trace_brings_its_metrics(tmp_path):
    save_run(saved(*calls()), tmp_path / "a")
    save_run(loaded(*calls()), tmp_path / "b")
    assert check_resume(tmp_path / "a", str(tmp_path / "b")).verdict == "pass"


@pytest.mark.parametrize(
    ("reference", "resumed"),
    [
        ({}, {}),
        ({"stranger": 1}, {"samples": [1]}),
        (3, 4),
        ({"checkpoint": 3}, {"checkpoint": 4}),
        ("/does/not/exist", "/does/not/exist"),
    ],
)
def test_what_is_no_side_is_refused_with_a_hint(reference, resumed):
    with pytest.raises(InputError, match="Hint"):
        check_resume(reference, resumed)


def test_two_kinds_of_evidence_have_nothing_in_common():
    with pytest.raises(NotComparable, match="nothing to compare"):
        check_resume({"samples": [1]}, log(2, 3))


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="no moment"):
        check_resume(saved(), loaded(), at="dawn")
    with pytest.raises(InputError, match="no component"):
        check_resume(saved(), loaded(), only=["soul"])


def test_only_what_was_asked_for_is_judged():
    result = check_resume(
        saved(), loaded(numbers={"optimizer.param_groups.0.step": "0"}), only=["parameters"]
    )
    assert set(verified(result)) == {"parameters"}
    assert result.verdict == "pass"
    assert {"moments", "rng", "optimizer step"} <= {each.what for each in result.not_checked}


def test_the_json_form_is_one_of_the_schema():
    schema = json.loads(files("detlab.schemas").joinpath("check.json").read_text("utf-8"))
    reset = {"optimizer.param_groups.0.step": "0"}
    result = check_resume(saved(*calls()), loaded(*calls("Y"), numbers=reset))
    validate(json.loads(json.dumps(result.to_json())), schema)


def test_a_generator_that_is_as_loaded_at_first_use_is_verified_so():
    result = check_resume(saved(*calls()), loaded(state("rng.cuda", "first use", "r5"), *calls()))
    assert result.verdict == "pass"
    assert "1 state at first use as loaded" in [each.says for each in result.verified]
    rows = result.table.filter(pl.col("how") == "other bytes at first use")
    assert rows["caught"].to_list() == [True]


def read_loss(step):
    return Call("aten._local_scalar_dense.default", "", ["loss"], results=[1.5], step=step, phase=Phase.DATA)


def test_the_end_of_the_step_before_the_resume_is_no_difference():
    result = check_resume(saved(read_loss(STEP), *calls()), loaded(*calls()))
    assert result.verdict == "pass"
    assert finding(result, "calls")["kind"] == "boundary"
    assert verified(result)["calls"].says == f"3 calls of steps {STEP} equal on 1 rank"


def test_the_same_in_a_later_step_is_a_difference():
    later = [read_loss(STEP + 1), *calls(step=STEP + 1)]
    result = check_resume(saved(*calls(), *later), loaded(*calls(), *later[1:]))
    assert result.verdict == "fail"
    assert "calls" not in verified(result)


def test_names_from_files_steer_no_terminal_and_flood_no_screen():
    name = "model.\x1b[31mred\u202e\n" + "x" * 5000 + ".weight"
    a = make_run({0: [state(name, "saved", "w")]}, label="a\x1b[2J")
    b = make_run({0: [state(name, "loaded", "W")]}, label="b")
    result = check_resume(a, b)
    assert errors(result) == ["parameters"]
    shown = repr(result)
    assert "\x1b" not in shown and "\u202e" not in shown
    assert len(shown) < 4000
    assert json.loads(json.dumps(result.to_json()))["findings"][0]["details"]["names"] == [name]


def test_a_run_of_many_ranks_is_told_in_few_words():
    def run(moment, changed=()):
        return make_run(
            {rank: [state("rng.cuda", moment, f"r{rank}{'x' * (rank in changed)}")] for rank in range(64)},
            label=moment,
        )

    result = check_resume(run("saved"), run("loaded", changed=range(3, 60)))
    assert "57 of 64 rng tensors differ after load" in finding(result, "rng")["found"]
    assert len(finding(result, "rng")["names"]) == 20
    assert len(repr(result)) < 2000


def test_tokens_that_were_recorded_at_first_use_are_data_and_compared():
    def tokens(word):
        return state("data_order.tokens", "first use", word)

    result = check_resume(saved(tokens("t")), loaded(tokens("t")))
    assert verified(result)["data order"].says == "1 tensor equal, at first use"
    assert "data order" in set(result.table["component"])
    result = check_resume(saved(tokens("t")), loaded(tokens("T")))
    assert errors(result) == ["data order"]
    assert finding(result, "data order")["stage"] == "first use"


def test_a_trace_that_is_given_twice_shows_nothing(tmp_path):
    save_run(saved(*calls()), tmp_path / "a")
    with pytest.raises(NotComparable, match="given twice"):
        check_resume(tmp_path / "a", tmp_path / "a")


def test_a_log_without_a_restart_that_is_given_twice_shows_nothing():
    run = log(5, 9, label="a")
    with pytest.raises(NotComparable, match="it has no restart"):
        check_resume(run, run)

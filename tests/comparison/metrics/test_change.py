"""A deliberate change against run-to-run variation: three gates, and the spread beside the difference."""

import json
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

from detlab.comparison.metrics.change import compare_change
from detlab.errors import NotComparable
from detlab.schema import Evidence
from detlab.testing import make_metrics_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/metrics.json").read_text("utf-8"))
LOSS, NORM = "lm loss", "grad norm"
REPEATABILITY, EQUIVALENCE, REPLAY = (
    "fixed-environment repeatability", "baseline equivalence", "restart replay",
)  # fmt: skip


def logged(label, losses, norms=None, steps=None):
    steps = steps or range(1, len(losses) + 1)
    curves = {LOSS: dict(zip(steps, losses, strict=True))}
    return make_metrics_run(
        curves | ({NORM: dict(zip(steps, norms, strict=True))} if norms else {}), label=label
    )


def verdicts(change):
    return dict(change.gates.select("gate", "verdict").rows())


def gate(change, name):
    return change.gates.filter(gate=name).row(0, named=True)


OLD = (["10.5", "10.4", "10.3"], ["2.353", "2.401", "2.388"])
NEW = (["10.5", "10.4", "10.2"], ["2.354", "2.401", "2.388"])


def test_a_deterministic_change_repeats_itself_and_does_not_equal_the_baseline():
    """O23: another order of the reduction of the norm, then other losses by clipping."""
    change = compare_change(
        [logged("A1", *OLD), logged("A2", *OLD)], [logged("B1", *NEW), logged("B2", *NEW)]
    )  # fmt: skip
    assert verdicts(change) == {REPEATABILITY: "pass", EQUIVALENCE: "fail", REPLAY: "not tested"}
    failed = gate(change, EQUIVALENCE)
    assert (failed["first_step"], failed["metrics"]) == (1, [NORM])
    assert (change.evidence, change.exit_code) == (Evidence.PRINTED, 1)
    text = " ".join(repr(change).split())
    assert "fixed-environment repeatability: PASS as printed" in text
    assert "baseline equivalence: FAIL: the changed runs differ from the baseline from step 1 on" in text
    assert "first in grad norm" in text
    assert "restart replay: not tested" in text
    assert "bitwise" not in text


def test_the_last_ulp_of_a_printed_norm_is_a_pass_as_printed_and_of_its_bits_a_fail():
    norm = np.float32(2.353)
    other = np.nextafter(norm, np.float32(3))
    exact = compare_change([logged("A", [norm])], [logged("B", [other])])
    assert (verdicts(exact)[EQUIVALENCE], exact.evidence) == ("fail", Evidence.EXACT)
    assert exact.spread["difference_ulp"].to_list() == [1.0]
    printed = compare_change([logged("A", [f"{norm:.3f}"])], [logged("B", [f"{other:.3f}"])])
    assert (verdicts(printed)[EQUIVALENCE], printed.evidence) == ("pass", Evidence.PRINTED)
    assert "equal the baseline as printed" in gate(printed, EQUIVALENCE)["why"]


def test_equal_bits_pass_to_the_last_bit():
    change = compare_change(
        [logged("A1", [2.5]), logged("A2", [2.5])], [logged("B1", [2.5]), logged("B2", [2.5])]
    )
    assert verdicts(change) == {REPEATABILITY: "pass", EQUIVALENCE: "pass", REPLAY: "not tested"}
    assert (change.exit_code, "printed" in repr(change)) == (0, False)
    assert "to the last bit" in gate(change, EQUIVALENCE)["why"]


def test_one_run_per_set_does_not_test_repeatability():
    change = compare_change([logged("A", *OLD)], [logged("B", *NEW)])
    assert verdicts(change)[REPEATABILITY] == "not tested"
    assert "has one run: repeat it" in gate(change, REPEATABILITY)["why"]


def test_one_set_that_repeats_itself_is_not_enough_and_one_that_does_not_is():
    twice = [logged("A1", *OLD), logged("A2", *OLD)]
    assert verdicts(compare_change(twice, [logged("B", *NEW)]))[REPEATABILITY] == "not tested"
    change = compare_change([logged("A1", *OLD), logged("A2", *NEW)], [logged("B", *NEW)])
    failed = gate(change, REPEATABILITY)
    assert (failed["verdict"], failed["first_step"], failed["metrics"]) == ("fail", 1, [NORM])
    assert "the baseline differs from itself from step 1 on" in gate(change, EQUIVALENCE)["why"]


def test_the_spread_stands_beside_the_difference_and_is_zero_where_runs_repeat():
    change = compare_change(
        [logged("A1", [1.0, 1.0]), logged("A2", [1.0, 1.25])],
        [logged("B1", [1.5, 1.25]), logged("B2", [1.75, 1.25])],
    )  # fmt: skip
    one, two = change.spread.to_dicts()
    assert (one["baseline_num"], one["baseline_spread"], one["baseline_spread_ulp"]) == (2, 0.0, 0.0)
    assert (one["changed_low"], one["changed_high"], one["changed_spread"]) == (1.5, 1.75, 0.25)
    assert one["changed_spread_ulp"] == 0.25 / np.spacing(np.float32(1.5))
    assert (one["difference"], one["overlap"]) == (0.625, False)
    assert (two["difference"], two["overlap"], two["changed_spread"]) == (0.125, True, 0.0)
    summed = change.metrics.row(0, named=True)
    assert (summed["steps_common"], summed["steps_apart"], summed["first_apart"]) == (2, 1, 1)
    assert (summed["baseline_spread"], summed["difference"]) == (0.25, 0.625)


def test_one_run_has_no_spread_and_is_not_said_to_repeat_itself():
    change = compare_change([logged("A1", *OLD)], [logged("B1", *NEW), logged("B2", *NEW)])
    assert change.metrics["baseline_spread"].to_list() == [None, None]
    assert change.metrics["changed_spread"].to_list() == [0.0, 0.0]
    assert change.metrics["difference"][0] == pytest.approx(0.001)
    row = next(line for line in repr(change).splitlines() if line.startswith(NORM))
    assert row.split()[2:5] == ["one", "run", "0"]
    jsonschema.validate(change.to_json(), SCHEMA)


def test_numbers_of_64_bits_are_counted_in_their_own_ulp():
    change = compare_change([logged("A", [0.1])], [logged("B", [float(np.nextafter(0.1, 1))])])
    assert change.spread["difference_ulp"].to_list() == [1.0]


def test_ranges_that_were_printed_with_other_digits_overlap_as_far_as_was_printed():
    change = compare_change([logged("A", ["2.345", "2.345"])], [logged("B", ["2.3", "2.4"])])
    assert change.spread["overlap"].to_list() == [True, False]
    assert change.spread["resolution"].to_list() == [0.1, 0.1]


def test_timings_are_no_part_of_a_change():
    runs = [
        make_metrics_run({LOSS: {1: "2.5"}, "elapsed time per iteration (ms)": {1: time}}, label=time)
        for time in ("1.5", "2.5")
    ]  # fmt: skip
    change = compare_change(runs[:1], runs[1:])
    assert (verdicts(change)[EQUIVALENCE], change.spread["name"].to_list()) == ("pass", [LOSS])


def resumed(*later, start=3):
    before = {LOSS: {1: "3.0", 2: "2.9", 3: "2.8", 4: "2.7"}}
    return make_metrics_run([before, {LOSS: dict(enumerate(later, start))}], label="resumed")


def test_steps_that_ran_twice_are_a_restart_replay():
    equal = compare_change([resumed("2.8", "2.7", "2.6")], [resumed("2.8", "2.7", "2.6")])
    passed = gate(equal, REPLAY)
    assert (passed["verdict"], "as printed" in passed["why"]) == ("pass", True)
    other = compare_change([resumed("2.8", "2.6", "2.6")], [resumed("2.8", "2.6", "2.6")])
    failed = gate(other, REPLAY)
    assert (failed["verdict"], failed["first_step"], failed["metrics"]) == ("fail", 4, [LOSS])
    assert verdicts(other)[EQUIVALENCE] == "pass"


def test_a_resumed_run_is_held_against_the_continuous_one():
    continuous = logged("whole", ["3.0", "2.9", "2.8", "2.7"])
    equal = logged("resumed", ["2.8", "2.7", "2.6"], steps=[3, 4, 5])
    other = logged("resumed", ["2.8", "2.6"], steps=[3, 4])
    sets = [logged("A", ["3.0"])], [logged("B", ["3.0"])]
    assert verdicts(compare_change(*sets, restarts=[(equal, continuous)]))[REPLAY] == "pass"
    failed = gate(compare_change(*sets, restarts=[(equal, continuous), (other, continuous)]), REPLAY)
    assert (failed["verdict"], failed["first_step"]) == ("fail", 4)


def test_a_mean_over_fewer_steps_after_a_restart_fails_no_replay():
    steps = [10, 20, 30, 40]
    continuous = logged("whole", ["3.0", "2.9", "2.8", "2.7"], ["1.0", "1.0", "1.0", "1.0"], steps)
    sets = [logged("A", ["3.0"])], [logged("B", ["3.0"])]
    fewer = logged("resumed", ["2.5", "2.7"], ["1.0", "1.0"], steps[2:])
    assert verdicts(compare_change(*sets, restarts=[(fewer, continuous)]))[REPLAY] == "pass"
    norm = logged("resumed", ["2.5", "2.7"], ["1.1", "1.0"], steps[2:])
    assert gate(compare_change(*sets, restarts=[(norm, continuous)]), REPLAY)["metrics"] == [NORM]
    each_step = logged("resumed", ["2.5", "2.7"], None, [3, 4])
    whole = logged("whole", ["3.0", "2.9", "2.8", "2.7"])
    assert gate(compare_change(*sets, restarts=[(each_step, whole)]), REPLAY)["first_step"] == 3


def test_what_cannot_be_held_against_anything_is_refused():
    a, b = logged("A", ["3.0"]), logged("B", ["3.0"])
    with pytest.raises(NotComparable, match="no changed run"):
        compare_change([a], [])
    with pytest.raises(NotComparable, match="no metric and step in common"):
        compare_change([a], [logged("B", ["3.0"], steps=[7])])
    with pytest.raises(NotComparable, match="B has no step that ran twice"):
        compare_change([a], [b], restarts=[logged("B", ["3.0"])])
    with pytest.raises(NotComparable, match="late and A have no metric and step in common"):
        compare_change([a], [b], restarts=[(logged("late", ["3.0"], steps=[7]), a)])
    with pytest.raises(NotComparable, match="holds no step metrics"):
        compare_change([a], [make_metrics_run({}, label="empty")])


def test_the_json_form_follows_its_schema_and_says_what_a_run_lacks():
    change = compare_change([logged("A1", *OLD), logged("A2", ["10.5"])], [logged("B", *NEW)])
    found = json.loads(json.dumps(change.to_json()))
    jsonschema.validate(found, SCHEMA, jsonschema.Draft202012Validator)
    assert [each["verdict"] for each in found["gates"]] == ["not tested", "fail", "not tested"]
    assert found["problems"] == [
        {"where": "A2", "what": "has no grad norm"},
        {"where": "A2", "what": "has no lm loss at steps 2-3"},
    ]
    assert "problem: A2 has no grad norm" in repr(change)

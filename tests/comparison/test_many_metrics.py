"""Classes of runs of which only logs are known, and what hosts and facts go with them."""

import json
from dataclasses import replace
from importlib.resources import files
from itertools import combinations

import jsonschema
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare_many
from detlab.comparison.metric_classes import partition_metrics
from detlab.comparison.metrics.compare import compare_metrics
from detlab.errors import InputError, NotComparable
from detlab.schema import Evidence
from detlab.testing import Call, make_metrics_run, make_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/metrics.json").read_text("utf-8"))

LOSS = "lm loss"
NOT_PRINTED = "not printed: zero, negative or NaN"


def logged(label, *numbers, name=LOSS):
    """A log that gives a metric's number at steps 1, 2 and so on."""
    return make_metrics_run({name: dict(enumerate(numbers, 1))}, label=label)


def classes(*numbers):
    """The class of each run by the one number that each of them logged."""
    runs = [logged(str(at), *([] if number == "not run" else [number])) for at, number in enumerate(numbers)]
    return partition_metrics(runs).numbers[0].tolist()


def absent(run, name=LOSS):
    """The same run, whose missing numbers of a metric would have been printed above zero."""
    lacks = (pl.col("name") == name) & (pl.col("state") == "absent")
    note = pl.when(lacks).then(pl.lit(NOT_PRINTED)).otherwise(pl.col("note").cast(pl.String))
    return replace(run, metrics=run.metrics.with_columns(note=note.cast(pl.Categorical)))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (["2.345", "2.345", "2.346"], [1, 1, 2]),
        (["2.345", "2.34", "2.35"], [0, 1, 2]),  # lies between: both can be it
        (["2.345", "2.345", "2.34"], [1, 1, 1]),
        (["2.3451", "2.3452", "2.345"], [1, 2, 0]),  # fits two that are proven different
        (["2.3451", "2.3451", "2.345", "2.3"], [1, 1, 1, 1]),
        (["9.99", "10.0"], [1, 2]),  # three significant digits each: another text is another number
        ([2.5, np.float32(2.5), "2.5"], [1, 1, 1]),
        ([0.1, np.float32(0.1)], [1, 2]),
        ([0.0, -0.0], [1, 2]),
        (["0.000", "-0.000"], [1, 2]),
        (["0.000", 1e-5], [1, 1]),
        (["nan", "inf", "-inf", "1.0", "not run"], [1, 2, 3, 4, 0]),
        ([np.nan, "nan"], [1, 1]),
        (["1.0", None], [1, 0]),  # nobody knows why it is not there
    ],
)
def test_numbers_are_equal_as_far_as_each_can_prove(numbers, expected):
    assert classes(*numbers) == expected


def test_a_number_that_is_not_printed_is_a_value_of_its_own_but_for_numbers_that_it_may_be():
    lacking = [absent(logged(label, None)) for label in "ab"]
    assert partition_metrics([*lacking, logged("c", "1.0")]).numbers.tolist() == [[1, 1, 2]]
    assert partition_metrics([*lacking, logged("c", "nan"), logged("d", "1.0")]).numbers.tolist() == [
        [0, 0, 1, 2]
    ]


def test_a_format_that_drops_trailing_zeros_hides_no_difference():
    """Of 10.5 and 10.50001, each beside other numbers of five decimals, the texts are compared."""
    one, other = logged("a", "10.12345", "10.5"), logged("b", "10.12345", "10.50001")
    assert partition_metrics([one, other]).numbers.tolist() == [[1, 1], [1, 2]]
    coarse = logged("c", "10.1", "10.5")
    assert partition_metrics([one, other, coarse]).numbers.tolist() == [[1, 1, 1], [1, 2, 0]]


def test_bits_are_compared_where_they_are_known_and_then_the_evidence_is_exact():
    one, last_bit = np.float32(2.5), np.nextafter(np.float32(2.5), np.float32(3))
    many = compare_many([logged("a", one), logged("b", one), logged("c", last_bit)])
    assert (many.classes, many.evidence) == ((("a", "b"), ("c",)), Evidence.EXACT)
    assert "as printed" not in repr(many)


def test_printed_numbers_are_equal_as_printed_and_nobody_says_bitwise():
    many = compare_many([logged("a", "2.345"), logged("b", "2.345")])
    assert (many.verdict, many.evidence) == ("match", Evidence.PRINTED)
    assert "as printed" in repr(many)
    assert "bit" not in repr(many)


def test_a_measurement_never_splits_a_class():
    runs = [
        make_metrics_run({LOSS: {1: "2.5"}, "elapsed time per iteration (ms)": {1: time}}, label=time)
        for time in ("101.5", "99.2")
    ]
    many = compare_many(runs)
    assert (many.verdict, many.metrics.names) == ("match", [LOSS])


def test_the_last_segment_of_a_step_counts():
    resumed = make_metrics_run([{LOSS: {1: "3.0", 2: "2.9"}}, {LOSS: {2: "2.5", 3: "2.4"}}], label="resumed")
    many = compare_many([resumed, logged("whole", "3.0", "2.5", "2.4")])
    assert many.verdict == "match"
    assert compare_many([resumed, logged("old", "3.0", "2.9", "2.4")]).first_step == 2
    turned = replace(resumed, metrics=resumed.metrics.reverse())
    assert compare_many([turned, logged("whole", "3.0", "2.5", "2.4")]).verdict == "match"


def test_a_number_of_no_rank_meets_that_of_the_only_rank():
    ranked = logged("ranked", "2.5")
    ranked = replace(ranked, metrics=ranked.metrics.with_columns(rank=pl.lit(7, pl.Int64)))
    assert compare_many([ranked, logged("plain", "2.5")]).verdict == "match"


def test_the_classes_by_metric_are_a_row_per_run_with_the_coarsest_resolution():
    many = compare_many([logged("a", "2.345", "1.0"), logged("b", "2.3", "1.5"), logged("c", "2.3", "1.0")])
    assert many.by_metric.rows() == [
        (1, LOSS, "a", 1, 1, 0.1), (1, LOSS, "b", 1, 1, 0.1), (1, LOSS, "c", 1, 1, 0.1),
        (2, LOSS, "a", 1, 2, 0.1), (2, LOSS, "b", 2, 2, 0.1), (2, LOSS, "c", 1, 2, 0.1),
    ]  # fmt: skip
    assert many.pair_verdict("a", "b") == ("diverged", 2)
    assert many.pair_verdict("a", "c") == ("match", None)


def test_what_a_run_lacks_or_printed_too_coarsely_is_said():
    many = compare_many(
        [logged("a", "2.3451", "1.5"), logged("b", "2.3452", "1.5"), logged("c", "2.345", "1.5")]
    )
    assert many.problems == (("c", "lm loss at step 1 cannot be put into one class"),)
    shorter = compare_many([logged("a", "1.5", "1.5"), logged("b", "1.5")])
    assert (shorter.verdict, shorter.problems) == ("incomplete", (("b", "has no lm loss at step 2"),))


def test_runs_that_no_step_has_in_common_are_refused():
    with pytest.raises(NotComparable, match="no step and no metric"):
        compare_many([logged("a", "1.0"), logged("b", "1.0", name="other")])


def test_a_log_without_numbers_or_with_two_values_of_one_is_refused():
    with pytest.raises(NotComparable, match=r"empty \(memory\) holds no step metrics"):
        compare_many([logged("a", "1.0"), make_metrics_run({}, label="empty")])
    twice = replace(logged("twice", "1.0"), log=replace(logged("b", "1.0").log, conflicts=("both 1 and 2",)))
    with pytest.raises(NotComparable, match="twice has two values of one number"):
        compare_many([logged("a", "1.0"), twice])


def test_a_log_and_a_trace_are_not_refused_for_a_layout_that_a_log_does_not_tell():
    wide = make_run(
        {0: [Call("aten.mm.default", "lin", ["w"], ["y"])]}, label="t", layout={"tp": 2}, world_size=2
    )
    with pytest.raises(NotComparable, match="no step and no metric"):
        compare_many([wide, logged("log", "1.0")])


DIGITS = st.builds(lambda size, digits: f"{size:.{digits}f}", st.floats(0.5, 2.5), st.integers(0, 3))
NUMBERS = st.one_of(DIGITS, st.sampled_from([1.0, 1.25, np.float32(1.25), "nan", "inf", "0.0", 0.0, -0.0]))


@given(st.lists(NUMBERS, min_size=2, max_size=5))
def test_classes_are_those_of_the_pairs_and_no_proven_difference_is_lost(numbers):
    runs = [logged(str(at), number) for at, number in enumerate(numbers)]
    found = partition_metrics(runs).numbers[0]
    different = False
    for a in range(len(runs)):
        for b in range(a + 1, len(runs)):
            equal = compare_metrics(runs[a], runs[b]).verdict == "match"
            different |= not equal
            if found[a] and found[b]:
                assert (found[a] == found[b]) == equal
    assert (found.max() > 1) == different


@given(st.lists(st.lists(DIGITS, min_size=3, max_size=3), min_size=2, max_size=3))
def test_formats_are_told_as_in_a_comparison_of_two(curves):
    runs = [logged(str(at), *numbers) for at, numbers in enumerate(curves)]
    found = compare_many(runs)
    for a, b in combinations(range(len(runs)), 2):
        pair = partition_metrics([runs[a], runs[b]])
        assert pair.first()[0] == compare_metrics(runs[a], runs[b]).first_step
        assert found.pair_verdict(str(a), str(b))[0] != "diverged" or pair.first()[0] is not None


@given(st.permutations(range(5)), st.lists(NUMBERS, min_size=5, max_size=5))
def test_the_order_of_the_runs_changes_no_class(order, numbers):
    def groups(chosen):
        found = classes(*(numbers[at] for at in chosen))
        return {
            frozenset(run for run, each in zip(chosen, found, strict=True) if each == number)
            for number in found
        }

    assert groups(range(5)) == groups(order)


FOUR = {
    "A1": ("1.219037E+01", "18.417"), "A2": ("1.219037E+01", "18.417"),
    "B1": ("1.219038E+01", "18.417"), "B2": ("1.219038E+01", "18.417"),
}  # fmt: skip
HOSTS = {"A1": ["n1", "n2"], "A2": ["n3", "n4"], "B1": ["n5", "n6"], "B2": ["n7", "n8"]}
RACKS = {"A1": {"racks": 1}, "A2": {"racks": 1}, "B1": {"racks": 2}, "B2": {"racks": 2}}


def four_runs():
    return [
        make_metrics_run({LOSS: {1: loss}, "grad norm": {1: norm}}, label=label)
        for label, (loss, norm) in FOUR.items()
    ]


def test_bit_exact_in_one_rack_and_in_two_by_their_logs_is_topology():
    """O22: equal within a rack and across two racks, and not to each other."""
    many = compare_many(four_runs(), hosts=HOSTS, facts=RACKS)
    assert many.classes == (("A1", "A2"), ("B1", "B2"))
    assert (many.first_step, many.metrics.first(), many.conclusion) == (1, (1, [LOSS]), "environment")
    assert (many.facts["fact"][0], many.facts["separates"].to_list()) == ("racks", [True] + [False] * 8)
    text = " ".join(repr(many).split())
    assert "4 runs in 2 classes of equal numbers as printed: {A1, A2} {B1, B2}" in text
    assert "2 reproducible classes" in text
    assert "they differ by topology (racks)" in text
    assert "Not run-to-run nondeterminism" in text
    assert "bitwise" not in text


def test_without_racks_the_hosts_of_four_runs_separate_nothing():
    assert compare_many(four_runs(), hosts=HOSTS).conclusion == "unknown"


def test_runs_on_the_same_hosts_that_differ_are_run_to_run():
    many = compare_many(four_runs(), hosts={label: ["n1", "n2"] for label in FOUR})
    assert many.conclusion == "run_to_run"


def test_hosts_that_two_runs_share_are_facts_of_the_class():
    hosts = {"A1": ["n1"], "A2": ["n1"], "B1": ["n2"], "B2": ["n2"]}
    many = compare_many(four_runs(), hosts=hosts)
    assert many.conclusion == "environment"
    assert many.facts.filter("separates")["fact"].to_list() == [
        "host n1 is in the run",
        "host n2 is in the run",
    ]


def test_hosts_of_a_run_that_is_not_there_are_refused():
    with pytest.raises(InputError, match="name A3, and there is no such run"):
        compare_many(four_runs(), hosts=HOSTS | {"A3": ["n1"]})


def test_the_json_form_has_the_classes_and_follows_its_schema():
    found = compare_many(four_runs(), hosts=HOSTS, facts=RACKS).to_json()
    jsonschema.validate(json.loads(json.dumps(found)), SCHEMA, jsonschema.Draft202012Validator)
    assert (found["runs"], found["evidence"], found["conclusion"]) == (list(FOUR), "printed", "environment")
    assert found["first"] == {"step": 1, "metrics": [LOSS]}
    assert found["classes"] == [["A1", "A2"], ["B1", "B2"]]
    norm, loss = found["metrics"]
    assert (norm["name"], norm["steps_common"], norm["steps_different"]) == ("grad norm", 1, 0)
    assert (loss["name"], loss["first_step"], loss["evidence"]) == (LOSS, 1, "printed")
    assert loss["resolution_ulp"] == pytest.approx(1e-5 / np.spacing(np.float32(12.19037)))
    assert loss["states"] == [{"state": "value", "runs": [1, 1, 1, 1]}]


def test_restarts_exact_numbers_and_traces_follow_the_schema_too():
    resumed = make_metrics_run([{LOSS: {1: 3.0, 2: "nan"}}, {LOSS: {2: None, 3: 0.0}}], label="resumed")
    trace = make_run({0: [Call("aten.mm.default", "lin", ["w"], ["y"])]}, label="t")
    for runs in ([resumed, logged("b", 3.0, 2.0), logged("c", 3.0)], [trace, trace]):
        found = json.loads(json.dumps(compare_many(runs).to_json()))
        jsonschema.validate(found, SCHEMA, jsonschema.Draft202012Validator)

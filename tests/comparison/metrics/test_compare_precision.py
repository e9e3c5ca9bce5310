"""Two numbers of one step: what each can prove, in bits or in printed digits."""

import struct

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detlab.comparison.metric_classes import partition_metrics
from detlab.comparison.metrics import compare_metrics
from detlab.comparison.metrics.precision import ulp_distance
from detlab.readers.metrics.frame import exact_metrics, missing_metrics, printed_metrics
from detlab.testing import make_metrics_run


def compared(a, b, name="lm loss", **options):
    """Compare two numbers of one step."""
    runs = [make_metrics_run({name: {1: each}}, label=label) for each, label in ((a, "a"), (b, "b"))]
    return compare_metrics(*runs, **options)


def judged(a, b):
    """The row of the two numbers."""
    values = compared(a, b).values
    return values.filter(pl.col("step") == 1).row(0, named=True)


NEXT = float(np.nextafter(np.float32(2.198845), np.float32(3)))
LOSS = float(np.float32(2.198845))


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        (np.float32(0.1), np.float32(0.1), "bit-equal"),
        (0.1, 0.1, "bit-equal"),
        (np.float32(0.1), float(np.float32(0.1)), "bit-equal"),
        (np.float32(0.1), 0.1, "differs"),
        (0.0, -0.0, "differs"),
        (np.float32(0.0), np.float32(-0.0), "differs"),
        (np.float32(0.0), -0.0, "differs"),
        ("2.198845E+00", "2.198845E+00", "equal as printed"),
        ("2.198845E+00", "2.198846E+00", "differs"),
        ("9.999999E-01", "1.000000E+00", "differs"),
        ("9.999", "10.000", "differs"),
        ("9.999E+02", "1.000E+03", "differs"),
        ("49.870", 49.8705, "equal as printed"),
        ("1.00000000", 1.0000000055, "differs"),
        ("2.198845E+00", "2.1988", "equal as printed"),
        ("2.198845E+00", "2.1989", "differs"),
        ("2.198845E+00", LOSS, "equal as printed"),
        ("2.198845E+00", NEXT, "equal as printed"),
        ("2.198845E+00", 2.198847, "differs"),
        ("0.000", "0.174", "differs"),
        ("0.000", "-0.000", "differs"),
        ("0.000", 1e-5, "equal as printed"),
        (0.0, 1e-5, "differs"),
        ("12", "12", "bit-equal"),
        ("nan", "nan", "equal as printed"),
        (float("nan"), float("nan"), "bit-equal"),
        ("nan", float("nan"), "equal as printed"),
        ("nan", "2.0", "state differs"),
        (float("nan"), 2.0, "state differs"),
        ("inf", "inf", "equal as printed"),
        ("inf", "-inf", "differs"),
        (float("inf"), 2.0, "state differs"),
        ("inf", "nan", "state differs"),
    ],
)
def test_two_numbers_are_judged_by_what_both_can_prove(a, b, outcome):
    assert judged(a, b)["outcome"] == outcome
    assert judged(b, a)["outcome"] == outcome


def test_nans_of_other_bits_differ_only_where_both_are_exact():
    other = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
    assert judged(float("nan"), other)["outcome"] == "differs"
    assert judged("nan", other)["outcome"] == "equal as printed"


@pytest.mark.parametrize(
    ("text", "ulp"),
    [
        ("4.480000E-01", 3.4),
        ("2.200000E+00", 4.2),
        ("5.100000E+00", 2.1),
        ("1.080000E+01", 10.5),
        ("8.1661", 105),
        ("18.417", 524),
        ("2.353", 4194),
        ("0.174", 67109),
    ],
)
def test_the_resolution_of_a_printed_number_is_told_in_float32_ulps(text, ulp):
    assert judged(text, text)["resolution_ulp"] == pytest.approx(ulp, rel=0.015)


def test_a_zero_has_no_resolution_in_ulps():
    assert judged("0.000", "0.000")["resolution_ulp"] is None


def test_four_significant_digits_are_ten_thousand_ulps():
    run = make_metrics_run({"reduced_train_loss": {1: "11.03"}})
    assert compare_metrics(run, run).metrics["resolution_ulp"][0] == pytest.approx(10_486, rel=0.001)


def test_o06_equal_prints_prove_nothing_and_full_precision_shows_one_ulp():
    printed = [make_metrics_run({"lm loss": {31214: "2.198845E+00"}}) for _ in "ab"]
    exact = [make_metrics_run({"lm loss": {31214: each}}) for each in (LOSS, NEXT)]
    from_logs, from_files = compare_metrics(*printed), compare_metrics(*exact)
    assert from_logs.verdict == "match"
    assert from_logs.evidence.name == "PRINTED"
    text = " ".join(repr(from_logs).split())
    assert "no difference visible at the printed precision; this proves nothing about the bits" in text
    assert "bitwise" not in text
    assert from_files.first_step == 31214
    assert from_files.first["ulp"].to_list() == [1.0]
    assert from_files.metrics["resolution"].to_list() == ["64 bits that hold numbers of 32"]
    assert "differs at 1 of 1, first 31214  by up to 1 ulp" in repr(from_files)


def test_ulps_are_of_64_bits_where_one_number_needs_them():
    a = make_metrics_run({"loss": {1: 1.0, 2: 0.1}})
    b = make_metrics_run({"loss": {1: float(np.nextafter(1.0, 2)), 2: 0.1}})
    assert compare_metrics(a, b).first["ulp"].to_list() == [1.0]


def test_ulps_of_32_against_64_bits_are_a_fraction_of_float32():
    assert judged(np.float32(0.1), 0.1)["ulp"] == pytest.approx(0.2)


def test_no_ulp_is_counted_from_printed_numbers():
    cmp = compared("2.198845E+00", "2.198846E+00")
    assert cmp.first["ulp"].to_list() == [None]
    assert cmp.metrics["max_ulp"].to_list() == [None]
    assert cmp.metrics["max_relative"][0] == pytest.approx(1e-6 / 2.198846)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 40))
def test_ulps_count_the_steps_between_representable_numbers(start, steps):
    end = np.float32(start)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            end = np.nextafter(end, np.float32(np.inf))
    assume(np.isfinite(end))
    a, b = np.array([start]), np.array([float(end)])
    narrow, mixed = np.array([True]), np.array([False])
    assert ulp_distance(a, b, narrow, mixed)[0] == steps
    assert ulp_distance(b, a, narrow, mixed)[0] == steps


def test_numbers_of_opposite_signs_are_farther_apart_than_64_bits_can_say():
    far, sides = np.array([1.7e308]), (np.array([False]), np.array([False]))
    assert ulp_distance(far, -far, *sides)[0] == pytest.approx(2.0 * int(far.view(np.int64)[0]))


def with_missing(state, note):
    """Runs of two steps, of which the first has no number in run a and 1.0 in run b."""
    a = make_metrics_run({"lm loss": {2: "1.5"}}, label="a")
    row = {"step": 1, "name": "lm loss", "state": state, "note": note}
    metrics = pl.concat([missing_metrics(pl.DataFrame([row])), a.metrics])
    object.__setattr__(a, "metrics", metrics)
    return a


@pytest.mark.parametrize(
    ("state", "note", "other", "outcome"),
    [
        ("absent", None, "1.0", "only in b"),
        ("absent", "the record is cut before its end", "1.0", "only in b"),
        ("absent", "not printed: zero, negative or NaN", "1.0", "state differs"),
        ("absent", "not printed: zero, negative or NaN", "0.000", "unknown"),
        ("absent", "not printed: zero, negative or NaN", "-1.0", "unknown"),
        ("absent", "not printed: zero, negative or NaN", "nan", "unknown"),
        ("absent", "not printed: the last iteration was skipped", "0.000", "state differs"),
        ("skipped", "not printed; the record counts skipped iterations", "1.0", "state differs"),
        ("nan", "not printed; the record counts NaN iterations", "1.0", "state differs"),
        ("nan", "not printed; the record counts NaN iterations", "nan", "equal as printed"),
    ],
)
def test_a_number_that_is_not_there_is_judged_by_why(state, note, other, outcome):
    a = with_missing(state, note)
    b = make_metrics_run({"lm loss": {1: other, 2: "1.5"}}, label="b")
    values = compare_metrics(a, b).values
    assert values.filter(pl.col("step") == 1)["outcome"].to_list() == [outcome]
    assert compare_metrics(a, b).verdict == {"state differs": "diverged", "equal as printed": "match"}.get(
        outcome, "incomplete" if outcome.startswith("only") else "match"
    )


def test_two_skipped_steps_are_in_one_state():
    runs = [with_missing("skipped", "not printed: the last iteration was skipped") for _ in "ab"]
    cmp = compare_metrics(*runs)
    assert cmp.verdict == "match"
    assert cmp.metrics["states"].to_list() == [
        [{"state": "value", "a": 1, "b": 1}, {"state": "skipped", "a": 1, "b": 1}]
    ]


def test_a_zero_printed_with_significant_digits_is_zero():
    a = make_metrics_run({"learning rate": {1: "0.000000E+00", 2: "1.000000E-07"}})
    b = make_metrics_run({"learning rate": {1: "1.000000E-12", 2: "1.000000E-07"}})
    assert compare_metrics(a, b).first_step == 1


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (["9.55048", "10.15986"], "as printed, 5 decimals"),
        (["9.999999E-01", "1.000000E+01"], "as printed, 7 significant digits"),
        (["0.1", "0.2"], "as printed, 1 decimal"),
        ([np.float32(0.1), np.float32(0.2)], "32 bits"),
        ([0.1, 0.2], "64 bits"),
        (["12", "13"], "integers"),
        (["1E+02", "3E+02"], "as printed, 1 significant digit"),
        (["0.5", "0.12345"], "as printed, 1 to 5 significant digits"),
    ],
)
def test_the_precision_of_a_metric_is_said_in_words(numbers, words):
    run = make_metrics_run({"x": dict(enumerate(numbers))})
    assert compare_metrics(run, run).metrics["resolution"].to_list() == [words]


def test_two_precisions_are_both_said():
    cmp = compared("2.198845E+00", LOSS)
    assert cmp.metrics["resolution"].to_list() == [
        "as printed, 6 decimals against 64 bits that hold numbers of 32"
    ]
    assert cmp.evidence.name == "PRINTED"


def test_a_format_that_drops_zeros_is_one_format():
    a = make_metrics_run({"loss": {1: "0.5", 2: "0.12345"}})
    b = make_metrics_run({"loss": {1: "0.50001", 2: "0.12345"}})
    assert compare_metrics(a, b).first_step == 1


@given(st.floats(0.001, 1000), st.integers(2, 6), st.integers(2, 6))
def test_one_number_printed_twice_is_never_said_to_differ(number, few, many):
    rows = [f"{number:.{few}f}", f"{number:.{many}f}"]
    assert judged(*rows)["outcome"] in ("equal as printed", "bit-equal")


@given(st.floats(0.0078125, 1024, width=32), st.integers(2, 8), st.sampled_from("ef"))
def test_a_print_of_an_exact_number_is_never_said_to_differ_from_it(number, digits, kind):
    assert judged(f"{number:.{digits}{kind}}", number)["outcome"] == "equal as printed"


def test_exact_frames_of_the_reader_keep_their_width():
    rows = pl.DataFrame({"step": [1], "name": ["x"], "value": [0.1]})
    assert exact_metrics(rows, width=32)["width"].to_list() == [32]
    assert printed_metrics(rows.with_columns(text=pl.lit("0.1")).drop("value"))["width"].to_list() == [0]


@pytest.mark.parametrize("forms", [("{:.3E}", "{:.6E}"), ("{:.4f}", "{:.5f}")])
def test_a_run_that_prints_more_digits_after_an_upgrade_equals_one_that_always_did(forms):
    numbers = {step: 2.512345 - 0.00137 * step for step in range(1, 41)}
    upgraded = {step: forms[step > 20].format(value) for step, value in numbers.items()}
    a, b, c = (
        make_metrics_run({"loss": texts}, label=label)
        for label, texts in (
            ("a", upgraded),
            ("b", {step: forms[1].format(value) for step, value in numbers.items()}),
            ("c", {step: forms[1].format(value + 0.002 * (step == 30)) for step, value in numbers.items()}),
        )
    )
    assert compare_metrics(a, b).verdict == compare_metrics(b, a).verdict == "match"
    assert compare_metrics(a, c).first_step == 30
    assert partition_metrics([a, b]).first() == (None, [])
    assert partition_metrics([a, c]).first()[0] == 30

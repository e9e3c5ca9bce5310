"""Curves over steps: bits decide, and absent, NaN and zero are different things."""

import math
import struct

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.comparison import compare
from detlab.errors import InputError
from detlab.schema import Verdict
from detlab.testing import make_metrics_run
from detlab.views import curves, divergence_by_step
from detlab.views.curves import CURVE_A, CURVE_B
from detlab.views.series import describe, first_difference, metric_pairs
from detlab.views.step_counts import divergence_counts
from detlab.views.thinning import thin
from tests.views.stories import one_origin, set_aside, story, with_metric

RUN = story("run", {0: ["y"]})
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def pairs(a, b):
    return metric_pairs(with_metric(RUN, a), with_metric(RUN, b), "loss")


def test_negative_zero_differs_from_zero():
    found = pairs([1.0, 0.0], [1.0, -0.0])
    assert found["differs"].to_list() == [False, True]
    assert first_difference(found) == 2
    assert found["difference"].to_list() == [0.0, 0.0]


def test_a_nan_equals_itself_and_differs_from_another_nan():
    assert pairs([math.nan], [math.nan])["differs"].to_list() == [False]
    assert pairs([math.nan], [OTHER_NAN])["differs"].to_list() == [True]


def test_absent_is_neither_equal_nor_different():
    found = pairs([1.0, None], [None, 2.0])
    assert found["differs"].to_list() == [None, None]
    assert first_difference(found) is None
    said = "rank 0: no step has a number in both runs; a lacks 1 step; b lacks 1 step"
    assert describe(found) == said


def test_absent_zero_and_nan_are_three_things():
    assert pairs([0.0, math.nan], [0.0, None])["b"].to_list() == [0.0, None]


@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=9))
def test_bits_differ_just_when_the_bytes_do(values):
    found = pairs([a for a, _ in values], [b for _, b in values])
    assert found["differs"].to_list() == [struct.pack("<d", a) != struct.pack("<d", b) for a, b in values]


def texts(figure):
    return [each.text for each in figure.layout.annotations]


def test_the_figure_marks_the_first_step_whose_bits_differ_and_the_first_where_it_is_seen():
    figure = curves(with_metric(RUN, [4.0, 0.0, 3.0]), with_metric(RUN, [4.0, -0.0, 3.5]), "loss")
    assert {shape.x0 for shape in figure.layout.shapes} == {2, 3}
    assert texts(figure) == ["bits differ from step 2", "visible from step 3"]
    circled = next(each for each in figure.data if each.name == "bits differ")
    assert list(circled.x) == [2, 3]
    assert figure.layout.yaxis2.type == figure.layout.yaxis3.type == "log"
    assert [list(line.y) for line in figure.data[-2:]] == [[None, None, 0.5], [None, None, 2.0**21]]


def test_equal_curves_have_no_mark():
    figure = curves(with_metric(RUN, [2.0, 1.0]), with_metric(RUN, [2.0, 1.0]), "loss")
    assert not figure.layout.shapes and texts(figure) == ["no difference that a number shows"]
    assert "the same bits in all 2 common steps" in figure.layout.title.subtitle.text


def test_gaps_and_nan_are_drawn_apart():
    figure = curves(with_metric(RUN, [1.0, None, 3.0]), with_metric(RUN, [1.0, 2.0, math.nan]), "loss")
    assert list(figure.data[0].y) == [1.0, None, 3.0] and figure.data[0].connectgaps is False
    crosses = next(each for each in figure.data if each.name == "b is NaN or infinite")
    assert list(crosses.x) == [3] and list(crosses.text) == ["nan"]


def test_curves_of_a_comparison_are_those_of_its_runs():
    cmp = compare(with_metric(RUN, [1.0]), with_metric(RUN, [2.0]))
    assert curves(cmp, "loss") == curves(cmp.a, cmp.b, "loss")


def test_a_metric_that_no_run_has_is_refused_and_the_others_are_named():
    with pytest.raises(InputError, match="Hint: choose one of: loss"):
        curves(with_metric(RUN, [1.0]), RUN, "los")


def test_markup_in_the_name_of_a_metric_stays_text():
    a = with_metric(RUN, [1.0], "<b>boom</b>")
    assert "<b>" not in curves(a, a, "<b>boom</b>").to_json().replace("\\u003c", "<")


QUIET = {step: f"{2 + step % 5 / 1000:.6E}" for step in range(1, 101)}


def test_printed_numbers_are_never_said_to_have_equal_bits():
    a = make_metrics_run({"lm loss": QUIET})
    figure = curves(a, make_metrics_run({"lm loss": QUIET}), "lm loss")
    assert figure.layout.title.subtitle.text == "no difference as printed in all 100 common steps"
    b = make_metrics_run({"lm loss": QUIET | {50: "2.000001E+00"}})
    figure = curves(a, b, "lm loss")
    assert texts(figure) == ["differs as printed from step 50"]
    assert figure.data[2].name == "differs as printed" and list(figure.data[2].x) == [50]


def test_a_spike_is_shaded_from_its_onset_to_its_recovery_in_the_colour_of_its_run():
    run = make_metrics_run({"lm loss": QUIET | {60: "4.0E+00", 61: "6.0E+00", 62: "3.0E+00"}})
    (shade,) = curves(run, "lm loss").layout.shapes
    assert (shade.type, shade.x0, shade.x1, shade.fillcolor) == ("rect", 60, 63, CURVE_A)
    both = curves(make_metrics_run({"lm loss": QUIET}), run, "lm loss")
    shades = [each for each in both.layout.shapes if each.type == "rect"]
    assert {(each.x0, each.x1, each.fillcolor) for each in shades} == {(60, 63, CURVE_B)}


def test_a_restart_is_marked_where_the_later_segment_begins():
    quiet = {step: text for step, text in QUIET.items() if step > 40}
    run = make_metrics_run([{"lm loss": {step: QUIET[step] for step in range(1, 61)}}, {"lm loss": quiet}])
    figure = curves(run, "lm loss")
    assert [each.x0 for each in figure.layout.shapes] == [41] and texts(figure) == ["restart"]


def test_a_million_steps_become_a_few_thousand_points_and_no_spike_is_lost():
    values = np.ones(1_000_000)
    values[[123_456, 777_777]] = 9.0, -9.0
    run = with_metric(RUN, values.tolist())
    line = curves(run, "loss").data[0]
    assert len(line.x) < 5_000
    found = dict(zip(line.x, line.y, strict=True))
    assert (found[123_457], found[777_778]) == (9.0, -9.0)
    assert (line.x[0], line.x[-1]) == (1, 1_000_000)


@given(
    st.lists(st.none() | st.floats(-9, 9) | st.just(math.nan), min_size=1, max_size=400), st.integers(1, 50)
)
def test_thinning_keeps_both_extremes_and_the_gaps_and_never_more_rows_than_it_says(values, num_buckets):
    frame = pl.DataFrame({"step": range(len(values)), "x": values}, {"step": pl.Int64, "x": pl.Float64})
    kept = thin(frame, ["x"], num_buckets)
    assert (kept["step"].is_sorted() and set(kept.rows()) <= set(frame.rows())) or frame["x"].is_nan().any()
    finite, left = (each["x"].filter(each["x"].is_finite()) for each in (frame, kept))
    assert (finite.min(), finite.max()) == (left.min(), left.max())
    assert len(kept) <= max(2 + 3 * num_buckets, 2 * num_buckets)
    assert (len(finite) < len(frame)) == (len(left) < len(kept))


def test_divergence_is_counted_by_step_and_verdict():
    counts = divergence_counts(one_origin())
    found = counts.filter(pl.col("num_calls") > 0).rows()
    assert found == [(1, "match", 6), (2, "match", 4), (2, "receiver", 1), (2, "origin", 1)]
    assert len(counts) == 2 * len(Verdict)


def test_the_step_figure_stacks_what_diverges_and_nothing_else():
    figure = divergence_by_step(one_origin())
    assert [(bar.name, list(bar.y)) for bar in figure.data] == [("receiver 1", [0, 1]), ("origin 1", [0, 1])]


def test_what_is_set_aside_does_not_diverge():
    assert not divergence_by_step(set_aside()).data
    assert divergence_counts(set_aside())["num_calls"].sum() == 0

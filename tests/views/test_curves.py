"""Curves over steps: bits decide, and absent, NaN and zero are different things."""

import math
import struct

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.comparison import compare
from detlab.errors import InputError
from detlab.schema import Verdict
from detlab.views import curves, divergence_by_step
from detlab.views.series import describe, divergence_counts, first_difference, metric_pairs
from tests.views.stories import one_origin, set_aside, story, with_metric

RUN = story("run", {0: ["y"]})
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def pairs(a, b):
    return metric_pairs(with_metric(RUN, a), with_metric(RUN, b), "loss")


def test_negative_zero_differs_from_zero():
    found = pairs([1.0, 0.0], [1.0, -0.0])
    assert found["bits_differ"].to_list() == [False, True]
    assert first_difference(found) == 2
    assert found["difference"].to_list() == [0.0, 0.0]


def test_a_nan_equals_itself_and_differs_from_another_nan():
    assert pairs([math.nan], [math.nan])["bits_differ"].to_list() == [False]
    assert pairs([math.nan], [OTHER_NAN])["bits_differ"].to_list() == [True]


def test_absent_is_neither_equal_nor_different():
    found = pairs([1.0, None], [None, 2.0])
    assert found["bits_differ"].to_list() == [None, None]
    assert first_difference(found) is None
    assert describe(found) == "rank 0: the same bits in all 0 common steps; a lacks 1 step; b lacks 1 step"


def test_absent_zero_and_nan_are_three_things():
    assert pairs([0.0, math.nan], [0.0, None])["b"].to_list() == [0.0, None]


@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=9))
def test_bits_differ_just_when_the_bytes_do(values):
    found = pairs([a for a, _ in values], [b for _, b in values])
    assert found["bits_differ"].to_list() == [struct.pack("<d", a) != struct.pack("<d", b) for a, b in values]


def test_the_figure_marks_the_first_step_whose_bits_differ():
    figure = curves(with_metric(RUN, [1.0, 0.0, 3.0]), with_metric(RUN, [1.0, -0.0, 3.5]), "loss")
    assert {shape.x0 for shape in figure.layout.shapes} == {2}
    circled = next(each for each in figure.data if each.name == "bits differ")
    assert list(circled.x) == [2, 3]
    assert figure.layout.yaxis2.type == "log"
    assert list(figure.data[-1].y) == [None, None, 0.5]


def test_equal_curves_have_no_mark():
    figure = curves(with_metric(RUN, [1.0, 2.0]), with_metric(RUN, [1.0, 2.0]), "loss")
    assert not figure.layout.shapes
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

"""Figures of a replay, from its JSON form: every number is in the picture, and every name stays text."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from detlab.errors import InputError
from detlab.views import distinct_results, ulp_histogram
from detlab.views.static_figure import StaticFigure

HOSTILE = '<img src=x onerror="alert(1)">'

REPORT: dict[str, Any] = {
    "schema": "detlab.replay/1",
    "class": "race",
    "op": "aten.index_put.default",
    "site": "1/0/backward/embedding/aten.index_put.default#1",
    "problems": [],
    "conditions": [
        {"name": "4 threads", "trials": 60, "distinct": 12, "modal_share": 0.25,
         "upper_bound_95": None, "interval_95": [0.62, 0.85], "status": "done", "note": ""},
        {"name": "1 thread", "trials": 60, "distinct": 1, "modal_share": 1.0,
         "upper_bound_95": 0.05, "interval_95": [0.0, 0.06], "status": "done", "note": ""},
        {"name": "broken", "trials": 0, "distinct": 0, "modal_share": 0.0,
         "upper_bound_95": None, "interval_95": None, "status": "crashed", "note": "ended by SIGSEGV"},
    ],
    "outputs": [
        {"index": 0, "distinct": 12, "elements_different": 9, "max_ulp": 5, "quantum_log2": None,
         "ulp_histogram": [6, 2, 1]},
        {"index": 1, "distinct": 1, "elements_different": 0, "max_ulp": None, "quantum_log2": None,
         "ulp_histogram": []},
    ],
}  # fmt: skip


class Report:
    def to_json(self) -> dict[str, Any]:
        return REPORT


def traces(fig: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in fig.data if trace.name}


def test_each_condition_is_named_with_its_numbers_in_their_order() -> None:
    fig = distinct_results(REPORT)
    assert list(fig.layout.yaxis.categoryarray) == [
        "4 threads: 12 of 60",
        "1 thread: 1 of 60",
        "broken: crashed",
    ]
    assert list(traces(fig)["distinct results"].x) == [12, 1]


def test_rate_has_its_interval_and_a_bound_where_nothing_was_seen() -> None:
    fig = distinct_results(REPORT)
    rate = traces(fig)["rate of other results with its 95 % interval"]
    bound = traces(fig)["none seen: a rate beyond is excluded at 95 %"]
    assert (list(rate.y), list(rate.x)) == (["4 threads: 12 of 60"], [75.0])
    assert (list(bound.y), list(bound.x)) == (["1 thread: 1 of 60"], [5.0])
    lines = [list(trace.x) for trace in fig.data if trace.mode == "lines"]
    assert lines[1:] == [[62.0, 85.0, None], [0.0, 5.0, None]]


def test_histogram_counts_numbers_by_their_distance() -> None:
    (bars,) = ulp_histogram(REPORT).data
    assert (list(bars.x), list(bars.y)) == (["1", "2..3", "4..7"], [6, 2, 1])
    assert ulp_histogram(REPORT).layout.title.subtitle.text == "up to 5 ULP from the first result"


def test_nothing_that_differs_is_said_in_words() -> None:
    body = REPORT | {"outputs": REPORT["outputs"][1:]}
    assert ulp_histogram(body).layout.title.subtitle.text == "no two numbers differ"


def test_report_itself_gives_the_same_figure() -> None:
    assert distinct_results(Report()).to_dict() == distinct_results(REPORT).to_dict()
    assert ulp_histogram(Report()).to_dict() == ulp_histogram(REPORT).to_dict()


def test_without_plotly_they_are_a_picture_with_the_same_names() -> None:
    for fig in (distinct_results(REPORT), ulp_histogram(REPORT)):
        assert isinstance(fig, StaticFigure)
        assert "<script" not in fig.static_html()


@pytest.mark.parametrize("field", ["op", "site"])
def test_hostile_call_stays_text(field: str) -> None:
    for fig in (distinct_results(REPORT | {field: HOSTILE}), ulp_histogram(REPORT | {field: HOSTILE})):
        assert HOSTILE not in fig.to_json()
        assert HOSTILE not in fig.static_html()


def test_hostile_condition_stays_text() -> None:
    body = copy.deepcopy(REPORT)
    body["conditions"][0]["name"] = HOSTILE
    fig = distinct_results(body)
    assert fig.layout.yaxis.categoryarray[0].startswith("&lt;img src=x")
    assert HOSTILE not in fig.static_html()


def test_report_without_trials_is_refused() -> None:
    with pytest.raises(InputError, match="holds no trial"):
        distinct_results({"schema": "detlab.replay/1", "class": "invalid", "problems": []})

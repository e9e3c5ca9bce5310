"""The metrics panel: light curves that select steps, and one zoomable chart on request."""

from types import SimpleNamespace

import pytest

from detlab.errors import InputError
from detlab.samples import sample_path
from detlab.testing import make_metrics_run
from detlab.widgets.metrics_panel import MetricsPanel
from detlab.widgets.selection import Selection
from tests.widgets.explorer_stories import act, assert_only_text, read


def panel(curve_a, curve_b, **options):
    """Draw one loss of two runs."""
    runs = (
        make_metrics_run({"loss": curve}, label=label) for label, curve in (("a", curve_a), ("b", curve_b))
    )
    return MetricsPanel(*runs, **options)


ONE_ULP = {1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.0, 2: 1.0000000000000002, 3: 1.0}


def test_the_metric_that_differs_first_is_drawn_first():
    a = make_metrics_run({"early": {1: 1.0, 2: 1.0}, "late": {1: 1.0, 2: 1.0}, "same": {1: 1.0, 2: 1.0}})
    b = make_metrics_run({"early": {1: 2.0, 2: 1.0}, "late": {1: 1.0, 2: 2.0}, "same": {1: 1.0, 2: 1.0}})
    shown = MetricsPanel(a, b)
    assert (shown.metric, shown.metrics.names) == ("early", ["early", "late", "same"])


def test_a_measurement_of_the_machine_is_never_the_first_difference():
    a = make_metrics_run({"elapsed time (ms)": {1: 1.0, 2: 1.0}, "loss": {1: 1.0, 2: 1.0}})
    b = make_metrics_run({"elapsed time (ms)": {1: 9.0, 2: 9.0}, "loss": {1: 1.0, 2: 2.0}})
    shown = MetricsPanel(a, b)
    assert shown.metric == "loss"
    shown.metric = "elapsed time (ms)"
    assert "proves nothing about the bits" in shown.chart.html
    assert 'class="mark"' not in shown.chart.html


def test_the_first_difference_is_marked_and_said():
    shown = panel(*ONE_ULP)
    assert 'class="mark"' in shown.chart.html
    assert "bits first differ at step 2, then in 1 of 3 common steps" in read(shown.chart.html).text


def test_a_click_on_a_curve_selects_its_step():
    shown = panel(*ONE_ULP)
    places = [button for button in read(shown.chart.html).buttons if button.get("step")]
    assert {button["step"] for button in places} == {"1", "2", "3"}
    act(shown.chart, step="2")
    assert shown.selection.step == 2


def test_the_numbers_of_the_selected_step_have_all_their_digits():
    shown = panel(*ONE_ULP)
    act(shown.chart, step="2")
    text = read(shown.chart.html).text
    assert "a 1.0 b 1.0000000000000002 by its bits bits differ |a - b| 2.22e-16 ulp 1" in text


def test_those_without_a_mouse_go_from_one_differing_step_to_the_next():
    curve = dict.fromkeys(range(1, 9), 1.0)
    shown = panel(curve, {**curve, 3: 2.0, 5: 2.0, 7: 2.0})
    assert "first that differs: 3" in read(shown.chart.html).text
    act(shown.chart, step="5")
    assert "one before: 3" in read(shown.chart.html).text
    assert "next one: 7" in read(shown.chart.html).text


def test_of_a_long_curve_each_stretch_selects_the_step_that_differs():
    curve = dict.fromkeys(range(1, 2001), 1.0)
    shown = panel(curve, {**curve, 1234: 2.0})
    places = [
        attrs for tag, attrs in read(shown.chart.html).tags if tag == "button" and "aria-label" in attrs
    ]
    assert "1234" in {place["data-step"] for place in places}
    assert len(places) <= 3 * 60
    assert len(shown.chart.html) < 100_000


def test_another_metric_is_drawn_when_it_is_chosen():
    runs = [make_metrics_run({"loss": {1: 1.0}, "norm": {1: value}}) for value in (3.0, 4.0)]
    shown = MetricsPanel(*runs)
    assert shown.metric == "norm"
    shown._choice.value = "loss"
    assert shown.metric == "loss"
    assert "the same bits in all 1 common steps" in shown.chart.html


@pytest.mark.parametrize("data", [{}, {"step": "soon"}, {"step": None}], ids=str)
def test_a_click_on_no_step_changes_nothing(data):
    shown = panel(*ONE_ULP)
    act(shown.chart, **data)
    assert shown.selection.step is None


def test_a_metric_that_no_run_has_is_refused():
    with pytest.raises(InputError, match="neither run has a metric 'joy'") as refused:
        panel(*ONE_ULP, metric="joy")
    assert "loss" in refused.value.hint


def test_gaps_and_nan_are_drawn_and_said():
    shown = panel({1: 1.0, 2: float("nan"), 3: 1.0}, {1: 1.0, 3: 1.0})
    text = read(shown.chart.html).text
    assert "b lacks 1 step" in text
    assert "a is NaN or infinite in 1" in text
    assert "\N{MULTIPLICATION SIGN}" in text


def test_a_metric_without_any_number_says_so():
    shown = panel({1: None}, {1: None})
    assert "No step of this metric was logged" in shown.chart.html or "absent" in shown.chart.html
    assert shown.twin().html


def test_the_zoomable_chart_is_made_on_request_and_sends_nothing_anywhere():
    shown = panel(*ONE_ULP, selection=Selection(step=2))
    assert shown._holder.children == ()
    shown._zoom.click()
    (figure,) = shown._holder.children
    assert figure._config["showSendToCloud"] is False
    assert figure.layout.shapes[-1].x0 == 2
    shown.selection.step = 3
    assert figure.layout.shapes[-1].x0 == 3
    num_shapes = len(figure.layout.shapes)
    shown.selection.step = None
    assert len(figure.layout.shapes) == num_shapes - 1
    shown._zoom.click()
    assert shown._holder.children == ()


def test_a_point_of_the_zoomable_chart_selects_its_step():
    shown = panel(*ONE_ULP)
    shown._zoom.click()
    (figure,) = shown._holder.children
    figure.data[0]._dispatch_on_click(SimpleNamespace(xs=[3]), None)
    assert shown.selection.step == 3
    figure.data[0]._dispatch_on_click(SimpleNamespace(xs=[]), None)
    assert shown.selection.step == 3


def test_there_is_never_more_than_one_zoomable_chart():
    runs = [make_metrics_run({"loss": {1: 1.0, 2: 1.0}, "norm": {1: value, 2: 1.0}}) for value in (3.0, 4.0)]
    shown = MetricsPanel(*runs)
    shown._zoom.click()
    shown._choice.value = "loss"
    (figure,) = shown._holder.children
    assert "loss" in figure.layout.title.text


def test_the_twin_draws_the_metrics_without_script_and_style_sheet():
    logs = sample_path("spike")
    twin = MetricsPanel(logs / "monday.log", logs / "rerun.log").twin()
    found = read(twin.html)
    assert [attrs["alt"].partition(":")[0] for tag, attrs in found.tags if tag == "img"] == [
        "lm loss",
        "grad norm",
    ]
    assert "first differs, as printed, at step 218" in found.text
    assert "lm loss: first differs" in twin.text
    assert not {"script", "style", "svg", "button"} & {tag for tag, _ in found.tags}


def test_hostile_names_of_metrics_and_runs_stay_text():
    for name in ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>\x1b[2J\u202e'):
        runs = [make_metrics_run({name: {1: value, 2: 1.0}}, label=name) for value in (1.0, 2.0)]
        shown = MetricsPanel(*runs)
        act(shown.chart, step="1")
        assert_only_text(shown.chart.html)
        assert_only_text(shown.twin().html)
        shown._zoom.click()
        assert "<script" not in shown._holder.children[0].layout.title.text

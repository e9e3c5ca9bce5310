"""Figures show themselves where plotly does not run, say in words what they show, and upload nothing."""

import base64
import re
from xml.etree import ElementTree

import nbformat
import numpy as np
import plotly.graph_objects as go
import pytest
from nbclient import NotebookClient

from detlab import check_tax, compare, load_run, views
from detlab.samples import sample_path
from detlab.testing import Call, make_metrics_run, make_run
from detlab.views.figures import new_figure, style

SVG = "{http://www.w3.org/2000/svg}"
PLOTLY = "application/vnd.plotly.v1+json"


def drawn(fig):
    """The picture in the twin of a figure, as an element tree."""
    source = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', fig.static_html())[1]
    return ElementTree.fromstring(base64.b64decode(source))


def words(tree):
    return [each.text for each in tree.iter(f"{SVG}text")]


def circles(tree):
    return [(float(each.get("cx")), float(each.get("cy"))) for each in tree.iter(f"{SVG}circle")]


def lines(tree):
    return [each.get("points").split() for each in tree.iter(f"{SVG}polyline")]


def figure(*traces, **layout):
    fig = new_figure(traces)
    style(fig, "a title", "what it found", 340)
    return fig.update_layout(**layout)


def cmp_of(scope="lin", op="aten.mm.default"):
    calls = [Call(op, scope, ["x"], ["y"]), Call(op, scope, ["y"], ["z"])]
    other = [calls[0], Call(op, scope, ["y"], ["w"])]
    return compare(make_run({0: calls, 1: calls}, label="a"), make_run({0: other, 1: calls}, label="b"))


RUN_A = make_metrics_run({"loss": {1: 2.5, 2: 2.25, 3: 2.0}}, label="monday")
RUN_B = make_metrics_run({"loss": {1: 2.5, 2: 2.25, 3: 3.0}}, label="tuesday")

FIGURES = {
    "map": lambda: views.heatmap(cmp_of()),
    "steps": lambda: views.divergence_by_step(cmp_of()),
    "two curves": lambda: views.curves(RUN_A, RUN_B, "loss"),
    "one curve": lambda: views.curves(RUN_A, "loss"),
    "tax": lambda: views.tax(
        check_tax(*(make_metrics_run({"step_time": dict.fromkeys(range(9), t)}) for t in (1, 2)))
    ),
}


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_every_figure_has_a_twin_that_asks_for_nothing_and_runs_nothing(make):
    fig = make()
    bundle = fig._repr_mimebundle_()
    assert list(bundle) == ["text/html", "text/plain"]  # outside a kernel nobody draws with plotly
    shown = bundle["text/html"]
    assert "<script" not in shown and "http" not in re.sub('src="[^"]*"', "", shown)
    inside = ElementTree.tostring(drawn(fig)).decode().replace("http://www.w3.org/2000/svg", "")
    assert "http" not in inside and "script" not in inside


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_no_figure_offers_to_upload_its_data(make, tmp_path, monkeypatch):
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    fig = make()
    written = tmp_path / "figure.html"
    fig.write_html(written, include_plotlyjs=False)
    for page in (
        fig.to_html(include_plotlyjs=False),
        fig.to_html({"scrollZoom": True}, include_plotlyjs=False),
    ):
        assert '"showSendToCloud": false' in page and "plotly.com" not in page
    assert '"showSendToCloud": false' in written.read_text("utf-8")
    config = fig._repr_mimebundle_()[PLOTLY]["config"]
    assert (config["showSendToCloud"], config["plotlyServerURL"]) == (False, "")
    live = go.FigureWidget(fig)  # a widget keeps the layout, and with it what is taken off its bar
    assert "sendChartToCloud" in live.layout.modebar.remove


def test_the_widget_keeps_its_upload_button_away_only_because_it_was_told_to():
    assert not (go.FigureWidget(go.Figure()).layout.modebar.remove or ())


def test_the_words_of_a_figure_say_what_it_found():
    assert views.curves(RUN_A, RUN_B, "loss")._repr_mimebundle_()["text/plain"] == (
        "loss\nbits first differ at step 3, then in 1 of 3 common steps\n"
        "shown: a: monday, b: tuesday, bits differ"
    )


# ---------------------------------------------------------------- marks


def test_a_higher_value_stands_higher_and_a_later_step_further_right():
    (x1, y1), (x2, y2) = circles(drawn(figure(go.Scatter(x=[1, 2], y=[5, 7], mode="markers"))))
    assert x1 < x2 and y1 > y2


def test_a_missing_value_is_a_gap_and_nan_is_one_too():
    y = [1.0, 2.0, None, 3.0, 4.0, float("nan"), 5.0, 6.0]
    tree = drawn(figure(go.Scatter(x=list(range(8)), y=y, mode="lines")))
    assert [len(run) for run in lines(tree)] == [2, 2, 2]


def test_a_logarithmic_axis_has_equal_room_for_every_power_and_none_for_zero():
    tree = drawn(figure(go.Scatter(x=[1, 2, 3, 4], y=[1, 100, 10_000, 0], mode="markers"), yaxis_type="log"))
    heights = [y for _, y in circles(tree)]
    assert len(heights) == 3 and np.ptp(np.diff(heights)) < 0.11
    assert {"1e0", "1e2", "1e4"} <= set(words(tree))


def test_every_cell_of_a_map_is_a_pixel_and_an_origin_has_a_diamond():
    tree = drawn(views.heatmap(cmp_of()))
    (image,) = tree.iter(f"{SVG}image")
    png = base64.b64decode(image.get("href").partition(",")[2])
    assert int.from_bytes(png[16:20]) == 2 and int.from_bytes(png[20:24]) == 2
    diamonds = [each for each in tree.iter(f"{SVG}path") if each.get("fill") == "#c51b1b"]
    assert len(diamonds) == 2  # in the map and in the legend
    assert {"origin 1", "match 3"} <= set(words(tree))


def test_a_map_has_a_row_for_each_rank_and_none_for_its_legend():
    assert [word for word in words(drawn(views.heatmap(cmp_of()))) if "dp" in word] == [
        "0 · tp0 dp0",
        "1 · tp0 dp1",
    ]
    assert "None" not in words(drawn(views.heatmap(cmp_of())))


def test_stacked_bars_stand_on_each_other():
    tree = drawn(figure(go.Bar(x=["1"], y=[3], name="p"), go.Bar(x=["1"], y=[2], name="q"), barmode="stack"))
    low, high = [each for each in tree.iter(f"{SVG}rect") if float(each.get("width")) > 300][1:]
    assert float(high.get("y")) + float(high.get("height")) == pytest.approx(float(low.get("y")), abs=0.2)
    assert float(low.get("height")) / float(high.get("height")) == pytest.approx(1.5, rel=0.01)


def test_bars_keep_the_pattern_that_tells_them_apart_without_colour():
    bar = go.Bar(x=["1"], y=[3], name="p", marker={"color": "#123456", "pattern": {"shape": "x"}})
    fills = [each.get("fill") for each in drawn(figure(bar)).iter(f"{SVG}rect")]
    assert fills.count("#123456") == fills.count("url(#cross)") == 2  # in the picture and in the legend


def test_what_marks_a_step_stands_at_that_step():
    tree = drawn(views.curves(RUN_A, RUN_B, "loss"))
    reds = [each for each in tree.iter(f"{SVG}line") if each.get("stroke") == "#c51b1b"]
    places = sorted({each.get("x1") for each in reds})
    assert len(places) == 1 and float(places[0]) == pytest.approx(max(x for x, _ in circles(tree)), abs=0.1)
    assert "bits differ from step 3" in words(tree)


def test_a_twin_follows_what_is_done_to_its_figure():
    fig = figure(go.Scatter(x=[1, 2], y=[5, 7], name="first"))
    fig.add_scatter(x=[1, 2], y=[6, 6], name="second")
    assert {"first", "second"} <= set(words(drawn(fig)))
    assert "second" in fig._repr_mimebundle_()["text/plain"]


def test_names_with_markup_and_formulas_stay_text():
    tree = drawn(
        figure(
            go.Scatter(x=[1], y=[1], name="a: &lt;b&gt;x&lt;/b&gt; &#36;y&#36;", mode="markers"),
            showlegend=True,
        )
    )
    assert "a: <b>x</b> $y$" in words(tree)


def test_a_figure_without_any_data_is_drawn_empty():
    assert circles(drawn(figure())) == []


def test_a_curve_that_never_changes_is_drawn():
    tree = drawn(figure(go.Scatter(x=[1, 2], y=[5, 5], mode="lines")))
    assert len(lines(tree)[0]) == 2


def test_a_long_log_makes_a_small_twin():
    log = load_run(sample_path("spike") / "monday.log")
    assert len(views.curves(log, "lm loss").static_html()) < 100_000


# ---------------------------------------------------------------- a real notebook and a real export


def test_an_exported_notebook_shows_the_twin_and_jupyter_still_gets_plotly(tmp_path):
    from nbconvert import HTMLExporter

    cell = (
        "import detlab as dl\nfrom detlab.testing import make_metrics_run\n"
        "dl.views.curves(make_metrics_run({'loss': {1: 2.5, 2: 2.25}}, label='monday'), 'loss')"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert next(iter(output.data)) == PLOTLY and set(output.data) == {PLOTLY, "text/html", "text/plain"}
    assert output.data[PLOTLY]["config"]["showSendToCloud"] is False
    page, _ = HTMLExporter(embed_images=True).from_notebook_node(notebook)
    picture = re.search('src="([^"]*)"', output.data["text/html"])[1]
    assert picture in page and "<b>loss</b><br/>no spike" in page
    assert "Plotly.newPlot" not in page

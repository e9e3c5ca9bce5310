"""The map as a figure: data that a person can read off, and nothing from a file that a browser would run."""

import json
import subprocess
import sys

import pytest

from detlab.comparison import compare
from detlab.schema import Verdict
from detlab.testing import make_run
from detlab.views import heatmap
from detlab.views.pooling import MATCH, ORIGIN
from tests.views.stories import one_in_a_million, one_origin, set_aside, step_calls, story

EVIL = '<script>boom()</script><b onmouseover="boom()">x</b>\x1b[31m'


def trace(figure, name):
    return next(each for each in figure.data if (each.name or "").startswith(name))


def test_the_figure_shows_the_cells_and_names_every_verdict_with_its_count():
    figure = heatmap(one_origin())
    cells = figure.data[0]
    assert cells.z.tolist() == [[MATCH] * 3, [MATCH, ORIGIN, 1 + Verdict.RECEIVER]]
    assert list(cells.y) == ["0 · tp0 dp0", "1 · tp0 dp1"]
    legend = [each.name for each in figure.data if each.showlegend is not False and each.name]
    assert legend == ["match 10", "receiver 1", "origin 1"]
    assert "10 match, 1 receiver, 1 origin" in figure.layout.title.subtitle.text


def test_hovering_says_the_verdict_and_the_first_site():
    figure = heatmap(one_origin())
    assert figure.data[0].text[0][0] == "match"
    assert figure.data[0].text[1][1] == "origin<br>first at 2/0/backward/lin/aten.mm.default#0"


def test_hovering_a_pooled_cell_says_how_many_calls_it_is_the_worst_of():
    assert "worst of 1 x 667 calls" in heatmap(one_in_a_million(5)).data[0].hovertemplate


@pytest.mark.parametrize("place", [0, 123_456, 999_999])
def test_one_origin_in_a_million_calls_has_one_marker_of_fixed_size_at_its_place(place):
    marker = trace(heatmap(one_in_a_million(place)), "origin")
    assert list(marker.x) == [place] and list(marker.y) == ["0 · tp0 dp0"]
    assert marker.marker.size >= 9 and marker.marker.symbol == "diamond"
    assert f"lin/aten.mm.default#{place}" in marker.text[0]


def test_without_an_origin_nothing_is_marked():
    run = story("a", {0: ["y"]})
    assert not len(trace(heatmap(compare(run, run)), "origin").x)


def test_what_was_not_recorded_is_hatched_and_has_no_colour():
    run = make_run({0: step_calls(1)[:1], 1: step_calls(1)})
    figure = heatmap(compare(run, run))
    hatching = trace(figure, "untraced")
    assert (hatching.base, hatching.x, hatching.y) == ((0.5,), (2,), ("0 · tp0 dp0",))
    assert hatching.marker.pattern.shape == "/"
    assert figure.data[0].colorscale[0][1] == "rgba(0,0,0,0.00)"
    assert figure.data[0].text[0][1].startswith("untraced")


def test_where_an_op_is_not_called_nothing_is_hatched():
    figure = heatmap(one_origin(), rows="op")
    assert not [each for each in figure.data if each.name == "untraced"]
    assert figure.data[0].text[0][1] == "the op is not called here"


def test_what_is_set_aside_is_named_in_the_title_and_not_coloured():
    figure = heatmap(set_aside())
    assert figure.data[0].z.tolist() == [[MATCH]]
    assert "1 set aside" in figure.layout.title.subtitle.text


def test_steps_stand_on_the_axis_under_their_own_numbers():
    figure = heatmap(one_origin(), columns="step")
    assert list(figure.layout.xaxis.ticktext) == ["1", "2"]
    assert figure.data[0].text[0][1] == "step 2: match"
    assert list(trace(figure, "origin").x) == [1]


def test_phases_are_written_above_the_map():
    assert [note.text for note in heatmap(one_origin()).layout.annotations] == [
        "forward",
        "backward",
        "optimizer",
    ]


def test_markup_from_a_trace_stays_text_in_every_part_of_a_figure():
    a, b = (story(EVIL, {0: [word]}, scope=EVIL, op=EVIL) for word in "yz")
    cmp = compare(a, b)
    for rows in ("rank", "op"):
        text = heatmap(cmp, rows=rows).to_json()
        assert "boom" in text
        for harmful in ("<script", "<b ", "\\u003cscript", "\\u003cb ", "\\u001b", "\x1b"):
            assert harmful not in text


def test_figures_suit_dark_pages_and_upload_nothing():
    layout = heatmap(one_origin()).layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert layout.modebar.remove == ("sendChartToCloud",)
    assert layout.width is None and layout.autosize


def test_cells_travel_as_bytes():
    content = json.loads(heatmap(one_origin()).to_json())
    assert content["data"][0]["z"]["dtype"] == "u1"


@pytest.mark.parametrize(("code", "loaded"), [("", False), ("import plotly", True)])
def test_views_load_plotly_only_for_a_figure(code, loaded):
    program = f"import sys, detlab.views\n{code}\nsys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == loaded

"""The figure of the tax: largest costs first, both signs, safe names, and a picture where plotly is not."""

import base64
import re
from xml.etree import ElementTree

import pytest

from detlab import check_tax
from detlab.errors import InputError
from detlab.testing import make_metrics_run
from detlab.views import tax
from tests.readers.profiles.profiles import event, step, write_kineto

SVG = "{http://www.w3.org/2000/svg}"


def result_of(tmp_path, default, deterministic):
    paths = []
    for label, times in (("a", default), ("b", deterministic)):
        ops = [event(name, 10_000 + 1000 * n, time) for n, (name, time) in enumerate(times.items())]
        paths.append(
            write_kineto(tmp_path / f"{label}.json", [step(0, 0, 100_000 + sum(times.values())), *ops])
        )
    return check_tax(*paths)


@pytest.fixture
def result(tmp_path):
    default = {"aten::mm": 100, "aten::add": 50, "aten::scatter_add_": 30, "aten::same": 5}
    det = {"aten::mm": 90, "aten::add": 120, "aten::index_put_": 40, "aten::same": 5}
    return result_of(tmp_path, default, det)


def marks(fig):
    return {
        trace.name: list(zip(trace.y, trace.x, strict=True)) for trace in fig.data if trace.mode == "markers"
    }


def test_what_costs_and_what_saves_stand_on_both_sides_by_what_they_are(result):
    found = marks(tax(result))
    assert {name: [row for row, _ in rows] for name, rows in found.items()} == {
        "costs more": ["aten::add: +0.07 ms"],
        "only with determinism": ["aten::index_put_: +0.04 ms"],
        "costs less": ["aten::mm: -0.01 ms"],
        "only without determinism": ["aten::scatter_add_: -0.03 ms"],
    }
    assert all((x > 0) == ("+" in row) for rows in found.values() for row, x in rows)


def test_the_largest_stand_first_and_what_did_not_move_is_left_out(result):
    fig = tax(result)
    order = [name.split(":")[2] for name in fig.layout.yaxis.categoryarray]
    assert order == ["add", "index_put_", "scatter_add_", "mm"]
    assert fig.layout.yaxis.autorange == "reversed"
    assert "4 of 5 ops" in fig.layout.title.subtitle.text
    assert [len(rows) for rows in marks(tax(result, rows=1)).values()] == [1]


def test_each_bar_reaches_from_zero_to_its_marker(result):
    for trace in tax(result).data:
        if trace.mode == "lines":
            assert set(trace.x[::3]) == {0.0}
            assert set(trace.x[2::3]) == {None}


def test_the_json_form_gives_the_same_figure(result):
    assert tax(result.to_json()).to_dict() == tax(result).to_dict()


def test_a_table_that_is_not_there_is_refused_with_those_that_are(result):
    with pytest.raises(InputError, match="choose one of: op"):
        tax(result, "kernel")


def test_names_that_look_alike_when_cut_keep_their_rows(tmp_path):
    names = [f"void kernel<{'x' * 40}{n}{'y' * 60}>" for n in range(3)]
    fig = tax(result_of(tmp_path, dict.fromkeys(names, 10), {name: 20 + n for n, name in enumerate(names)}))
    shown = [row for rows in marks(fig).values() for row, _ in rows]
    assert len(set(shown)) == 3
    assert max(map(len, shown)) < 75


def test_names_from_files_are_text_and_no_markup(tmp_path):
    name = "<b onload=x>$\\alpha$</b>\u202e"
    fig = tax(result_of(tmp_path, {name: 1}, {name: 3}))
    (row,) = fig.layout.yaxis.categoryarray
    assert "<b" not in row and "$" not in row and "\u202e" not in row
    assert "<b onload" not in fig.static_html()


def test_a_page_without_plotly_shows_a_picture_with_every_row(result):
    fig = tax(result)
    source = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', fig.static_html())[1]
    tree = ElementTree.fromstring(base64.b64decode(source))
    words = " ".join(each.text for each in tree.iter(f"{SVG}text"))
    for name in fig.layout.yaxis.categoryarray:
        assert name in words
    assert "costs more" in words
    lines = [each.get("points") for each in tree.iter(f"{SVG}polyline")]
    assert len(lines) == 4


def test_without_profiles_the_step_is_drawn_with_its_interval():
    a, b = (
        make_metrics_run({"iteration-time": {n: level + n % 3 for n in range(40)}})
        for level in (100.0, 120.0)
    )
    result = check_tax(a, b)
    fig = tax(result)
    line, mark = fig.data
    row = result.table.row(0, named=True)
    assert list(mark.x) == [pytest.approx(100 * (row["ratio"] - 1))]
    assert list(line.x) == [pytest.approx(100 * (row[end] - 1)) for end in ("low", "high")]
    assert fig.layout.xaxis.range[0] < 0


def test_no_difference_is_said_in_words(tmp_path):
    fig = tax(result_of(tmp_path, {"aten::mm": 5}, {"aten::mm": 5}))
    assert "no difference between 1 pairs of ops" in fig.layout.title.subtitle.text


@pytest.mark.parametrize("body", [{}, {"check": "recipe", "table": []}, {"check": "tax", "table": []}])
def test_what_is_no_tax_is_refused(body):
    with pytest.raises(InputError, match="no measured tax"):
        tax(body)

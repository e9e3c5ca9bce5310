"""The map as a widget: what it answers to a browser, what it selects, and what it shows without one."""

import re
import subprocess
import sys

import numpy as np
import pytest

from detlab.errors import InputError
from detlab.schema import Verdict
from detlab.views.cells import MapSource
from detlab.views.palette import DARK, LIGHT
from detlab.views.pooling import MATCH, ORIGIN
from detlab.views.scripts import MAP_PARTS, map_script, read_static
from detlab.widgets.divergence_map import MAX_HITS, MAX_SIZE, DivergenceMap
from tests.views.stories import one_in_a_million, one_origin, set_aside, story


class Seen(DivergenceMap):
    """A map that keeps what it would send to a browser."""

    def __init__(self, *args, **kwargs):
        self.sent = []
        super().__init__(*args, **kwargs)

    def send(self, content, buffers=None):
        self.sent.append(content)

    def hear(self, **message):
        self._handle_custom_msg(message, [])
        return self.sent[-1] if self.sent else None

    def ask(self, **state):
        self.state = {**self.state, **state}

    @property
    def cells(self):
        return np.frombuffer(self.tile, np.uint8).reshape(self.meta["height"], self.meta["width"])


@pytest.fixture
def shown():
    """The map of two ranks over two steps; rank 1 has its origin in step 2, at its call 1."""
    return Seen(one_origin())


def test_a_new_map_shows_the_step_of_the_first_finding(shown):
    assert shown.state["step"] == 2
    assert shown.cells.tolist() == [[MATCH, MATCH, MATCH], [MATCH, ORIGIN, 1 + Verdict.RECEIVER]]
    assert shown.meta["seq"] == 1 and shown.meta["state"] == shown.state


def test_another_step_is_answered_with_another_tile(shown):
    shown.ask(step=1)
    assert (shown.cells == MATCH).all()
    assert shown.meta["seq"] == 2 and shown.meta["state"]["step"] == 1


def test_equal_tiles_of_two_states_are_told_apart_by_their_number():
    shown = Seen(set_aside())
    shown.ask(hidden=["origin"])
    shown.ask(hidden=[])
    assert shown.meta["seq"] == 3


def test_state_and_size_asked_for_together_are_answered_once(shown):
    shown.set_state({"state": {**shown.state, "step": 1}, "size": [100, 200]})
    assert shown.meta["seq"] == 2


@pytest.mark.parametrize("asked", [{"hidden": []}, {"step": 99}, {"window": [0, 2, 0, 3]}])
def test_a_browser_that_asks_for_what_it_has_or_cannot_have_is_answered(shown, asked):
    shown.set_state({"state": {**shown.state, **asked}})
    assert shown.meta["seq"] == 2
    assert shown.state == shown.meta["state"] == shown.source.normal({})


def test_verdicts_hidden_in_any_order_are_answered_in_the_order_of_severity(shown):
    shown.set_state({"state": {**shown.state, "hidden": ["origin", "receiver"]}})
    assert shown.state["hidden"] == shown.meta["state"]["hidden"] == ["receiver", "origin"]


def test_a_tile_has_no_more_cells_than_the_browser_has_pixels():
    shown = Seen(one_in_a_million(500_000))
    shown.size = [10, 300]
    assert shown.cells.shape[1] <= 300 and (shown.cells == ORIGIN).sum() == 1
    shown.size = [10**6, 10**6]
    assert shown.cells.shape[1] <= MAX_SIZE[1]


def test_the_small_map_is_sent_again_only_when_more_than_the_window_changes(shown):
    overview = shown.overview
    shown.ask(window=[0, 1, 0, 2])
    assert shown.overview is overview
    shown.ask(step=1)
    assert shown.overview != overview


def test_hiding_receivers_shows_them_as_matches(shown):
    shown.ask(hidden=["receiver"])
    assert shown.cells.tolist() == [[MATCH, MATCH, MATCH], [MATCH, ORIGIN, MATCH]]


def test_a_window_is_answered_with_its_cells_alone(shown):
    shown.ask(window=[1, 2, 1, 3])
    assert shown.cells.tolist() == [[ORIGIN, 1 + Verdict.RECEIVER]]


def test_a_state_that_no_map_has_is_taken_back_and_said(shown):
    shown.ask(step=99)
    assert shown.state["step"] == 2 and shown.meta["seq"] == 1
    assert shown.sent[-1]["type"] == "say" and "99" in shown.sent[-1]["text"]


def test_a_map_that_cannot_be_made_is_refused():
    with pytest.raises(InputError, match="Hint:"):
        DivergenceMap(one_origin(), rows="hour")


def test_a_click_selects_the_worst_call_of_its_cells(shown):
    told = []
    shown.observe(lambda change: told.append(change.new), "called")
    shown.hear(type="select", block=[0, 2, 0, 3])
    assert shown.called == (1, 4) and told == [(1, 4)]
    assert shown.selected["site"] == "2/0/backward/lin/aten.mm.default#0"
    assert (shown.selected["row"], shown.selected["column"]) == (1, 1)
    assert (shown.selected["rank"], shown.selected["step"], shown.selected["verdict"]) == (1, 2, "origin")
    shown.hear(type="clear")
    assert shown.called == () and shown.selected == {}


def test_a_click_where_nothing_was_recorded_selects_nothing_and_says_so():
    shown = Seen(one_origin(), rows="op", columns="call")
    shown.hear(type="select", block=[1, 2, 1, 2])
    assert shown.called
    answer = shown.hear(type="select", block=[0, 1, 1, 2])
    assert shown.called == () and answer["type"] == "say" and "not called" in answer["text"]


def test_selecting_a_call_of_another_step_shows_that_step(shown):
    shown.select(0, 2)
    assert shown.state["step"] == 1 and shown.called == (0, 2)
    assert (shown.selected["row"], shown.selected["column"]) == (0, 2)


def test_selecting_a_call_outside_the_window_moves_the_window_without_zooming():
    shown = Seen(one_in_a_million(500_000), window=[0, 1, 0, 1000])
    shown.select(0, 500_000)
    assert shown.state["window"] == [0, 1, 499_500, 500_500]
    assert shown.meta["window"] == shown.state["window"]
    shown.select(0, 500_400)
    assert shown.state["window"] == [0, 1, 499_500, 500_500]
    shown.select(0, 999_999)
    assert shown.state["window"] == [0, 1, 999_000, 1_000_000]


def test_a_selection_keeps_its_call_when_rows_and_columns_change(shown):
    shown.select(1, 4)
    shown.ask(rows="op", columns="step", step=None)
    assert shown.called == (1, 4)
    assert (shown.selected["row"], shown.selected["column"]) == (1, 1)
    shown.ask(rows="rank", columns="call", step=1)
    assert shown.called == (1, 4) and shown.selected == {}


def test_hovering_is_answered_with_the_site_of_that_block(shown):
    answer = shown.hear(type="hover", block=[1, 2, 1, 2])
    assert answer["block"] == [1, 2, 1, 2]
    assert "aten.mm.default in lin" in answer["text"] and "origin" in answer["text"]


def test_a_search_visits_its_hits_in_a_circle(shown):
    first = shown.hear(type="search", text="aten", next=False)
    assert (first["at"], first["of"], first["columns"], first["rows"]) == (1, 1, [[0, 3]], [None])
    assert shown.hear(type="search", text="MM", next=False)["columns"] == [[1, 2]]
    shown.ask(rows="op", columns="step", step=None)
    visited = [
        shown.hear(type="search", text="aten", next=again)["at"] for again in (False, True, True, True)
    ]
    assert visited == [1, 2, 3, 1]
    assert shown.hear(type="search", text="nowhere", next=True)["of"] == 0


def test_a_search_with_very_many_hits_sends_those_around_the_present_one():
    ranks = {rank: ["y"] for rank in range(MAX_HITS + 500)}
    shown = Seen(story_against_itself(ranks), columns="step")
    shown.hear(type="search", text="dp", next=False)
    answers = [shown.hear(type="search", text="dp", next=True) for _ in range(MAX_HITS + 499)]
    assert [answers[0]["at"], answers[-1]["at"], answers[-1]["of"]] == [2, MAX_HITS + 500, MAX_HITS + 500]
    for answer in answers[:: MAX_HITS // 4]:
        row = answer["rows"][answer["at"] - 1 - answer["from"]]
        assert row == answer["at"] - 1 and len(answer["rows"]) == MAX_HITS


def story_against_itself(words):
    """Compare a run with itself."""
    from detlab.comparison import compare

    run = story("a", words)
    return compare(run, run)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "explode"},
        {"type": "select"},
        {"type": "select", "block": "everything"},
        {"type": "hover", "block": [0, 1]},
        {"type": "search"},
        {},
        "text",
    ],
)
def test_a_message_that_makes_no_sense_is_said_and_changes_nothing(shown, message):
    shown._handle_custom_msg(message, [])
    assert shown.sent[-1]["type"] == "say" and shown.sent[-1]["text"]
    assert shown.called == () and shown.meta["seq"] == 1


def test_two_maps_can_stand_on_the_same_cells():
    source = MapSource(one_origin())
    first, second = (DivergenceMap(source.cmp, source=source, rows=rows) for rows in ("rank", "op"))
    assert first.source is second.source
    assert first.meta["num_rows"] == 2 and second.meta["num_rows"] == 3


def test_without_a_kernel_the_same_map_is_there_as_html_text_and_picture(shown):
    data, _ = shown._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain", "image/png"}
    assert "origin" in data["text/html"] and "data:image/png;base64," in data["text/html"]
    assert "<script" not in data["text/html"]
    assert "1 origin" in data["text/plain"] and "DIVERGED" in data["text/plain"]


def test_every_verdict_goes_to_the_browser_with_a_sign_and_a_colour_of_its_own(shown):
    names, colours, signs, codes = zip(*shown.verdicts, strict=True)
    assert names == tuple(verdict.name.lower() for verdict in Verdict)
    assert len(set(colours)) == len(set(signs)) == len(Verdict)
    assert codes == tuple(1 + verdict for verdict in Verdict)


def test_the_style_sheet_falls_back_to_the_palette():
    light, dark = read_static("map.css").split("@media (prefers-color-scheme: dark)")[:2]
    for theme, text in ((LIGHT, light), (DARK, dark)):
        for name in ("page", "panel", "text", "muted"):
            assert re.search(rf"--detlab-{name}: var\([^;]*, {getattr(theme, name)}\)\);", text), name


def test_the_script_asks_nothing_of_a_notebook_and_writes_no_markup():
    script = map_script()
    assert set(re.findall(r"model\.(\w+)", script)) <= {"get", "set", "save_changes", "on", "off", "send"}
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "fetch(",
        "import ",
        "http",
    ):
        assert word not in script, word


def test_each_part_of_the_script_imports_only_what_stands_before_it_in_the_joined_one():
    known = []
    for name in MAP_PARTS:
        text = read_static(name)
        assert set(re.findall(r'^import\b[^;]* from "\./(.*)";$', text, re.MULTILINE)) <= set(known)
        known.append(name)
    assert map_script().count("export ") == 1 and "export default { render };" in map_script()
    names = re.findall(r"^(?:function|class|const|let) (\w+)", map_script(), re.MULTILINE)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("use", "loads"), [("", False), ("detlab.widgets.map", True)])
def test_widgets_load_ipywidgets_only_when_one_is_used(use, loads):
    code = f"import sys, detlab.widgets; {use or 'pass'}; print('ipywidgets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(loads)


def test_a_name_that_no_widget_has_is_an_attribute_error():
    import detlab.widgets

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = detlab.widgets.nothing

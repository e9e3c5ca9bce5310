"""The explorer: what is selected in one panel is selected in all, and its state can be taken away."""

import base64
import subprocess
import sys

import pytest

import detlab as dl
from detlab.comparison.journal import Journal
from detlab.errors import InputError
from detlab.samples import sample_path
from detlab.testing import make_metrics_run, make_run
from detlab.widgets.explorer import Explorer, explore
from detlab.widgets.explorer_logs import LogExplorer
from detlab.widgets.selection import find_call
from tests.widgets.explorer_stories import (
    ORIGIN,
    act,
    assert_only_text,
    diverged,
    equal,
    one_call_more,
    race,
    read,
)

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def view(tmp_path):
    """Explore a comparison with one origin, nothing selected, notes in a folder of the test."""
    return explore(diverged(), selected=(), journal=tmp_path / "notes.json")


def shows(view, rank, site):
    """Expect one call in every panel."""
    called = find_call(view.cmp, rank, site)
    step = view.cmp.ranks[called[0]].step_at(called[1])
    view.details.wait()
    assert view.selected == (rank, site)
    assert (tuple(view.map.called), view.map.selected["site"]) == (called, site)
    assert (view.selection.step, view.map.state["step"]) == (step, step)
    assert site.rpartition("/")[2].partition("#")[0] in read(view.details.html).text
    assert f"step {step} " in read(view.metrics.chart.html).text + " "
    assert repr((rank, site)) in view.tools.copy.code


# Links


def test_a_click_on_a_finding_selects_its_call_everywhere(view):
    act(view.findings, finding="0")
    shows(view, 1, ORIGIN)


def test_a_click_in_the_map_selects_its_call_everywhere(view):
    view.map._handle_custom_msg({"type": "select", "block": [1, 2, 1, 2]}, [])
    shows(view, 1, ORIGIN)


def test_a_neighbour_in_the_details_is_selected_everywhere(view):
    act(view.findings, finding="0")
    site = "2/0/optimizer/opt/aten.add.default#0"
    button = next(button for button in read(view.details.html).buttons if button["site"] == site)
    act(view.details, **button)
    shows(view, 1, site)


def test_another_rank_in_the_details_is_selected_everywhere(view):
    act(view.findings, finding="0")
    button = next(button for button in read(view.details.html).buttons if button["rank"] == "0")
    act(view.details, **button)
    shows(view, 0, ORIGIN)


def test_a_row_of_the_first_divergences_is_selected_everywhere(view):
    act(view.findings, rank="1", site=ORIGIN)
    shows(view, 1, ORIGIN)


def test_a_call_of_another_step_brings_its_step_along(view):
    act(view.details, rank="0", site="3/0/forward/emb/aten.embedding.default#0")
    shows(view, 0, "3/0/forward/emb/aten.embedding.default#0")


def test_a_point_of_a_curve_selects_its_step_in_the_map(view):
    act(view.metrics.chart, step="3")
    assert (view.selection.step, view.map.state["step"]) == (3, 3)


def test_a_step_that_was_not_compared_leaves_the_map_as_it_is(view):
    view.selection.step = 77
    assert view.map.state["step"] == 2
    assert "Step 77 has no number of this metric" in view.metrics.chart.html


def test_a_step_of_the_map_marks_the_curves(view):
    view.map.state = {**view.map.state, "step": 1}
    assert view.selection.step == 1
    assert "step 1" in read(view.metrics.chart.html).text


def test_a_map_of_all_steps_stays_one_when_a_step_is_selected(view):
    view.map.state = {**view.map.state, "step": None}
    act(view.metrics.chart, step="3")
    assert view.map.state["step"] is None


def test_escape_clears_the_selection_everywhere(view):
    act(view.findings, finding="0")
    view.tools.copy._handle_custom_msg({"type": "clear"}, [])
    view.details.wait()
    assert (view.selected, view.selection.step) == (None, None)
    assert (view.map.called, view.map.selected) == ((), {})
    assert "No call is selected" in view.details.html
    assert "selected=()" in view.code


def test_escape_in_the_map_clears_the_selection_everywhere(view):
    act(view.findings, finding="0")
    view.map._handle_custom_msg({"type": "clear"}, [])
    assert (view.selected, view.selection.called) == (None, ())


def test_the_button_clears_the_selection(view):
    act(view.findings, finding="0")
    view.tools.clear.click()
    assert view.selected is None


def test_the_first_call_of_the_first_finding_is_selected_at_first(tmp_path):
    assert explore(diverged(), journal=tmp_path / "n.json").selected == (1, ORIGIN)


def test_what_was_asked_for_is_shown_also_where_it_hides_the_selected_call(tmp_path):
    view = explore(diverged(), step=1, journal=tmp_path / "n.json")
    assert (view.selected, view.map.state["step"]) == ((1, ORIGIN), 1)


# Export


def run_code(view):
    """Run the lines that an explorer gives, and give what they make."""
    names = {"a": view.cmp.a, "b": view.cmp.b}
    exec(view.tools.copy.code, names)  # noqa: S102 - the lines are ours
    return names


def test_the_code_brings_back_the_same_state(tmp_path):
    view = explore(race(), journal=tmp_path / "n.json", metric="lm loss")
    act(view.findings, finding="0", rank="2")
    view.map.state = {**view.map.state, "hidden": ["receiver"], "window": [0, 2, 100, 400], "order": "dp"}
    found = run_code(view)
    assert found["explorer"].state == view.state
    assert found["explorer"].state["window"] == [0, 2, 100, 400]
    assert found["explorer"].selected == view.selected == (2, view.cmp.roots[0].sites[0])
    assert found["explorer"].metrics.metric == "lm loss"
    assert found["explorer"].notes.journal.path == tmp_path / "n.json"
    assert found["call"].call.site == view.selected[1]
    assert len(found["path"]) > 0
    assert len(found["figure"].data) > 0


def test_the_code_runs_for_runs_that_were_made_in_memory(view):
    act(view.findings, finding="0")
    view.map.state = {**view.map.state, "columns": "step", "rows": "op", "step": None}
    found = run_code(view)
    assert (found["explorer"].state, found["explorer"].selected) == (view.state, view.selected)


def test_the_code_compares_the_same_part_in_the_same_way(tmp_path):
    folder = sample_path("race")
    runs = [dl.load_run(folder / side, ranks="0-1", steps="1") for side in "ab"]
    cmp = dl.compare(*runs, count=["fresh_memory"], pairs={"scopes": {"x": "y"}})
    found = run_code(explore(cmp, journal=tmp_path / "n.json"))["cmp"]
    assert (found.steps, found.counted, found.pairs) == ((1,), ("fresh_memory",), cmp.pairs)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert found.counts == cmp.counts


def test_the_code_names_a_label_that_was_given(tmp_path):
    folder = sample_path("race")
    runs = [
        dl.load_run(folder / side, label=name) for side, name in zip("ab", ("it's", 'a "b"\n'), strict=True)
    ]
    found = run_code(explore(dl.compare(*runs), journal=tmp_path / "n.json"))
    assert (found["a"].label, found["b"].label) == ("it's", 'a "b"\n')


def test_the_code_selects_a_call_of_run_b_alone_though_a_call_of_run_a_has_its_site(tmp_path):
    view = explore(one_call_more(), journal=tmp_path / "n.json")
    assert view.selection.called == (0, 0)
    found = run_code(view)
    assert found["explorer"].selection.called == (0, 0)
    assert found["call"].call.verdict == "only_b"


def test_the_code_says_what_a_figure_does_not_show_of_the_map(view):
    more = "hides nothing, and has the ranks in their own order"
    view.map.state = {**view.map.state, "order": "rank"}
    assert "# the same as figures and frames\n" in view.code
    view.map.state = {**view.map.state, "hidden": ["receiver"]}
    assert more in view.code


def test_the_code_follows_what_is_shown(view):
    before = view.tools.copy.code
    view.map.state = {**view.map.state, "step": 3}
    assert view.tools.copy.code != before
    assert "step=3" in view.tools.copy.code


def test_a_snapshot_holds_the_selected_call_and_stays_as_it_is(view):
    act(view.findings, finding="0")
    taken = view.snapshot()
    view.selection.clear()
    assert "rank 1" in read(taken.twin.html).text
    assert VIEW not in taken._repr_mimebundle_()
    assert "Selected call" not in view.twin().html


def test_the_button_writes_a_snapshot_beside_the_notes_and_says_where(view, tmp_path):
    view.tools.snapshot.click()
    view.tools.snapshot.click()
    assert sorted(path.name for path in tmp_path.glob("*.html")) == [
        "detlab-snapshot-1.html",
        "detlab-snapshot-2.html",
    ]
    assert str(tmp_path / "detlab-snapshot-2.html") in view.tools.said.html
    assert_only_text(view.twin().html)


def test_a_snapshot_that_cannot_be_written_says_so(tmp_path):
    view = explore(diverged(), journal=tmp_path / "gone" / "notes.json")
    view.tools.snapshot.click()
    assert "cannot be written" in view.tools.said.html and ". Hint: give a file" in view.tools.said.html


def test_the_notebook_keeps_the_present_state_where_it_shows_the_view(view, monkeypatch):
    kept = []
    monkeypatch.setattr(view, "save_output", lambda: kept.append(view.twin().html))
    view.tools.keep.click()
    assert "not displayed in a notebook" in view.tools.said.html
    act(view.findings, finding="0")
    view._display_id = "shown"
    view.tools.keep.click()
    assert "Once saved, the notebook shows this state" in view.tools.said.html
    assert "Selected call" in kept[-1]


# Notes


def test_a_note_is_about_the_selected_call_and_leads_back_to_it(view, tmp_path):
    act(view.findings, finding="0")
    view.notes.text.value = "atomics <b>again</b>"
    view.notes.note.click()
    note = Journal(tmp_path / "notes.json").notes[0]
    assert (note.text, note.rank, note.site) == ("atomics <b>again</b>", 1, ORIGIN)
    assert view.notes.text.value == ""
    assert "atomics &lt;b&gt;again&lt;/b&gt;" in view.notes.list.html
    view.selection.clear()
    act(view.notes.list, rank="1", site=ORIGIN)
    shows(view, 1, ORIGIN)


def test_a_note_without_a_selected_call_is_about_the_comparison(view, tmp_path):
    view.notes.text.value = "rerun with one thread"
    view.notes.note.click()
    assert Journal(tmp_path / "notes.json").notes[0].site is None


@pytest.mark.parametrize("state", ["confirmed", "falsified"])
def test_a_hypothesis_is_judged_with_its_reason(view, tmp_path, state):
    view.notes.text.value = "one bad host"
    view.notes.hypothesis.click()
    view.notes.why.value = "seen twice"
    act(view.notes.list, hypothesis="0", state=state)
    kept = Journal(tmp_path / "notes.json").hypotheses[0]
    assert (kept.text, kept.state, kept.why) == ("one bad host", state, "seen twice")
    assert f"{state} : one bad host because seen twice" in read(view.notes.list.html).text
    assert view.notes.why.value == ""


def test_an_empty_note_is_refused_in_words(view, tmp_path):
    view.notes.note.click()
    assert "says nothing" in view.notes.said.html
    assert not (tmp_path / "notes.json").exists()


@pytest.mark.parametrize(
    "data",
    [{}, {"hypothesis": "4", "state": "confirmed"}, {"hypothesis": "0", "state": "?"}, {"rank": "1"}],
    ids=str,
)
def test_a_click_on_a_note_that_is_not_there_changes_nothing(view, tmp_path, data):
    view.notes.text.value = "one bad host"
    view.notes.hypothesis.click()
    act(view.notes.list, **data)
    assert Journal(tmp_path / "notes.json").hypotheses[0].state == "open"
    assert view.selection.called == ()


def test_notes_stand_in_the_static_twin(view):
    view.notes.text.value = "atomics"
    view.notes.note.click()
    view.notes.text.value = "a race"
    view.notes.hypothesis.click()
    text = read(view.twin().html).text
    assert "atomics" in text
    assert "? open : a race" in text


def test_notes_that_were_saved_with_the_comparison_stand_beside_the_others(tmp_path):
    view = explore(diverged().with_note("seen on <b>monday</b>"), journal=tmp_path / "n.json")
    for text in (view.notes.list.html, view.twin().html):
        assert "seen on &lt;b&gt;monday&lt;/b&gt;" in text
        assert "saved with the comparison" in text


def test_damaged_notes_are_refused_where_they_were_asked_for(tmp_path):
    (tmp_path / "n.json").write_text("half")
    with pytest.raises(InputError, match=r"n\.json is damaged"):
        explore(diverged(), journal=tmp_path / "n.json")


def test_damaged_notes_where_nobody_asked_for_them_leave_the_rest_usable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = explore(diverged()).notes.journal.path
    path.write_text("half")
    view = explore(diverged())
    assert "No notes are kept:" in read(view.notes.said.html).text
    view.notes.note.click()
    act(view.notes.list, hypothesis="0", state="confirmed")
    assert path.read_text() == "half"
    assert view.twin().html


# Without a kernel


def test_the_bundle_says_all_of_it_without_a_kernel(tmp_path):
    view = explore(race(), journal=tmp_path / "n.json")
    data, _ = view._repr_mimebundle_()
    assert set(data) == {VIEW, "text/html", "text/plain", "image/png"}
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == repr(view.cmp)
    text = read(data["text/html"]).text
    for said in ("DIVERGED", "Findings", "origins", "First divergence of each rank", "grad norm", "Coverage",
                 "time.created", "Selected call", "1/0/backward/embedding.word_embeddings"):  # fmt: skip
        assert said in text, said
    assert sum(len(str(content)) for content in data.values()) < 300_000


def test_the_bundle_needs_no_style_sheet_no_script_and_no_button(tmp_path):
    found = read(explore(race(), journal=tmp_path / "n.json").twin().html)
    assert not {"script", "style", "button", "svg", "input"} & {tag for tag, _ in found.tags}
    images = [attributes for tag, attributes in found.tags if tag == "img"]
    assert len(images) >= 4
    assert all(image["alt"] and image["src"].startswith("data:image/") for image in images)


def test_every_cell_of_the_legend_has_a_sign_and_a_number(view):
    text = read(view.map.twin().html).text
    assert "◆ origin 1" in text
    assert "▾ receiver 1" in text


@pytest.mark.parametrize("panel", ["verdict", "findings", "details", "metrics", "map", "replay"])
def test_every_panel_alone_has_a_bundle(tmp_path, panel):
    found = getattr(explore(race(), journal=tmp_path / "n.json"), panel)._repr_mimebundle_()
    data = found[0] if isinstance(found, tuple) else found
    assert {VIEW, "text/html", "text/plain"} <= set(data)
    assert_only_text(data["text/html"])


@pytest.mark.parametrize("name", ["findings", "details", "metrics", "map"])
def test_every_panel_is_made_alone(name):
    assert getattr(dl.widgets, name)(diverged())._repr_mimebundle_()


# Whatever is explored


def test_a_match_has_a_view_that_says_so(tmp_path):
    view = explore(equal(), journal=tmp_path / "n.json")
    assert view.selected is None
    assert "MATCH" in view.verdict.html
    assert "Not looked at" in read(view.twin().html).text


def test_two_paths_are_compared_first(tmp_path):
    folder = sample_path("clean")
    view = explore(folder / "a", str(folder / "b"), journal=tmp_path / "n.json")
    assert isinstance(view, Explorer)
    assert view.cmp.verdict == "match"


def test_two_logs_are_shown_by_their_metrics_and_triaged():
    logs = sample_path("spike")
    view = dl.explore(logs / "monday.log", logs / "rerun.log")
    assert isinstance(view, LogExplorer)
    text = read(view.said.html).text
    assert text.startswith("DIVERGED monday and rerun differ first at step 218")
    assert "Triage of monday: not reproduced" in text
    assert "Triage of rerun: no spike" in text
    assert "record both runs with dl.Recorder" in text
    assert view.metrics.metric == "lm loss"
    data, _ = view._repr_mimebundle_()
    assert sum(len(str(content)) for content in data.values()) < 300_000
    assert_only_text(data["text/html"])


def test_a_run_without_a_trace_beside_one_with_a_trace_is_refused_with_the_reason():
    with pytest.raises(dl.DetlabError, match="metrics"):
        explore(make_metrics_run({"loss": {1: 1.0}}), make_run({0: []}, label="b"))


def test_a_comparison_of_no_step_metrics_says_how_to_get_them(tmp_path):
    runs = [dl.load_run(sample_path("race") / side) for side in "ab"]
    import dataclasses

    bare = [dataclasses.replace(run, metrics=run.metrics.clear()) for run in runs]
    view = explore(dl.compare(*bare), journal=tmp_path / "n.json")
    assert "rec.metric(name, value)" in view.metrics.chart.html
    assert "curve" not in view.code


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"rows": "host"}, "no map of host by call"),
        ({"step": 9}, "step 9"),
        ({"order": "colour"}, "ordered by colour"),
        ({"selected": (9, ORIGIN)}, "rank 9 was not compared"),
        ({"metric": "joy"}, "no run has|has a metric 'joy'"),
        ({"zoom": 2}, "has no zoom"),
    ],
    ids=str,
)
def test_what_no_view_has_is_refused(tmp_path, given, what):
    with pytest.raises(InputError, match=what):
        explore(diverged(), journal=tmp_path / "n.json", **given)


def test_runs_that_must_not_be_compared_are_refused_before_anything_is_shown():
    runs = [make_run({0: []}, label="a", layout={"tp": 1}), make_run({0: []}, label="b", layout={"tp": 2})]
    with pytest.raises(dl.DetlabError, match="different parallel layouts"):
        explore(*runs)


def test_an_incomplete_comparison_has_a_view_with_its_reason_and_its_fix(tmp_path):
    a, b = (
        make_run({rank: [dl.testing.Call("aten.mm.default", "lin", ["x"], ["y"])] for rank in ranks},
                 label=label, layout={"dp": 2}, world_size=2)
        for label, ranks in (("a", (0, 1)), ("b", (0,)))
    )  # fmt: skip
    view = explore(dl.compare(a, b), journal=tmp_path / "n.json")
    for text in (read(view.verdict.html).text, read(view.twin().html).text):
        assert "INCOMPLETE" in text
        assert "has no trace of 1 ranks that a has" in text
        assert "dl.Recorder('memory', ranks='1')" in text


def test_a_saved_comparison_is_explored_as_the_one_that_was_saved(tmp_path):
    race().save(tmp_path / "night.cmp")
    view = explore(dl.load_comparison(tmp_path / "night.cmp"), journal=tmp_path / "n.json")
    view.details.wait()
    assert view.selected == (0, view.cmp.roots[0].sites[0])
    assert run_code(view)["explorer"].selected == view.selected


def test_one_run_alone_and_one_too_many_are_refused(tmp_path):
    with pytest.raises(InputError, match="nothing to be compared with"):
        explore(sample_path("race") / "a")
    with pytest.raises(InputError, match="already has both runs"):
        explore(diverged(), sample_path("race") / "a")


def test_one_rank_and_one_call_are_enough(tmp_path):
    runs = [make_run({0: [dl.testing.Call("aten.mm.default", "lin", ["x"], [word])]}, label=n)
            for n, word in zip("ab", "yz", strict=True)]  # fmt: skip
    view = explore(dl.compare(*runs), journal=tmp_path / "n.json")
    view.details.wait()
    assert view.selected == (0, "1/0/forward/lin/aten.mm.default#0")
    assert view._repr_mimebundle_()


def test_hostile_names_stay_text_in_every_trait(tmp_path):
    for name in ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>\x1b[2J\u202e'):
        view = explore(diverged(scope=name, op=f"aten.{name}"), journal=tmp_path / "n.json")
        view.details.wait()
        view.notes.text.value = name
        view.notes.note.click()
        panels = (
            view.verdict,
            view.findings,
            view.details,
            view.metrics.chart,
            view.notes.list,
            view.tools.said,
        )
        for panel in panels:
            assert_only_text(panel.html)
        assert_only_text(view.twin().html)
        (tmp_path / "n.json").unlink()


def test_no_plotly_and_no_torch_before_they_are_asked_for():
    probe = (
        "import detlab as dl, sys; p = dl.samples.sample_path('race'); v = dl.explore(p / 'a', p / 'b'); "
        "v._repr_mimebundle_(); print(*({'plotly', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

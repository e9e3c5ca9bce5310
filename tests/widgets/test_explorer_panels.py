"""The panels of the explorer, each alone: verdict, findings, details."""

import threading
from dataclasses import replace

import polars as pl
import pytest

from detlab.comparison import compare
from detlab.comparison.call import call_details
from detlab.errors import InputError, TraceError
from detlab.schema import Phase, Verdict
from detlab.testing import Call, make_run
from detlab.views.call_html import call_html
from detlab.widgets.details_panel import DetailsPanel, Newest
from detlab.widgets.details_panel_html import came_from_html
from detlab.widgets.findings_panel import FindingsPanel
from detlab.widgets.selection import Selection, clicked_call, find_call, place_of, step_of
from detlab.widgets.styles import verdict_sign
from detlab.widgets.verdict_bar import VerdictBar, remedies
from tests.views.stories import set_aside, story
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

# The verdict


def test_the_verdict_is_the_first_thing_said():
    bar = VerdictBar(diverged())
    assert read(bar.html).text.startswith(
        "DIVERGED kernel: aten.mm.default in lin (backward), on 1 of 2 ranks, since step 2."
    )


def test_the_verdict_says_evidence_and_coverage():
    text = read(VerdictBar(diverged()).html).text
    assert "Compared 2 of 2 ranks, steps 1-3, 18 calls, 0 of them without output evidence." in text
    assert "Evidence: exact (a digest over every byte)." in text
    assert "Nothing was set aside." in text


def test_a_match_says_what_was_not_looked_at():
    text = read(VerdictBar(equal()).html).text
    assert text.startswith("MATCH nothing differs between a and b in what both recorded.")
    assert "Not looked at: every step but 1-2" in text


def test_a_match_of_some_ranks_says_how_many_were_not_looked_at():
    runs = [
        make_run({0: [Call("aten.mm.default", "lin", ["x"], ["y"])]}, label=n, world_size=64) for n in "ab"
    ]
    assert "63 of 64 ranks" in read(VerdictBar(compare(*runs)).html).text


def test_what_was_set_aside_is_explained_on_request_and_hidden_again():
    bar = VerdictBar(set_aside())
    assert "Set aside: 1 pointers" in read(bar.html).text
    assert "differ from run to run" not in bar.html
    act(bar, aside="1")
    assert "an array of addresses, which differ from run to run" in read(bar.html).text
    assert "dl.compare(a, b, count=['pointers'])" in read(bar.html).text
    act(bar, aside="1")
    assert "differ from run to run" not in bar.html


def incomplete():
    """Compare a run of three steps with one that lacks the third step and rank 1."""
    a = story("a", {0: ["y", "y", "y"], 1: ["y", "y", "y"]})
    b = make_run({0: [c for step in (1, 2) for c in _calls(step)]}, label="b", layout={"dp": 2}, world_size=2)
    return compare(a, b)


def _calls(step):
    return [
        Call("aten.embedding.default", "emb", ["w"], ["e"], step=step),
        Call("aten.mm.default", "lin", ["e"], ["y"], step=step, phase=Phase.BACKWARD),
        Call("aten.add.default", "opt", ["y"], ["py"], step=step, phase=Phase.OPTIMIZER),
    ]


def test_an_incomplete_comparison_says_why_and_gives_the_fix_to_copy():
    cmp = incomplete()
    text = read(VerdictBar(cmp).html).text
    assert text.startswith("INCOMPLETE nothing differs between a and b, but not all of it could be compared.")
    assert "b: has no step 3, which a has" in text
    assert remedies(cmp)[0] == "dl.Recorder('memory', steps='1-3', ranks='0-1')"
    assert "dl.load_run(run, ranks='0', steps='1-2')" in remedies(cmp)[1]
    assert all(" ".join(line.split()) in text for line in remedies(cmp))


def test_ranks_alone_are_recorded_again_in_all_steps_and_steps_alone_on_all_ranks():
    whole, short = ({rank: ["y"] * size for rank in (0, 1)} for size in (3, 2))
    less = make_run({0: [c for n in (1, 2, 3) for c in _calls(n)]}, label="b", layout={"dp": 2}, world_size=2)
    a = story("a", whole)
    assert remedies(compare(a, less))[0] == "dl.Recorder('memory', ranks='1')"
    assert remedies(compare(a, story("b", short)))[0] == "dl.Recorder('memory', steps='3')"


def test_a_whole_comparison_needs_no_fix():
    assert remedies(diverged()) == []


# The findings


def test_a_click_on_a_finding_selects_its_first_call():
    panel = FindingsPanel(diverged())
    act(panel, finding="0")
    assert place_of(panel._cmp, panel.selection.called) == (1, ORIGIN)


def test_a_click_on_a_rank_of_a_finding_selects_its_call_there():
    panel = FindingsPanel(race())
    act(panel, finding="0", rank="2")
    rank, site = place_of(panel._cmp, panel.selection.called)
    assert (rank, site) == (2, panel._cmp.roots[0].sites[0])


def test_a_call_of_run_b_alone_is_selected_though_a_call_of_run_a_has_its_site():
    cmp = one_call_more()
    panel = FindingsPanel(cmp)
    act(panel, finding="0")
    assert panel.selection.called == (0, 0)
    panel.selection.clear()
    act(panel, **next(button for button in read(panel.html).buttons if "site" in button))
    assert panel.selection.called == (0, 0)


def test_a_call_of_run_b_alone_on_a_path_is_selected_though_a_call_of_run_a_has_its_site():
    both = [Call("aten.mm.default", "lin", ["x"], ["y"]), Call("aten.mm.default", "out", ["y"], ["z"])]
    more = Call("aten.mm.default", "lin", ["p"], ["Y"])
    cmp = compare(make_run({0: both}), make_run({0: [both[0], more, replace(both[1], inputs=["Y"])]}))
    assert [rank.verdicts.tolist() for rank in cmp.ranks] == [
        [Verdict.MATCH, Verdict.ONLY_B, Verdict.ABSORBED]
    ]
    path = cmp.path(rank=0, site="1/0/forward/out/aten.mm.default#0")
    for markup in (came_from_html(path), call_html(call_details(cmp, 0, 2), path, links=True)):
        buttons = [button for button in read(markup).buttons if button.get("run") == "b"]
        assert buttons and {clicked_call(cmp, button) for button in buttons} == {(0, 1)}
    cmp = one_call_more()
    place = {"rank": "0", "site": cmp.first["site"][0]}
    assert (clicked_call(cmp, place), clicked_call(cmp, {**place, "run": "b"})) == ((0, 1), (0, 0))


def test_a_matching_call_is_no_part_of_a_finding_that_means_another_call_of_its_site():
    cmp = one_call_more()
    assert cmp.call(rank=0, site=cmp.first["site"][0]).findings == ()
    assert call_details(cmp, 0, 0).findings == (0,)
    panel = FindingsPanel(cmp)
    panel.selection.called = (0, 1)
    assert 'aria-pressed="true"' not in panel.html


def test_a_row_of_the_first_divergences_selects_its_call():
    panel = FindingsPanel(race())
    rows = [button for button in read(panel.html).buttons if "site" in button]
    assert [button["rank"] for button in rows] == ["0", "1", "2", "3"]
    act(panel, **rows[3])
    assert place_of(panel._cmp, panel.selection.called) == (3, rows[3]["site"])


def test_the_finding_of_the_selected_call_is_marked():
    panel = FindingsPanel(diverged())

    def pressed():
        return [attrs["aria-pressed"] for tag, attrs in read(panel.html).tags if "aria-pressed" in attrs]

    assert pressed() == ["false"]
    panel.selection.called = find_call(panel._cmp, 1, ORIGIN)
    assert pressed() == ["true"]


def test_a_finding_says_what_where_how_strong_and_what_next():
    cmp = diverged()
    text = read(FindingsPanel(cmp).html).text
    for said in (
        "kernel aten.mm.default",
        "in lin, backward",
        "origin on rank 1, steps 2",
        cmp.roots[0].next,
    ):
        assert said in text
    assert "untested, not exonerated. Evidence: exact." in text


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"finding": "7"},
        {"finding": "x"},
        {"rank": "0"},
        {"rank": "9", "site": ORIGIN},
        {"rank": "1", "site": "?"},
    ],
    ids=str,
)
def test_a_click_on_what_is_not_there_changes_nothing(data):
    panel = FindingsPanel(diverged())
    act(panel, **data)
    assert panel.selection.called == ()


def test_only_a_call_that_makes_a_difference_is_called_an_origin_and_has_its_sign():
    runs = [make_run({0: [Call("aten.index_add.default", "moe", [word], ["y"])]}) for word in "xX"]
    cmp = compare(*runs)
    assert cmp.roots[0].finding_class == "upstream" and not len(cmp.first_origin)
    sign = verdict_sign("origin")
    for entering, made in zip(map(said, (cmp, diverged())), (False, True), strict=True):
        assert (sign in entering, "origin on" in entering, "Begins on" in entering) == (made, made, made)
        assert ("enters on" in entering, "Enters on" in entering) == (not made, not made)


def said(cmp):
    """Give what the verdict bar, the findings and the text form say."""
    return f"{read(VerdictBar(cmp).html + FindingsPanel(cmp).html).text} {cmp!r}"


def test_no_finding_is_said_in_words():
    assert read(FindingsPanel(equal()).html).text == "No finding: nothing differs in what was compared."


# The details


def test_details_stand_there_at_once_and_the_path_follows():
    panel = DetailsPanel(race())
    panel.selection.called = find_call(panel._cmp, *_receiver(panel._cmp))
    assert "Following the difference back" in panel.html or "index_put" in panel.html
    assert panel.wait()
    assert "Following the difference back" not in panel.html
    assert any("index_put" in button.get("site", "") for button in read(panel.html).buttons)


def test_the_origin_of_a_difference_stands_above_the_details():
    cmp = race()
    panel = DetailsPanel(cmp)
    rank, site = _receiver(cmp)
    panel.selection.called = find_call(cmp, rank, site)
    panel.wait()
    said = "It came from ◆ aten.index_put.default in embedding.word_embeddings"
    assert read(panel.html).text.startswith(said)
    assert read(panel.twin().html).text.startswith(said)
    assert not read(panel.twin().html).buttons
    act(panel, **read(panel.html).buttons[0])
    panel.wait()
    assert read(panel.html).text.startswith("The difference begins here.")


def test_a_match_and_a_difference_without_a_way_are_told_apart():
    panel = DetailsPanel(diverged())
    panel.selection.called = find_call(panel._cmp, 0, ORIGIN)
    panel.wait()
    assert read(panel.html).text.startswith("Nothing differs here.")


def test_a_way_that_ends_without_an_origin_says_how_far_it_was_followed():
    rows = [
        {"hop": 0, "from_hop": None, "verdict": "receiver"},
        {"hop": 1, "from_hop": 0, "verdict": "receiver"},
        {"hop": 2, "from_hop": 1, "verdict": "unknown"},
    ]
    each = {"op": "aten.mm", "scope": "", "rank": 3, "step": 1, "site": "s"}
    found = read(came_from_html(pl.DataFrame([row | each | {"op": f"aten.{row['hop']}"} for row in rows])))
    assert found.text.startswith(
        "It could be followed back to, and no further than, ? aten.2 in no module, rank 3"
    )
    assert len(found.buttons) == 1


def _receiver(cmp):
    row = cmp.first.filter(cmp.first["verdict"] == "receiver").to_dicts()[0]
    return row["rank"], row["site"]


def test_every_call_that_the_details_name_can_be_selected():
    panel = DetailsPanel(race(), rank=0, site=race().roots[0].sites[0])
    panel.wait()
    buttons = [button for button in read(panel.html).buttons if "site" in button]
    assert len(buttons) > 8
    for button in buttons:
        act(panel, **button)
        assert place_of(panel._cmp, panel.selection.called) == (int(button["rank"]), button["site"])
    panel.wait()


def test_nothing_selected_says_how_to_select():
    panel = DetailsPanel(diverged())
    assert "No call is selected" in panel.html
    panel.selection.called = find_call(panel._cmp, 1, ORIGIN)
    panel.selection.clear()
    panel.wait()
    assert "No call is selected" in panel.html


def test_the_details_of_a_call_that_is_not_there_are_refused():
    with pytest.raises(InputError, match="rank 7 was not compared"):
        DetailsPanel(diverged(), rank=7, site=ORIGIN)
    with pytest.raises(InputError, match="is not a site"):
        DetailsPanel(diverged(), rank=1, site="somewhere")


def test_a_path_that_cannot_be_followed_is_said_beside_the_details(monkeypatch):
    panel = DetailsPanel(diverged())
    monkeypatch.setattr(
        panel._tracer, "path", lambda *_: (_ for _ in ()).throw(OSError("the disk <b>is</b> gone"))
    )
    panel.selection.called = find_call(panel._cmp, 1, ORIGIN)
    panel.wait()
    assert "The path cannot be followed: the disk &lt;b&gt;is&lt;/b&gt; gone" in panel.html
    assert "aten.mm.default" in panel.html


def test_a_call_that_cannot_be_read_says_why(monkeypatch):
    def fails(*_):
        raise TraceError("batch 3 of <rank 1> is damaged.", "record it again")

    monkeypatch.setattr("detlab.widgets.details_panel.call_details", fails)
    panel = DetailsPanel(diverged(), rank=1, site=ORIGIN)
    said = "This call cannot be read: batch 3 of &lt;rank 1&gt; is damaged. record it again"
    assert said in panel.html
    assert said in panel.twin().html


def test_of_many_questions_the_newest_is_answered_and_those_between_are_dropped():
    newest, begun, may_end, done = Newest(), threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        may_end.wait(60)
        return "first"

    newest.ask(slow, done.append)
    assert begun.wait(60)
    for text in ("second", "third"):
        newest.ask(lambda text=text: text, done.append)
    may_end.set()
    assert newest.wait(60)
    assert done == ["first", "third"]


def test_what_was_dropped_is_not_answered():
    newest, may_end, done = Newest(), threading.Event(), []
    newest.ask(lambda: may_end.wait(60), done.append)
    newest.ask(lambda: "second", done.append)
    newest.drop()
    may_end.set()
    assert newest.wait(60)
    assert "second" not in done


def test_a_broken_view_is_reported_and_does_not_stop_the_next_answer(monkeypatch):
    newest, done, reported = Newest(), [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    newest.ask(lambda: "first", lambda _: 1 / 0)
    newest.thread.join(60)
    assert reported == [ZeroDivisionError]
    newest.ask(lambda: "second", done.append)
    assert newest.wait(60)
    assert done == ["second"]


# The selection


def test_a_selected_call_is_named_by_rank_and_site():
    cmp = diverged()
    called = find_call(cmp, 1, ORIGIN)
    assert place_of(cmp, called) == (1, ORIGIN)
    assert step_of(cmp, called) == 2
    assert (place_of(cmp, ()), step_of(cmp, ())) == (None, None)


def test_clearing_a_selection_clears_call_and_step():
    selection = Selection(called=(0, 1), step=3)
    selection.clear()
    assert (selection.called, selection.step) == ((), None)


def test_a_call_is_named_by_its_position_where_a_button_knows_it():
    cmp = diverged()
    called = find_call(cmp, 1, ORIGIN)
    assert clicked_call(cmp, {"rank": "1", "position": str(called[1]), "site": "other"}) == called
    assert clicked_call(cmp, {"rank": "1", "site": ORIGIN}) == called


@pytest.mark.parametrize(
    "data",
    [
        {"rank": "1", "position": "999"},
        {"rank": "1", "position": "-1"},
        {"rank": "5", "position": "0"},
        {"rank": "1", "position": "x"},
        {"rank": "1"},
        {"rank": None, "site": ORIGIN},
    ],
    ids=str,
)
def test_a_button_that_names_no_call_is_refused(data):
    with pytest.raises(InputError):
        clicked_call(diverged(), data)


# Hostile names


def test_hostile_names_stay_text_in_every_panel():
    for name in ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>\x1b[2J\u202e'):
        cmp = diverged(scope=name, op=f"aten.{name}.default")
        panels = [VerdictBar(cmp), FindingsPanel(cmp), DetailsPanel(cmp)]
        act(panels[1], finding="0")
        panels[2].selection.called = panels[1].selection.called
        panels[2].wait()
        for panel in panels:
            assert_only_text(panel.html)
            assert_only_text(panel.twin().html)

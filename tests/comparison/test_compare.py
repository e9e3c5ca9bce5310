"""The whole comparison: overall verdict, refusals, damage, coverage, and properties that hold always."""

import ast
import dataclasses
import json
import shlex
from concurrent.futures import ProcessPoolExecutor
from importlib.resources import files
from multiprocessing import get_context

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab import compare, load_run
from detlab.comparison.text import headline
from detlab.errors import InputError, NotComparable, TraceError
from detlab.schema import Coordinate, Phase, Verdict
from detlab.testing import Call, make_metrics_run, make_run, save_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/comparison.json").read_text("utf-8"))


def calls(length=6, steps=(1,), **changed):
    """A chain of calls per step; ``changed`` maps a position to another word for its output."""
    made = []
    for step in steps:
        for n in range(length):
            output = changed.get(f"at{n}", f"y{n}") if step == steps[0] else f"y{n}"
            made.append(Call("aten.mm.default", f"layers.{n}", [f"x{n}"], [output], step=step))
    return made


def run_of(*ranks, **options):
    return make_run(dict(enumerate(ranks)), **options)


call_lists = st.lists(
    st.builds(
        Call,
        op=st.sampled_from(["aten.mm.default", "aten.add.Tensor"]),
        scope=st.sampled_from(["layers.0", "layers.1", ""]),
        inputs=st.lists(st.sampled_from("abc"), max_size=2),
        outputs=st.lists(st.sampled_from("def"), min_size=1, max_size=2),
        step=st.integers(1, 2),
        microbatch=st.integers(0, 1),
        phase=st.sampled_from([Phase.FORWARD, Phase.BACKWARD]),
    ),
    min_size=1,
    max_size=25,
)


@given(st.lists(call_lists, min_size=1, max_size=3))
def test_a_run_matches_itself_everywhere(ranks):
    run = run_of(*ranks)
    for verify in (False, True):
        cmp = compare(run, run, verify=verify)
        assert (cmp.verdict, cmp.exit_code, cmp.roots) == ("match", 0, ())
        assert cmp.counts[Verdict.MATCH] == cmp.num_calls == run.num_events


@given(call_lists, call_lists)
def test_swapping_the_runs_changes_nothing_but_the_sides(one, other):
    if not {call.step for call in one} & {call.step for call in other}:
        return
    there = compare(run_of(one), run_of(other)).counts
    back = compare(run_of(other), run_of(one)).counts
    sides = {Verdict.ONLY_A: Verdict.ONLY_B, Verdict.ONLY_B: Verdict.ONLY_A}
    assert {sides.get(verdict, verdict): count for verdict, count in back.items()} == there


@given(call_lists, call_lists)
def test_reading_every_event_changes_no_verdict(one, other):
    if not {call.step for call in one} & {call.step for call in other}:
        return
    skipped, read = (compare(run_of(one), run_of(other), verify=verify).to_json() for verify in (False, True))
    assert skipped == read


@settings(max_examples=20)
@given(call_lists, call_lists, st.booleans())
def test_the_json_form_follows_its_schema(one, other, two_ranks):
    if not {call.step for call in one} & {call.step for call in other}:
        return
    ranks = [one, one] if two_ranks else [one]
    jsonschema.validate(compare(run_of(*ranks), run_of(*([other] * len(ranks)))).to_json(), SCHEMA)


@given(st.data())
def test_deleting_calls_from_one_side_yields_just_these_and_no_origin(data):
    whole = [Call("aten.mm.default", f"layers.{n}", [f"x{n}"], [f"y{n}"]) for n in range(30)]
    gone = data.draw(st.sets(st.integers(0, 29), max_size=10))
    rest = [call for n, call in enumerate(whole) if n not in gone]
    cmp = compare(run_of(whole), run_of(rest)) if rest else None
    assert cmp.counts[Verdict.ONLY_A] == len(gone)
    assert cmp.counts[Verdict.MATCH] == 30 - len(gone)


def test_the_order_of_ranks_does_not_matter():
    made = {0: calls(), 1: calls(at2="Y"), 2: calls()}
    other = make_run(dict(reversed(made.items())))
    forwards, backwards = (compare(run_of(calls(), calls(), calls()), run) for run in (make_run(made), other))
    assert forwards.to_json() == backwards.to_json()


def test_one_planted_origin_is_found_and_nothing_else():
    cmp = compare(run_of(calls(), calls()), run_of(calls(), calls(at3="Y")))
    assert cmp.first_origin.select("rank", "scope", "seq_a").rows() == [(1, "layers.3", 3)]
    assert cmp.first.equals(cmp.first_origin)
    (finding,) = cmp.roots
    assert (finding.finding_class, finding.ranks, finding.num_sites, finding.matched_before) == (
        "kernel",
        (1,),
        1,
        3,
    )
    assert finding.sites == ("1/0/forward/layers.3/aten.mm.default#0",)


def test_layers_of_one_kind_make_one_finding():
    cmp = compare(run_of(calls()), run_of(calls(at1="X", at4="Y")))
    (finding,) = cmp.roots
    assert (finding.scopes, finding.num_sites) == (("layers.1", "layers.4"), 2)


def test_ranks_that_fit_an_axis_are_said_to_fit_by_chance_too():
    places = {r: Coordinate(tp=r % 2, dp=r // 2) for r in range(4)}
    runs = [
        make_run({r: calls(**({"at2": "Y"} if odd and r >= 2 else {})) for r in places}, coordinates=places)
        for odd in (False, True)
    ]
    (finding,) = compare(*runs).roots
    assert (finding.axis, finding.ranks) == ("dp=1", (2, 3))
    assert finding.chance == pytest.approx(4 / 6)


def test_a_capture_of_the_site_is_the_next_step(tmp_path):
    saved = save_run(run_of(calls(at2="Y")), tmp_path / "a")
    capture = saved / "captures" / "rank00000-1"
    capture.mkdir(parents=True)
    (capture / "capture.json").write_text('{"site": "1/0/forward/layers.2/aten.mm.default#0"}')
    (finding,) = compare(saved, run_of(calls())).roots
    assert finding.next == f"detlab replay {capture}"


def test_a_capture_in_a_folder_with_blanks_is_named_as_a_shell_takes_it(tmp_path):
    saved = save_run(run_of(calls(at2="Y")), tmp_path / "last night's runs" / "a")
    site = "1/0/forward/layers.2/aten.mm.default#0"
    capture = saved / "captures" / "rank00000-1"
    capture.mkdir(parents=True)
    (capture / "capture.json").write_text(json.dumps({"site": site, "rank": 0}))
    cmp = compare(saved, run_of(calls()))
    wanted = ["detlab", "replay", str(capture)]
    assert [shlex.split(cmp.roots[0].next), shlex.split(cmp.call(rank=0, site=site).next)] == [wanted, wanted]


def test_a_run_that_was_given_twice_is_said_to_be_one(tmp_path):
    saved, other = (save_run(run_of(calls()), str(tmp_path / name)) for name in "ab")
    same, again = compare(saved, saved / ".." / saved.name), compare(saved, other)
    assert headline(same).startswith("MATCH: synthetic was compared with itself: nothing differs in what")
    assert "itself" not in headline(again)


@pytest.mark.parametrize(
    ("ops", "words"),
    [("m", "since step 1."), ("mn", "since step 1; 1 more finding."), ("mno", "; 2 more findings.")],
)
def test_the_headline_counts_what_else_was_found(ops, words):
    runs = [run_of([Call(f"aten.{op}.default", op, [op], [bits + op]) for op in ops]) for bits in "xy"]
    assert headline(compare(*runs)).endswith(words)


def test_two_runs_of_other_layout_are_refused():
    one, other = run_of(calls(), layout={"tp": 1}), run_of(calls(), layout={"tp": 2})
    with pytest.raises(NotComparable, match=r"different parallel layouts \(tp 1 and 2\)"):
        compare(one, other)


def test_two_runs_of_other_world_size_are_refused():
    with pytest.raises(NotComparable, match="world size 1 and 2"):
        compare(run_of(calls(), layout={}), run_of(calls(), layout={}, world_size=2))


def test_runs_without_a_common_rank_are_refused():
    one, other = (make_run({rank: calls()}, layout={}, world_size=2) for rank in (0, 1))
    with pytest.raises(NotComparable, match="no rank in common: tp0 dp0 against tp0 dp1"):
        compare(one, other)


def test_a_run_of_step_metrics_alone_is_sent_to_the_comparison_of_metrics():
    logs = make_metrics_run({"lm loss": {1: 2.0}}, label="monday")
    traced = make_run({0: [Call("aten.mm.default", outputs=["y"])]})
    for a, b in ((logs, logs), (traced, logs), (logs, traced)):
        with pytest.raises(
            NotComparable, match=r"monday has step metrics and no trace\.\nHint: .*compare_metrics"
        ):
            compare(a, b)


def test_runs_without_a_common_step_are_refused_and_told_of_the_offset():
    with pytest.raises(NotComparable, match=r"no step in common: 1-2 against 7.*\n.*start_step"):
        compare(run_of(calls(steps=(1, 2))), run_of(calls(steps=(7,))))


def test_two_ranks_at_one_place_are_refused():
    places = {0: Coordinate(), 1: Coordinate()}
    run = make_run({0: calls(), 1: calls()}, coordinates=places)
    with pytest.raises(TraceError, match="more than one rank at tp0 dp0"):
        compare(run, run)


def test_a_step_that_one_run_lacks_makes_a_match_incomplete():
    cmp = compare(run_of(calls(steps=(1, 2))), run_of(calls(steps=(1,))))
    assert (cmp.verdict, cmp.exit_code, cmp.steps) == ("incomplete", 2, (1,))
    assert cmp.problems == (("synthetic", "has no step 2, which synthetic has"),)


def test_a_rank_that_one_run_lacks_makes_a_match_incomplete():
    cmp = compare(run_of(calls(), calls()), run_of(calls(), layout={"dp": 2}, world_size=2))
    assert (cmp.verdict, cmp.exit_code, len(cmp.ranks)) == ("incomplete", 2, 1)
    assert [str(place) for place in cmp.untraced] == ["tp0 dp1"]


def test_a_difference_counts_although_a_rank_is_missing():
    cmp = compare(run_of(calls(), calls()), run_of(calls(at2="Y"), layout={"dp": 2}, world_size=2))
    assert (cmp.verdict, cmp.exit_code, cmp.complete) == ("diverged", 1, False)


def cut(folder, num_bytes):
    path = folder / "rank00000.events.arrows"
    path.write_bytes(path.read_bytes()[:num_bytes])


def test_a_file_that_is_cut_makes_a_match_incomplete_and_claims_no_extra_call(tmp_path):
    run = run_of(calls(steps=(1, 2, 3)))
    whole, damaged = (save_run(run, tmp_path / name) for name in "ab")
    cut(damaged, (damaged / "rank00000.events.arrows").stat().st_size - 8)
    cmp = compare(whole, damaged)
    assert (cmp.verdict, cmp.counts[Verdict.ONLY_A]) == ("incomplete", 0)
    assert "the run did not close it" in cmp.problems[0][1]


def test_a_rank_without_a_readable_event_does_not_count_as_compared(tmp_path):
    whole = save_run(run_of(calls(), calls()), tmp_path / "whole")
    damaged = save_run(run_of(calls(), calls()), tmp_path / "damaged")
    stream = damaged / "rank00001.events.arrows"
    stream.write_bytes(stream.read_bytes()[: int(load_run(damaged).ranks[1].index["offset"][0])])
    cmp = compare(whole, damaged)
    assert (cmp.verdict, cmp.coverage["ranks"], cmp.coverage["of_ranks"]) == ("incomplete", 1, 2)
    assert "compared 1 of 2 ranks" in repr(cmp)


def test_calls_after_the_cut_are_missing_and_not_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("detlab.store.writer.MAX_BATCH_ROWS", 4)
    run = run_of(calls(length=10))
    whole, damaged = (save_run(run, tmp_path / name) for name in "ab")
    cut(damaged, int(load_run(damaged).ranks[0].index["end"][1]) + 100)
    cmp = compare(whole, damaged)
    assert (cmp.verdict, cmp.num_calls) == ("incomplete", 8)
    assert cmp.problems[-1] == ("comparison", "2 calls stand after the end of a file that was cut")


def test_a_folder_without_a_trace_is_an_error_that_names_it(tmp_path):
    with pytest.raises(TraceError, match=f"{tmp_path} holds no trace that detlab knows"):
        compare(tmp_path, tmp_path)
    with pytest.raises(TraceError, match="does not exist"):
        compare(tmp_path / "nowhere", tmp_path)


def test_a_rank_that_cannot_be_read_is_a_problem_and_the_others_are_compared(tmp_path):
    run = run_of(calls(), calls())
    whole, damaged = (save_run(run, tmp_path / name) for name in "ab")
    (damaged / "rank00001.header.json").write_text("{")
    cmp = compare(whole, damaged)
    assert (cmp.verdict, len(cmp.ranks)) == ("incomplete", 1)
    assert "rank00001.header.json cannot be read" in cmp.problems[0][1]


def test_a_match_on_disk_reads_no_event(tmp_path, monkeypatch):
    run = run_of(calls(), calls())
    saved = [save_run(run, tmp_path / name) for name in "ab"]

    def refuse(*_):
        raise AssertionError("an event was read")

    monkeypatch.setattr("detlab.store.batches.FileBatches.read", refuse)
    assert compare(*saved).verdict == "match"
    with pytest.raises(AssertionError, match="an event was read"):
        compare(*saved, verify=True)


def test_damaged_bytes_are_never_called_an_origin(tmp_path):
    saved = [save_run(run_of(calls()), tmp_path / name) for name in "ab"]
    path = saved[1] / "rank00000.events.arrows"
    raw = path.read_bytes()
    digest = saved_digest(saved[1])
    assert raw.count(digest) == 1
    path.write_bytes(raw.replace(digest, bytes(8)))
    assert compare(*saved).verdict == "match"  # the segment digests are equal, so no event is read
    with pytest.raises(TraceError, match="do not have their recorded digest"):
        compare(*saved, verify=True)
    other = save_run(run_of(calls(at1="Y")), tmp_path / "c")
    with pytest.raises(TraceError, match="do not have their recorded digest"):
        compare(other, saved[1])


def test_a_damaged_rank_is_a_problem_and_the_others_are_compared(tmp_path):
    one = save_run(run_of(calls(), calls()), tmp_path / "a")
    other = save_run(run_of(calls(at1="Y"), calls()), tmp_path / "b")
    path = other / "rank00000.events.arrows"
    path.write_bytes(path.read_bytes().replace(saved_digest(other), bytes(8)))
    cmp = compare(one, other)
    assert (cmp.verdict, [rank.rank for rank in cmp.ranks]) == ("incomplete", [1])
    assert cmp.problems[0][0] == "rank 0"


def saved_digest(folder):
    trace = load_run(folder).ranks[0]
    return trace.columns(3, 4, ["out_digest"])["out_digest"].tobytes()


def test_ranks_can_be_compared_in_other_processes(tmp_path):
    a = save_run(run_of(calls(), calls()), tmp_path / "a")
    b = save_run(run_of(calls(), calls(at3="Y")), tmp_path / "b")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert compare(a, b, executor=executor).to_json() == compare(a, b).to_json()


def test_what_was_not_compared_is_refused_with_what_was():
    cmp = compare(run_of(calls()), run_of(calls()))
    with pytest.raises(InputError, match=r"step 2 was not compared.\nHint: choose one of 1"):
        cmp.sites(step=2, rank=0)
    with pytest.raises(InputError, match=r"rank 7 was not compared.\nHint: choose one of 0"):
        cmp.sites(step=1, rank=7)
    with pytest.raises(InputError, match="is not a site"):
        cmp.path(rank=0, site="here")
    with pytest.raises(InputError, match="makes no call"):
        cmp.path(rank=0, site="1/0/forward/layers.0/aten.mm.default#9")
    with pytest.raises(InputError, match="there is no finding 0"):
        cmp.discriminate(0)


def test_the_text_says_the_verdict_first_and_what_to_do_last():
    text = repr(compare(run_of(calls()), run_of(calls(at3="Y"))))
    assert text.startswith(
        "DIVERGED: kernel: aten.mm.default in layers.3 (forward), on 1 of 1 ranks, since step 1."
    )
    assert "3 calls before it match" in text
    assert 'capture=["1/0/forward/layers.3/aten.mm.default#0"]' in text.replace("\n    ", " ").replace(
        "  ", " "
    )


def test_the_html_form_escapes_what_files_say():
    evil = Call("<script>alert(1)</script>", "<b>", ["x"], ["y"])
    cmp = compare(run_of([evil]), run_of([dataclasses.replace(evil, outputs=["Y"])]))
    assert "<script>" not in cmp._repr_html_()
    assert "&lt;script&gt;" in cmp._repr_html_()


def test_runs_are_never_changed_by_comparing():
    one, other = run_of(calls(), calls()), run_of(calls(), calls(at3="Y"))
    before = [rows.tobytes() for run in (one, other) for rank in run.ranks for rows in rank.events.rows]
    compare(one, other)
    after = [rows.tobytes() for run in (one, other) for rank in run.ranks for rows in rank.events.rows]
    assert before == after
    assert np.array(before).size == 4


def test_a_site_with_a_quote_can_be_pasted_into_the_next_step():
    op = 'triton:k("x")'
    cmp = compare(*(run_of([Call(op, inputs=["x"], outputs=[word])]) for word in "yz"))
    site = cmp.first["site"][0]
    for said in (cmp.roots[0].next, cmp.call(rank=0, site=site).next):
        (found,) = ast.literal_eval(said.partition("capture=")[2].removesuffix(")"))
        assert found == site

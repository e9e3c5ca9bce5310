"""The cells of a map at full resolution: every call has its place, and every place gives its call back."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.comparison import compare
from detlab.comparison.places import site_at
from detlab.errors import InputError
from detlab.schema import Coordinate, Mask, Phase, Verdict
from detlab.testing import Call, make_run
from detlab.views.cells import MapSource
from detlab.views.cells.counts import ASIDE
from detlab.views.cells.programs import find_programs
from detlab.views.pooling import MATCH, ORIGIN, UNTRACED
from tests.views.maps import CALLS, STATES, brute_cells, calls_of, comparisons, named
from tests.views.stories import one_origin, set_aside, step_calls, story

HIDDEN = st.lists(st.sampled_from([verdict.name.lower() for verdict in Verdict if verdict]), max_size=3)


def shown(codes, hidden):
    """Give codes as a map shows them."""
    hidden_codes = [1 + Verdict[name.upper()] for name in hidden]
    return np.where(np.isin(codes, hidden_codes), MATCH, codes)


@settings(max_examples=60, deadline=None)
@given(comparisons(), st.sampled_from(STATES))
def test_every_cell_is_the_worst_of_its_calls(cmp, state):
    state = {**named(state, cmp), "order": "rank"}
    source = MapSource(cmp)
    tile = source.window(state, 1_000, 1_000)[1]
    assert tile.tolist() == brute_cells(cmp, state, source.size(source.normal(state))).tolist()


@settings(max_examples=60, deadline=None)
@given(comparisons(), st.sampled_from(STATES), HIDDEN, st.data())
def test_a_block_names_the_first_of_its_worst_calls(cmp, state, hidden, data):
    state = {**named(state, cmp), "order": "rank", "hidden": hidden}
    source = MapSource(cmp)
    size = source.size(source.normal(state))
    r0, c0 = data.draw(st.integers(0, size[0] - 1)), data.draw(st.integers(0, size[1] - 1))
    r1, c1 = data.draw(st.integers(r0 + 1, size[0])), data.draw(st.integers(c0 + 1, size[1]))
    inside = [
        (-int(shown(code, hidden)), row, column, number, position)
        for row, column, number, position, code in calls_of(cmp, state)
        if r0 <= row < r1 and c0 <= column < c1 and code != UNTRACED
    ]
    assert source.call_in(state, [r0, r1, c0, c1]) == (min(inside)[3:] if inside else None)


@settings(max_examples=60, deadline=None)
@given(comparisons(), st.sampled_from(STATES), HIDDEN, st.data())
def test_the_place_of_the_call_in_a_cell_is_that_cell(cmp, state, hidden, data):
    source = MapSource(cmp)
    order = data.draw(st.sampled_from(source.orders))
    state = {**named(state, cmp), "hidden": hidden, "order": order}
    num_rows, num_columns = source.size(source.normal(state))
    for row in range(num_rows):
        for column in range(num_columns):
            called = source.call_in(state, [row, row + 1, column, column + 1])
            assert called is None or source.place_of(state, *called) == (row, column)


@settings(max_examples=40, deadline=None)
@given(comparisons())
def test_no_row_is_lost_or_doubled_under_any_order(cmp):
    source = MapSource(cmp)
    for state in ({"step": None}, {"columns": "step"}):
        meta, tile = source.window({**state, "order": "rank"}, 1_000, 1_000)
        plain = dict(zip(meta["row_labels"], tile.tolist(), strict=True))
        for order in source.orders:
            meta, tile = source.window({**state, "order": order}, 1_000, 1_000)
            assert dict(zip(meta["row_labels"], tile.tolist(), strict=True)) == plain
            edges = [edge for _, *edges in meta["groups"] for edge in edges]
            assert order == "rank" or (edges == sorted(edges) and edges[-1] == len(plain))


@settings(max_examples=60, deadline=None)
@given(comparisons(), st.sampled_from([None, 0, 1]))
def test_counts_are_those_of_the_calls_and_what_is_set_aside_is_counted_apart(cmp, step):
    state = named({"rows": "rank", "columns": "call", "step": step}, cmp)
    expected = np.zeros((len(cmp.ranks), ASIDE + 1), int)
    for _, _, number, position, code in calls_of(cmp, state):
        rank = cmp.ranks[number]
        aside = code == MATCH and rank.verdicts[position] and rank.masks[position] & Mask.SET_ASIDE
        expected[number, ASIDE if aside else code] += 1
    source = MapSource(cmp)
    assert source.planes.counts(source.steps_of(state)).tolist() == expected.tolist()
    meta = source.window(state)[0]
    assert list(meta["counts"].values()) == expected[:, MATCH:ASIDE].sum(axis=0).tolist()
    assert meta["aside"] == expected[:, ASIDE].sum()


@settings(max_examples=40, deadline=None)
@given(comparisons())
def test_the_first_step_is_the_least_with_a_call_that_differs_and_counts(cmp):
    cmp = dataclasses.replace(cmp, roots=())
    calls = calls_of(cmp, {"rows": "rank", "columns": "step", "step": None})
    differing = [cmp.steps[column] for _, column, _, _, code in calls if code > MATCH]
    assert MapSource(cmp).first_step() == min(differing, default=cmp.steps[0])


def test_the_first_step_is_that_of_a_finding():
    cmp = one_origin()
    later = dataclasses.replace(cmp.roots[0], steps=(2,))
    assert MapSource(dataclasses.replace(cmp, roots=(later,))).first_step() == 2


def test_ranks_that_run_one_program_are_looked_at_once():
    run = make_run(
        {0: step_calls(1), 1: step_calls(1), 2: step_calls(1)[:2], 3: step_calls(1, op="aten.bmm")}
    )
    programs, program_of = find_programs(compare(run, run).ranks)
    assert [program.members.tolist() for program in programs] == [[0, 1], [2], [3]]
    assert program_of.tolist() == [0, 0, 1, 2]
    assert programs[0].parts is programs[2].parts  # other callees, but the same steps and phases


def test_a_program_that_differs_in_run_b_alone_is_another_one():
    extra = [Call("aten.relu.default", "act", ["e"], ["r"])]
    a = make_run({0: step_calls(1), 1: step_calls(1)})
    b = make_run({0: step_calls(1), 1: [*step_calls(1), *extra]})
    programs, _ = find_programs(compare(a, b).ranks)
    assert [program.members.tolist() for program in programs] == [[0], [1]]


def test_programs_whose_calls_of_run_b_alone_have_other_names_are_others():
    run = make_run({0: step_calls(1), 1: step_calls(1)})
    ops = ("aten.relu.default", "aten.gelu.default")
    more = {rank: [*step_calls(1), Call(op, "act", ["e"], ["r"])] for rank, op in enumerate(ops)}
    source = MapSource(compare(run, make_run(more)))
    assert [program.members.tolist() for program in source.planes.programs] == [[0], [1]]
    assert [words.split(" · ")[-2] for words in (source.describe({}, [r, r + 1, 3, 4]) for r in (0, 1))] == [
        f"{op} in act" for op in ops
    ]


def test_a_rank_that_runs_fewer_calls_has_no_call_in_its_tail():
    run = make_run({0: step_calls(1)[:1], 1: step_calls(1)})
    source = MapSource(compare(run, run))
    meta, tile = source.window({})
    assert tile.tolist() == [[MATCH, UNTRACED, UNTRACED], [MATCH] * 3] and meta["has_untraced"]
    assert source.call_in({}, [0, 1, 1, 3]) is None
    assert source.describe({}, [0, 1, 1, 3]) == "rank 0 · tp0 dp0 · untraced: no call was recorded"


def test_a_place_that_one_run_did_not_record_is_a_row_without_calls():
    a = story("a", {0: ["y"], 1: ["y"], 2: ["y"]})
    source = MapSource(compare(a, dataclasses.replace(a, ranks=(a.ranks[0], a.ranks[2]))))
    meta, tile = source.window({"order": "rank"})
    assert meta["row_labels"] == ["0 · tp0 dp0", "1 · tp0 dp1 · only in a", "2 · tp0 dp2"]
    assert tile.tolist() == [[MATCH] * 3, [UNTRACED] * 3, [MATCH] * 3]
    assert source.call_in({}, [1, 2, 0, 3]) is None and source.call_in({}, [0, 3, 2, 3]) == (0, 2)


def test_what_is_set_aside_is_a_match_counted_apart_and_named_when_asked():
    source = MapSource(set_aside())
    meta, tile = source.window({})
    assert tile.tolist() == [[MATCH]] and meta["markers"] == []
    assert meta["aside"] == 1 and set(meta["counts"].values()) == {0}
    assert source.describe({}, [0, 1, 0, 1]).endswith(" · origin, set aside")


def test_a_mark_on_a_call_that_matches_changes_nothing_but_one_of_untraced_does():
    cmp = one_origin()
    for mask, code in ((Mask.SET_ASIDE, MATCH), (Mask.UNTRACED, UNTRACED)):
        ranks = tuple(rank.with_masks(np.array([0]), mask) for rank in cmp.ranks)
        source = MapSource(dataclasses.replace(cmp, ranks=ranks))
        assert source.window({"step": 1})[1][:, 0].tolist() == [code, code]
        assert source.window({"rows": "op", "step": 1})[1][0, 0] == code
        assert source.window({"step": None})[1][0, 0] == MATCH  # of step 2
        assert source.describe({"step": 1}, [0, 1, 0, 1]).endswith("match") == (code == MATCH)


def test_a_hidden_verdict_is_a_match_everywhere_but_in_the_counts_and_in_words():
    source = MapSource(one_origin())
    state = {"hidden": ["receiver"], "order": "rank"}
    meta, tile = source.window(state)
    assert tile.tolist() == [[MATCH] * 3, [MATCH, ORIGIN, MATCH]]
    assert meta["row_counts"] == [[0, 0], [1, 1]] and meta["column_counts"] == [0, 1, 0]
    assert meta["markers"] == [[1, 1, ORIGIN]] and meta["counts"]["receiver"] == 1
    assert source.overview(state)["tile"] == bytes(tile.ravel())
    assert source.describe(state, [1, 2, 2, 3]).endswith(" · receiver, hidden")


@pytest.mark.parametrize(
    "state",
    [{"columns": "step"}, {"rows": "op", "columns": "step"}, {"step": None}, {"rows": "op", "step": 2}],
)
def test_hiding_the_worst_of_many_calls_uncovers_the_next(state):
    words = {
        0: [["y", "y"], ["y", "y"]],
        1: [["y", "z"], ["z", "z"]],
    }  # rank 0 receives where 1 has an origin
    a, b = (story(label, {rank: each[n] for rank, each in words.items()}) for n, label in enumerate("ab"))
    cmp = compare(a, b)
    same = [dataclasses.replace(rank, verdicts=rank.verdicts.copy()) for rank in cmp.ranks]
    for rank, verdicts in zip(same, ([0, 0, 0, 0, 6, 0], [0, 2, 0, 0, 7, 6]), strict=True):
        rank.verdicts[:] = verdicts
    ranks = [dataclasses.replace(rank, differing=np.flatnonzero(rank.verdicts)) for rank in same]
    source = MapSource(dataclasses.replace(cmp, ranks=tuple(ranks)))
    uncovered = source.window({**state, "hidden": ["origin"]})[1]
    assert source.window(state)[1].max() == ORIGIN and uncovered.max() == 1 + Verdict.UNKNOWN


def test_the_worst_over_steps_leads_to_the_step_that_has_it():
    source = MapSource(one_origin())
    number, position = source.call_in({"step": None}, [0, 2, 0, 3])
    assert str(site_at(source.cmp.ranks[number], position)) == "2/0/backward/lin/aten.mm.default#0"
    assert source.place_of({"step": 1}, number, position) is None
    assert source.place_of({"step": 2, "order": "rank"}, number, position) == (1, 1)


def test_a_call_of_run_b_alone_has_a_name_and_a_place():
    extra = Call("aten.relu.default", "act", ["e"], ["r"], phase=Phase.BACKWARD)
    calls = step_calls(1)
    source = MapSource(compare(make_run({0: calls}), make_run({0: [*calls[:2], extra, *calls[2:]]})))
    assert "aten.relu.default in act · only_b" in source.describe({}, [0, 1, 2, 3])
    ops = source.window({"rows": "op"})
    assert ops[0]["row_labels"][-1] == "aten.relu.default" and ops[1][-1, 2] == 1 + Verdict.ONLY_B


def test_a_state_is_made_whole():
    source = MapSource(one_origin())
    assert source.normal({}) == {
        "rows": "rank",
        "columns": "call",
        "step": 2,
        "order": "dp",
        "hidden": [],
        "window": None,
    }
    assert source.normal({"columns": "step", "step": 1})["step"] is None
    assert type(source.normal({"step": np.int64(1)})["step"]) is int
    assert source.normal({"hidden": ["origin", "receiver", "origin"]})["hidden"] == ["receiver", "origin"]


@pytest.mark.parametrize(
    ("given_window", "expected"),
    [
        ([0.4, 1.2, 0, 3], None),
        ([1, 2, 1, 2], [1, 2, 1, 2]),
        ([1, 1, 2.5, 2.5], [1, 2, 2, 3]),
        ([-5, 1, -5, 99], [0, 1, 0, 3]),
        ([7, 9, 9, 7], [1, 2, 2, 3]),
    ],
)
def test_a_window_is_whole_cells_inside_the_map(given_window, expected):
    assert MapSource(one_origin()).normal({"window": given_window})["window"] == expected


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        ({"rows": "host"}, "no map of host by call"),
        ({"columns": "hour"}, "no map of rank by hour"),
        ({"step": 3}, "step 3 alone cannot be made"),
        ({"step": True}, "step True alone cannot be made"),
        ({"order": "pp"}, "cannot be ordered by pp"),
        ({"order": None}, "cannot be ordered by None"),
        ({"hidden": ["match"]}, "cannot hide match"),
        ({"hidden": "all"}, "cannot hide all"),
        ({"window": [0, 1, 2]}, "is no window of a map"),
        ({"window": [0, 1, 0, float("nan")]}, "is no window of a map"),
        ({"window": ["0", "1", "0", "1"]}, "is no window of a map"),
        ({"zoom": 2}, "has no zoom"),
    ],
)
def test_a_state_that_no_map_has_is_refused_with_a_hint(wrong, finding):
    with pytest.raises(InputError, match=f"(?s){finding}.*Hint:"):
        MapSource(one_origin()).normal(wrong)


def test_without_a_call_there_is_an_empty_map():
    a, b = make_run({0: step_calls(1)}), make_run({0: step_calls(1)})
    cmp = dataclasses.replace(compare(a, b), ranks=(), steps=(), roots=())
    source = MapSource(
        dataclasses.replace(cmp, a=dataclasses.replace(a, ranks=()), b=dataclasses.replace(b, ranks=()))
    )
    for state in ({}, {"columns": "step"}, {"rows": "op"}):
        meta, tile = source.window(state)
        assert tile.size == 0 and meta["num_columns"] == 0 and meta["markers"] == []
        assert source.call_in(state, [0, 1, 0, 1]) is None and source.search(state, "mm") == []
        assert source.overview(state)["tile"] == b""


def test_a_search_finds_scopes_and_ops_in_capitals_or_not():
    source = MapSource(one_origin())
    assert source.search({}, " MM ") == [(None, 1, 2)]
    assert source.search({}, "emb") == [(None, 0, 1)]  # its scope and its op
    assert source.search({}, "a") == [(None, 0, 3)]
    assert source.search({}, "nowhere") == source.search({}, " ") == source.search({}, "a.*d") == []


def test_a_search_in_a_map_without_calls_finds_labels():
    source = MapSource(one_origin())
    assert source.search({"columns": "step", "order": "rank"}, "DP1") == [(1, 0, 2)]
    assert source.search({"rows": "op"}, "aten.add") == [(2, 0, 3)]
    assert source.search({"order": "rank"}, "dp1") == [(1, 0, 3)]


def test_a_call_that_only_another_program_makes_is_found_on_the_first_row_that_makes_it():
    calls = [dataclasses.replace(call, step=1) for call in CALLS]
    places = {rank: Coordinate(pp=rank // 2, dp=rank % 2) for rank in range(4)}
    stages = {0: calls[:2] + calls, 1: calls[:2] + calls, 2: calls[2:], 3: calls[2:]}
    run = make_run(stages, coordinates=places)
    source = MapSource(compare(run, run))
    found = source.search({"order": "dp"}, "layers.1")
    assert found == [(1, 0, 1), (None, 4, 5)]
    assert source.window({"order": "dp"})[0]["row_labels"][1].startswith("2 ·")


def test_characters_that_steer_a_terminal_or_the_reading_direction_are_seen_in_every_text():
    evil = "a\x1b[31m\u202eb"
    recipes = {rank: {"host": f"{evil}{rank}"} for rank in (0, 1)}
    run = make_run({rank: step_calls(1, scope=evil, op=evil) for rank in (0, 1)}, recipes=recipes)
    source = MapSource(compare(run, run))
    meta = source.window({"order": "host"})[0]
    texts = [meta["groups"][0][0], meta["column_labels"][1], source.describe({}, [0, 1, 1, 2])]
    texts.append("".join(source.window({"rows": "op"})[0]["row_labels"]))
    for text in texts:
        assert "\\x1b" in text and "\\u202e" in text and "\x1b" not in text and "\u202e" not in text
    assert source.search({}, evil) == [(None, 1, 2)]


def test_words_say_rank_step_phase_layer_call_op_and_scope():
    run = make_run({0: [dataclasses.replace(call, step=7) for call in CALLS]})
    source = MapSource(compare(run, run))
    call = "call 2 · aten.mm.default in decoder.layers.1.mlp"
    expected = f"rank 0 · tp0 dp0 · step 7 · backward · layer 1 · {call} · match"
    assert source.describe({}, [0, 1, 2, 3]) == expected
    assert source.describe({}, [0, 1, 1, 4]).endswith(" · match · worst of 1 x 3 cells")
    assert source.describe({"rows": "op"}, [0, 1, 1, 2]) == "op aten.mm.default · the op is not called here"

"""Windows of a map: exact pooling, margins, marks that cannot be missed, groups, and names along columns."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.comparison import compare
from detlab.schema import Callee, Coordinate, Mask, Phase, Verdict
from detlab.testing import Call, make_run
from detlab.views.cells import MapSource
from detlab.views.cells.bands import layer_bands, layer_of
from detlab.views.cells.markers import MAX_MARKERS, RARE
from detlab.views.cells.pool import pool
from detlab.views.cells.presence import presence_of, table_of
from detlab.views.pooling import MATCH, ORIGIN, factor_for
from tests.views.large import large_comparison
from tests.views.maps import CALLS, STATES, comparisons, named, with_verdicts
from tests.views.stories import one_in_a_million, one_origin, step_calls, story


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_pooling_equals_brute_force_for_any_size_window_and_hidden_verdict(data):
    num_rows, num_columns = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    codes = data.draw(st.sampled_from([(1,), (0, 1), (1, 1, 1, 3), tuple(range(9))]))
    cells = rng.choice(np.array(codes, np.uint8), (num_rows, num_columns))
    order = rng.permutation(num_rows) if data.draw(st.booleans()) else np.arange(num_rows)
    r0, c0 = data.draw(st.integers(0, num_rows - 1)), data.draw(st.integers(0, num_columns - 1))
    r1, c1 = data.draw(st.integers(r0 + 1, num_rows)), data.draw(st.integers(c0 + 1, num_columns))
    down, right = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 60))
    hidden = data.draw(st.lists(st.integers(2, 8), max_size=3))
    before = cells.copy()
    pooled = pool(cells, order[r0:r1], slice(c0, c1), (down, right), table_of(tuple(hidden), False))
    shown = cells[order][r0:r1, c0:c1].copy()
    shown[np.isin(shown, hidden)] = MATCH
    for row in range(-(-(r1 - r0) // down)):
        block = shown[row * down : (row + 1) * down]
        assert (
            pooled.origins[row] == (block == ORIGIN).sum() and pooled.differing[row] == (block > MATCH).sum()
        )
        for column in range(-(-(c1 - c0) // right)):
            assert pooled.tile[row, column] == block[:, column * right : (column + 1) * right].max()
    per_column = (shown > MATCH).sum(axis=0)
    most = [per_column[first : first + right].max() for first in range(0, c1 - c0, right)]
    assert pooled.column_rows.tolist() == most
    assert (cells == before).all()


def test_pooling_of_more_cells_than_are_worked_on_at_once_is_exact():
    rng = np.random.default_rng(0)
    cells = rng.choice(np.array([0, 1, 2, 2, 3, 3, 3, 3, 8], np.uint8), (700, 9_000))
    pooled = pool(cells, np.arange(700), slice(0, 9_000), (300, 4))
    padded = np.zeros((900, 9_000), np.uint8)
    padded[:700] = cells
    assert (pooled.tile == padded.reshape(3, 300, 2_250, 4).max(axis=(1, 3))).all()
    assert pooled.differing.tolist() == [(padded[at : at + 300] > 1).sum() for at in (0, 300, 600)]
    assert pooled.origins.tolist() == [(padded[at : at + 300] == 8).sum() for at in (0, 300, 600)]
    assert (pooled.column_rows == (cells > 1).sum(axis=0).reshape(-1, 4).max(axis=1)).all()


@pytest.mark.parametrize(
    ("verdicts", "hidden", "code"),
    [
        ([], [], 0),
        ([Verdict.MATCH], [], MATCH),
        ([Verdict.RECEIVER], [1 + Verdict.RECEIVER], MATCH),
        ([Verdict.RECEIVER, Verdict.ORIGIN], [ORIGIN], 1 + Verdict.RECEIVER),
        ([Verdict.ABSORBED, Verdict.ORIGIN], [1 + Verdict.ABSORBED], ORIGIN),
    ],
)
def test_a_cell_of_many_calls_shows_its_worst_verdict_that_is_not_hidden(verdicts, hidden, code):
    presence = np.bitwise_or.reduce(presence_of(np.array(verdicts, np.uint8) + np.uint8(1)))
    assert table_of(tuple(hidden), True)[presence] == code


@settings(max_examples=60, deadline=None)
@given(comparisons(), st.sampled_from(STATES), st.integers(1, 4), st.integers(1, 4))
def test_a_window_is_the_whole_map_pooled(cmp, state, max_rows, max_columns):
    source, state = MapSource(cmp), named(state, cmp)
    fine = source.window(state, 1_000, 1_000)[1]
    meta, tile = source.window(state, max_rows, max_columns)
    down, right = meta["row_factor"], meta["column_factor"]
    assert (down, right) == (factor_for(fine.shape[0], max_rows), factor_for(fine.shape[1], max_columns))
    assert (meta["height"], meta["width"]) == tile.shape
    for row, column in np.ndindex(tile.shape):
        block = fine[row * down : (row + 1) * down, column * right : (column + 1) * right]
        assert tile[row, column] == block.max()


@settings(max_examples=60, deadline=None)
@given(comparisons(), st.sampled_from(STATES), st.integers(1, 3), st.integers(1, 3))
def test_every_mark_is_the_first_cell_of_its_block_with_the_verdict_of_the_block(cmp, state, rows, columns):
    source, state = MapSource(cmp), named(state, cmp)
    fine = source.window(state, 1_000, 1_000)[1]
    meta, tile = source.window(state, rows, columns)
    down, right = meta["row_factor"], meta["column_factor"]
    expected = []
    for row, column in np.argwhere(tile > MATCH).tolist():
        block = fine[row * down : (row + 1) * down, column * right : (column + 1) * right]
        at = np.argwhere(block == tile[row, column])[0]
        expected.append([row * down + at[0], column * right + at[1], tile[row, column]])
    assert sorted(meta["markers"]) == sorted(expected)
    assert meta["num_origins"] == (fine == ORIGIN).sum()


@pytest.fixture(scope="module")
def one_step_of_2432_ranks():
    return MapSource(large_comparison(2432, 20_000, 1))


def test_a_single_call_among_48_million_is_marked_at_its_place(one_step_of_2432_ranks):
    source = one_step_of_2432_ranks
    meta, tile = source.window({"order": "rank", "hidden": ["receiver"]}, 480, 1200)
    assert (meta["num_rows"], meta["num_columns"]) == (2432, 20_000)
    rare = [mark[:2] for mark in meta["markers"] if mark[2] == 1 + Verdict.UNKNOWN]
    (position,) = np.flatnonzero(source.cmp.ranks[1824].verdicts == Verdict.UNKNOWN).tolist()
    assert rare == [[1824, position]] and (tile == 1 + Verdict.UNKNOWN).sum() == 1
    at = [rare[0][0], rare[0][0] + 1, rare[0][1], rare[0][1] + 1]
    assert source.call_in({"order": "rank"}, at) == (1824, position)
    hidden = source.window({"order": "rank", "hidden": ["receiver", "unknown"]}, 480, 1200)
    assert set(hidden[1].ravel().tolist()) == {MATCH, ORIGIN}


def test_every_origin_among_48_million_calls_is_marked_and_grouped_by_the_axis_of_the_finding(
    one_step_of_2432_ranks,
):
    source = one_step_of_2432_ranks
    meta, _ = source.window({}, 480, 1200)
    assert meta["state"]["order"] == "dp" and ["dp1", 16, 32] in meta["groups"]
    marked = {row for row, _, code in meta["markers"] if code == ORIGIN}
    assert meta["num_origins"] == 16
    assert {row // meta["row_factor"] for row in marked} == {
        row // meta["row_factor"] for row in range(16, 32)
    }
    zoomed, _ = source.window({"window": [16, 32, 0, 20_000]}, 480, 1200)
    assert {row for row, _, code in zoomed["markers"] if code == ORIGIN} == set(range(16, 32))


def test_a_verdict_that_fills_much_of_a_map_is_not_marked():
    places = list(range(0, 1_000_000, 1_000))
    cmp = one_in_a_million(*places)
    rank = cmp.ranks[0]
    verdicts = np.where(rank.verdicts == Verdict.ORIGIN, np.uint8(Verdict.RECEIVER), rank.verdicts)
    few = verdicts.copy()
    few[places[RARE] :] = Verdict.MATCH
    for given_verdicts, num_marked in ((verdicts, 0), (few, RARE)):
        changed = dataclasses.replace(rank, verdicts=given_verdicts, differing=np.flatnonzero(given_verdicts))
        source = MapSource(dataclasses.replace(cmp, ranks=(changed,), roots=()))
        assert len(source.window({}, 480, 1_000)[0]["markers"]) == num_marked


def test_a_map_has_at_most_so_many_marks_and_counts_all_origins():
    rng = np.random.default_rng(1)
    run = make_run({rank: step_calls(1) * 30 for rank in range(40)})
    cmp = with_verdicts(compare(run, run), rng)
    ranks = [
        dataclasses.replace(rank, verdicts=np.full(90, 7, np.uint8), differing=np.arange(90))
        for rank in cmp.ranks
    ]
    meta, _ = MapSource(dataclasses.replace(cmp, ranks=tuple(ranks))).window({"order": "rank"})
    assert len(meta["markers"]) == MAX_MARKERS and meta["num_origins"] == 3_600


def test_margins_count_within_the_window():
    source = MapSource(one_origin())
    meta, tile = source.window({"window": [1, 2, 2, 3], "order": "rank"})
    assert tile.tolist() == [[1 + Verdict.RECEIVER]]
    assert meta["row_counts"] == [[0, 1]] and meta["column_counts"] == [1] and meta["num_origins"] == 0
    assert meta["window"] == [1, 2, 2, 3] and meta["row_labels"] == ["1 · tp0 dp1"]
    assert meta["counts"]["origin"] == 1  # of all that is shown of the step, not of the window


def test_pooled_rows_are_named_by_their_first_and_last():
    run = make_run({rank: step_calls(1) for rank in range(5)})
    meta, _ = MapSource(compare(run, run)).window({"order": "rank"}, 2)
    assert meta["row_labels"] == ["0 · tp0 dp0 … 2 · tp0 dp2", "3 · tp0 dp3 … 4 · tp0 dp4"]
    assert meta["row_factor"] == 3


def test_the_minimap_is_the_whole_map_whatever_the_window():
    source = MapSource(large_comparison(100, 1_000, 2))
    whole = source.overview({"order": "rank", "step": 2})
    assert whole == source.overview({"order": "rank", "step": 2, "window": [3, 4, 5, 6]})
    assert (whole["height"], whole["width"]) == (34, 334)
    assert len(whole["tile"]) == 34 * 334
    tile = source.window({"order": "rank", "step": 2}, 48, 400)[1]
    assert whole["tile"] == tile.tobytes()


def ranks_of(words, coordinates=None, recipes=None):
    """Compare ranks that call one op each, those with another word than "y" with another output."""
    runs = [
        make_run(
            {rank: step_calls(1, word) for rank, word in enumerate(each)},
            label=label, coordinates=coordinates, recipes=recipes,
        )
        for label, each in (("a", "y" * len(words)), ("b", words))
    ]  # fmt: skip
    return compare(*runs)


GRID = {rank: Coordinate(tp=rank % 2, dp=rank // 2) for rank in range(8)}


def test_ranks_are_grouped_by_the_axis_of_the_first_finding_that_has_one():
    cmp = ranks_of("yzyzyzyz", GRID)
    assert cmp.roots[0].axis == "tp=1" and MapSource(cmp).best_order() == "tp"


def test_an_axis_that_is_a_node_too_is_taken_as_it_is_named():
    recipes = {rank: {"host": f"n{rank // 2}"} for rank in range(8)}
    cmp = ranks_of("zzyyyyyy", GRID, recipes)
    assert cmp.roots[0].axis == "dp=0, which is node n0" and MapSource(cmp).best_order() == "dp"
    places = {rank: Coordinate(dp=rank) for rank in range(8)}
    assert MapSource(ranks_of("zzyyyyyy", places, recipes)).best_order() == "host"


def test_without_a_finding_the_axis_that_explains_the_ranks_best_is_chosen():
    cmp = ranks_of("yyyzzzzz", GRID)  # no axis fits just these ranks; dp tells them apart better than tp
    assert cmp.roots[0].axis == "" and MapSource(cmp).best_order() == "dp"


def test_many_groups_are_no_better_than_few_that_explain_as_much():
    recipes = {rank: {"host": f"n{max(rank, 1)}"} for rank in range(8)}  # ranks 0 and 1 share one
    cmp = dataclasses.replace(ranks_of("yzyzyzyy", GRID, recipes), roots=())
    assert MapSource(cmp).best_order() == "tp"


def test_a_node_of_run_b_is_no_order_of_the_nodes_that_are_shown():
    recipes = {rank: {"host": f"n{rank // 4}"} for rank in range(8)}
    cmp = ranks_of("yzyzyzyz", GRID, recipes)
    for axis, order in (
        ("node m1 in b", "tp"),
        ("node n1 in a", "host"),
        ("local rank 1, which is dp=1", "dp"),
    ):
        root = dataclasses.replace(cmp.roots[0], axis=axis)
        assert MapSource(dataclasses.replace(cmp, roots=(root,))).best_order() == order


@pytest.mark.parametrize("words", ["yyyyyyyy", "zzzzzzzz"])
def test_where_all_ranks_are_alike_they_stay_in_their_order(words):
    cmp = ranks_of(words, GRID)
    assert MapSource(cmp).best_order() == "rank"
    assert MapSource(cmp).window({})[0]["groups"] == []


def test_what_is_set_aside_does_not_choose_the_order():
    cmp = dataclasses.replace(ranks_of("yzyzyzyz", GRID), roots=())
    aside = [rank.with_masks(rank.differing, Mask.SET_ASIDE) for rank in cmp.ranks]
    assert MapSource(cmp).best_order() == "tp"
    assert MapSource(dataclasses.replace(cmp, ranks=tuple(aside))).best_order() == "rank"


def test_hosts_stand_in_the_order_of_their_numbers_and_ranks_without_one_last():
    hosts = ["n10", "n2", "", "n2"]
    recipes = {rank: {"host": host, "rack": "r1"} for rank, host in enumerate(hosts)}
    source = MapSource(ranks_of("yyyy", recipes=recipes))
    assert source.orders == ["rank", "dp", "host"]  # one rack tells nothing
    meta, _ = source.window({"order": "host"})
    assert meta["groups"] == [["n2", 0, 2], ["n10", 2, 3], ["no host", 3, 4]]
    assert [label.split(" ")[0] for label in meta["row_labels"]] == ["1", "3", "0", "2"]


def test_racks_come_from_the_manifest_where_it_states_them():
    recipes = {rank: {"host": f"n{rank}", "rack": "told"} for rank in range(3)}
    cmp = ranks_of("yyy", recipes=recipes)
    manifest = dataclasses.replace(cmp.a.manifest, racks={"n0": "r2", "n1": "r1"})
    cmp = dataclasses.replace(cmp, a=dataclasses.replace(cmp.a, manifest=manifest))
    meta, _ = MapSource(cmp).window({"order": "rack"})
    assert meta["groups"] == [["r1", 0, 1], ["r2", 1, 2], ["told", 2, 3]]


@pytest.mark.parametrize(
    ("scope", "layer"),
    [
        ("decoder.layers.3.mlp", 3), ("h.12.attn", 12), ("model.blocks.7", 7), ("layer.0", 0),
        ("decoder", -1), ("layers", -1), ("path.3", -1), ("layers.x", -1), ("", -1),
    ],
)  # fmt: skip
def test_layers_are_read_from_scopes(scope, layer):
    assert layer_of(scope) == layer


def test_calls_around_the_same_layer_belong_to_it_and_others_to_none():
    names = [Callee("", "x"), Callee("h.0.a", "x"), Callee("h", "add"), Callee("h.1.b", "x")]
    bands = layer_bands(np.array([0, 1, 2, 1, 2, 3, 3, 0]), names)
    assert bands == [("layer 0", 1, 4), ("layer 1", 5, 7)]


def test_no_layer_reaches_from_one_phase_into_the_next():
    names = [Callee("h.0.a", "x"), Callee("loss", "x")]
    phases = [("forward", 0, 2), ("backward", 2, 4)]
    assert layer_bands(np.array([0, 1, 1, 0]), names, phases) == [("layer 0", 0, 1), ("layer 0", 3, 4)]
    assert layer_bands(np.array([0, 0, 0, 0]), names, phases) == [("layer 0", 0, 2), ("layer 0", 2, 4)]


def test_phases_and_layers_are_those_of_the_rank_with_the_most_calls_and_columns_have_names():
    run = make_run({3: CALLS[:2], 5: CALLS})
    meta, _ = MapSource(compare(run, run)).window({})
    assert meta["bands_of"] == 5
    assert meta["bands"] == [["forward", 0, 2], ["backward", 2, 3], ["optimizer", 3, 4]]
    assert meta["layers"] == [["layer 0", 0, 1], ["layer 1", 2, 3]]
    assert meta["column_labels"][0] == "aten.mm.default in decoder.layers.0.mlp"
    zoomed, _ = MapSource(compare(run, run)).window({"window": [0, 2, 2, 3]})
    assert zoomed["layers"] == [["layer 1", 2, 3]]
    assert zoomed["column_labels"] == ["aten.mm.default in decoder.layers.1.mlp"]


def test_columns_have_no_names_where_they_are_pooled_or_too_many():
    run = make_run({0: [Call("aten.mm.default", "h.0", ["x"], ["y"])] * 201})
    source = MapSource(compare(run, run))
    assert source.window({})[0]["column_labels"] == source.window({}, 10, 150)[0]["column_labels"] == []
    assert len(source.window({"window": [0, 1, 1, 201]})[0]["column_labels"]) == 200


def test_steps_are_named_by_their_numbers():
    meta, _ = MapSource(compare(*[story("run", {0: ["y"] * 3})] * 2)).window({"columns": "step"})
    assert meta["column_labels"] == ["1", "2", "3"] and meta["bands"] == [] and meta["bands_of"] == -1


def test_ops_offer_no_order_of_ranks_and_an_op_that_is_not_called_is_not_untraced():
    meta, tile = MapSource(one_origin()).window({"rows": "op"})
    assert meta["orders"] == [] and not meta["has_untraced"] and (tile == 0).any()


def test_a_phase_that_comes_back_has_a_band_each_time():
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD]
    run = make_run({0: [Call("aten.mm.default", "h", ["x"], ["y"], phase=phase) for phase in phases]})
    bands = MapSource(compare(run, run)).window({})[0]["bands"]
    assert bands == [["forward", 0, 1], ["backward", 1, 2], ["forward", 2, 3]]

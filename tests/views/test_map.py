"""The map: the worst verdict wins, one in a million is found, what was not recorded is no match."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.comparison import compare
from detlab.errors import InputError
from detlab.schema import Flag, Mask, Phase, Verdict
from detlab.testing import Call, make_run
from detlab.views.fill import make_grid
from detlab.views.pooling import MATCH, ORIGIN, UNTRACED, codes_of
from detlab.views.timeline import timeline
from tests.views.stories import one_in_a_million, one_origin, set_aside, step_calls, story

RECEIVER = 1 + Verdict.RECEIVER


def test_the_map_shows_the_worst_over_steps_and_the_call_that_gave_it():
    cmp = one_origin()
    grid = make_grid(cmp)
    assert grid.codes.tolist() == [[MATCH, MATCH, MATCH], [MATCH, ORIGIN, RECEIVER]]
    assert grid.site_of(cmp, 1, 1) == "2/0/backward/lin/aten.mm.default#0"
    assert grid.site_of(cmp, 0, 0) == ""
    assert grid.differing.sum(axis=1).tolist() == [0, 2] and grid.differing[1, ORIGIN] == 1
    assert grid.row_labels == ("0 · tp0 dp0", "1 · tp0 dp1")


def test_one_step_alone_shows_that_step_alone():
    grid = make_grid(one_origin(), step=1)
    assert (grid.codes == MATCH).all()
    assert grid.counts[Verdict.MATCH] == 6


def test_ranks_by_steps_and_ops_by_steps_and_calls():
    cmp = one_origin()
    assert make_grid(cmp, columns="step").codes.tolist() == [[MATCH, MATCH], [MATCH, ORIGIN]]
    by_op = make_grid(cmp, rows="op", columns="step")
    assert by_op.row_labels == ("aten.embedding.default", "aten.mm.default", "aten.add.default")
    assert by_op.codes.tolist() == [[MATCH, MATCH], [MATCH, ORIGIN], [MATCH, RECEIVER]]
    by_call = make_grid(cmp, rows="op", columns="call")
    assert by_call.codes.tolist() == [
        [MATCH, UNTRACED, UNTRACED],
        [UNTRACED, ORIGIN, UNTRACED],
        [UNTRACED, UNTRACED, RECEIVER],
    ]


def test_a_rank_that_runs_fewer_calls_is_untraced_where_it_has_none():
    short, long = step_calls(1)[:1], step_calls(1)
    run = make_run({0: short, 1: long})
    assert make_grid(compare(run, run)).codes.tolist() == [[MATCH, UNTRACED, UNTRACED], [MATCH, MATCH, MATCH]]


def test_a_rank_that_one_run_did_not_record_is_a_row_without_calls():
    a = story("a", {0: ["y"], 1: ["y"]})
    b = dataclasses.replace(a, ranks=a.ranks[:1])
    grid = make_grid(compare(a, b))
    assert grid.row_labels == ("0 · tp0 dp0", "1 · tp0 dp1 · only in a")
    assert (grid.codes[1] == UNTRACED).all()
    assert list(grid.untraced_runs()) == [(1, 0, 3)]


def test_what_is_set_aside_is_a_match_on_the_map_and_counted_apart():
    grid = make_grid(set_aside())
    assert grid.codes.tolist() == [[MATCH]]
    assert grid.num_aside == 1 and grid.counts[Verdict.MATCH] == 0


def test_calls_masked_as_untraced_are_untraced_on_the_map():
    cmp = one_origin()
    hidden = cmp.ranks[0].with_masks(np.array([0]), Mask.UNTRACED)
    grid = make_grid(dataclasses.replace(cmp, ranks=(hidden, *cmp.ranks[1:])), step=1)
    assert grid.codes[0].tolist() == [UNTRACED, MATCH, MATCH]


@pytest.mark.parametrize("place", [0, 123_456, 999_999])
def test_one_origin_in_a_million_calls_is_found_at_its_place(place):
    grid = make_grid(one_in_a_million(place))
    rows, columns = grid.origins()
    assert (grid.codes == ORIGIN).sum() == 1 and grid.codes.shape[1] <= 1500
    assert grid.columns_of(rows, columns).tolist() == [place]
    assert grid.counts[Verdict.ORIGIN] == 1


def test_a_cell_with_two_origins_names_the_first():
    grid = make_grid(one_in_a_million(667 * 3 + 5, 667 * 3 + 9))
    assert grid.column_factor == 667 and grid.columns_of([0], [3]).tolist() == [667 * 3 + 5]
    assert grid.differing[0, ORIGIN] == 2


def test_a_call_of_run_b_alone_stands_where_it_ran():
    extra = Call("aten.relu.default", "act", ["e"], ["r"], phase=Phase.BACKWARD)
    a, b = step_calls(1), step_calls(1)
    b.insert(2, extra)
    cmp = compare(make_run({0: a}), make_run({0: b}))
    assert make_grid(cmp).codes.tolist() == [[MATCH, MATCH, 1 + Verdict.ONLY_B, MATCH]]


def test_phases_are_named_once_where_they_follow_each_other():
    bands = make_grid(one_origin()).bands
    assert [(band.name, band.start, band.stop) for band in bands] == [
        ("forward", 0, 1),
        ("backward", 1, 2),
        ("optimizer", 2, 3),
    ]


@pytest.mark.parametrize(
    "wrong", [{"rows": "host"}, {"columns": "hour"}, {"step": 3}, {"columns": "step", "step": 1}]
)
def test_a_map_that_cannot_be_made_is_refused_with_a_hint(wrong):
    with pytest.raises(InputError, match="Hint:"):
        make_grid(one_origin(), **wrong)


words = st.lists(st.lists(st.sampled_from("yz"), min_size=2, max_size=2), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(words, words, st.booleans(), st.integers(1, 3), st.integers(1, 4))
def test_pooling_never_loses_the_worst_and_covers_every_call_once(of_a, of_b, aside, max_rows, max_columns):
    flags = Flag.POINTERS if aside else 0
    both = [dict(enumerate(each[: min(len(of_a), len(of_b))])) for each in (of_a, of_b)]
    cmp = compare(*(story("run", each, flags=flags) for each in both))
    worst = max(codes_of(rank.verdicts, rank.masks).max() for rank in cmp.ranks)
    for rows in ("rank", "op"):
        fine, coarse = make_grid(cmp, rows), make_grid(cmp, rows, max_rows=max_rows, max_columns=max_columns)
        assert coarse.codes.shape[0] <= max_rows and coarse.codes.shape[1] <= max_columns
        assert coarse.codes.max() == fine.codes.max() == worst
        for row in range(coarse.codes.shape[0]):
            for column in range(coarse.codes.shape[1]):
                down = slice(row * coarse.row_factor, (row + 1) * coarse.row_factor)
                right = slice(column * coarse.column_factor, (column + 1) * coarse.column_factor)
                assert coarse.codes[row, column] == fine.codes[down, right].max()
        assert sum(coarse.counts.values()) + coarse.num_aside == cmp.num_calls


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["x", "y", "+"]), min_size=1, max_size=12))
def test_the_timeline_gives_every_call_one_place(kinds):
    of_a = [call for step, _ in enumerate(kinds, 1) for call in step_calls(step)]
    steps = [step for step, kind in enumerate(kinds, 1) if kind == "+"]
    extra = [Call("aten.relu.default", "act", ["e"], ["r"], step=step) for step in steps]
    cmp = compare(make_run({0: of_a}), make_run({0: sorted(of_a + extra, key=lambda call: call.step)}))
    (rank,) = cmp.ranks
    parts = timeline(rank)
    assert (parts["position"] == np.cumsum(parts["num_rows"]) - parts["num_rows"]).all()
    assert parts["num_rows"].sum() == len(rank.verdicts)
    steps = rank.events(np.arange(len(rank.verdicts)), ("step",))["step"]
    assert np.repeat(parts["step"], parts["num_rows"]).tolist() == steps.tolist()

"""One extra, missing or moved call shifts nothing else."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare
from detlab.comparison.align import Calls, align, in_order, occurrences
from detlab.schema import Flag, Phase
from detlab.testing import Call, make_run

callees = st.lists(st.integers(0, 4), max_size=30)
rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=30)


def chain(length, start=0):
    return [
        Call("aten.mm.default", f"layers.{n % 3}", [f"x{n}"], [f"x{n + 1}"])
        for n in range(start, start + length)
    ]


def sites(cmp):
    return cmp.sites(step=1, rank=0)


def some_calls(rows):
    """Calls whose callee, inputs and outputs are small numbers, so that ties abound."""
    columns = np.array(rows, np.uint64).reshape(-1, 3).T
    return Calls(*columns, meta=np.zeros(len(rows), np.uint64), family=columns[0])


@given(rows, rows)
def test_every_call_is_paired_once_at_most_and_with_its_own_callee(a, b):
    a, b = some_calls(a), some_calls(b)
    at_a, at_b = align(a, b)
    assert sorted(at_a[at_a >= 0]) == list(range(len(a)))
    assert sorted(at_b[at_b >= 0]) == list(range(len(b)))
    paired = (at_a >= 0) & (at_b >= 0)
    assert (a.callee[at_a[paired]] == b.callee[at_b[paired]]).all()


@given(rows)
def test_equal_sequences_are_paired_in_order(a):
    at_a, at_b = align(some_calls(a), some_calls(a))
    assert at_a.tolist() == at_b.tolist() == list(range(len(a)))


@given(callees)
def test_occurrences_count_earlier_equal_keys(keys):
    assert occurrences(np.array(keys, np.uint64)).tolist() == [
        keys[:n].count(key) for n, key in enumerate(keys)
    ]


@given(rows, st.data())
def test_deleting_calls_leaves_the_others_paired_with_something_alike(a, data):
    kept = data.draw(st.lists(st.sampled_from(range(len(a))), unique=True).map(sorted)) if a else []
    calls, rest = some_calls(a), some_calls([a[n] for n in kept])
    at_a, at_b = align(calls, rest)
    paired = (at_a >= 0) & (at_b >= 0)
    assert paired.sum() == len(kept)


def test_alike_inputs_are_paired_before_neighbours_and_an_origin_behind_a_missing_call_is_seen():
    left = some_calls([(1, n, n) for n in range(6)])
    right = some_calls([(1, 0, 0), (1, 1, 1), (1, 3, 9), (1, 4, 4), (1, 5, 5)])
    at_a, at_b = align(left, right)
    assert dict(zip(at_a.tolist(), at_b.tolist(), strict=True)) == {0: 0, 1: 1, 2: -1, 3: 2, 4: 3, 5: 4}


def test_calls_left_out_in_front_of_alike_ones_leave_no_pair_that_differs():
    left, right = some_calls([(1, 0, 0), (1, 1, 1), (1, 1, 1), (2, 1, 1)]), some_calls([(1, 1, 1)] * 2)
    at_a, at_b = align(left, right)
    assert dict(zip(at_a.tolist(), at_b.tolist(), strict=True)) == {0: -1, 1: 0, 2: 1, 3: -1}


def test_calls_that_were_only_left_out_are_paired_whatever_the_anchors_say():
    kept = [*range(9), 10, 11, 20, 21, 23, 25, 26, 27]
    a = [(0, 0, 0)] * 10 + [(0, 1, 0)] * 9
    a += [(2, 0, 0), (1, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 0), (1, 0, 0), *[(0, 0, 0)] * 3]
    for left, right in ((a, [a[n] for n in kept]), ([a[n] for n in kept], a)):
        left, right = some_calls(left), some_calls(right)
        at_a, at_b = align(left, right)
        both = (at_a >= 0) & (at_b >= 0)
        assert both.sum() == len(kept)
        assert (left.inputs[at_a[both]] == right.inputs[at_b[both]]).all()


@given(st.lists(st.integers(0, 30), unique=True, max_size=12))
def test_the_longest_ascending_pairs_are_kept(at_b):
    at_b = np.array(at_b, np.int64)
    kept_a, kept_b = in_order(np.arange(len(at_b)), at_b)
    assert (np.diff(kept_a) > 0).all()
    assert (np.diff(kept_b) > 0).all()
    assert len(kept_b) == longest(at_b.tolist())


def longest(numbers):
    """Length of the longest ascending subsequence, by trying every end."""
    best = []
    for n, number in enumerate(numbers):
        best.append(1 + max((best[k] for k in range(n) if numbers[k] < number), default=0))
    return max(best, default=0)


def test_the_second_of_two_alike_calls_is_paired_with_the_second():
    masks = [Call("aten.native_dropout.default", "drop", ["x"], [mask]) for mask in ("m1", "m2")]
    after = Call("aten.mul.Tensor", "drop", ["m2"], ["y"])
    cmp = compare(make_run({0: [*masks, after]}), make_run({0: [masks[1], after]}))
    assert sites(cmp)["verdict"].to_list() == ["only_a", "match", "match"]


def test_an_origin_is_unknown_where_another_pairing_would_match():
    """B lost the first of two alike calls and gained one: which of its calls is the partner is open."""

    def run(masks, *more):
        return make_run({0: [*(Call("aten.mul.Tensor", "drop", ["x"], [mask]) for mask in masks), *more]})

    extra = Call("aten.clamp.default", "drop", ["m2"], ["c"])
    cmp = compare(run(["m1", "m2"]), run(["m2", "m2"], extra))
    assert sites(cmp)["verdict"].to_list() == ["unknown", "match", "only_b"]


def test_one_extra_call_is_the_only_difference():
    extra = Call("aten.clamp.default", "layers.1", ["x4"], ["c"])
    cmp = compare(make_run({0: chain(9)}), make_run({0: [*chain(4), extra, *chain(5, 4)]}))
    frame = sites(cmp)
    assert frame["verdict"].to_list() == ["match"] * 4 + ["only_b"] + ["match"] * 5
    assert frame["seq_b"].to_list() == list(range(10))
    assert [(f.finding_class, f.op) for f in cmp.roots] == [("structure", "aten.clamp.default")]
    assert (cmp.verdict, cmp.exit_code) == ("diverged", 1)


def test_swapping_the_runs_swaps_only_a_and_only_b():
    one, other = make_run({0: chain(9)}), make_run({0: chain(5)})
    assert sites(compare(one, other))["verdict"].to_list() == ["match"] * 5 + ["only_a"] * 4
    assert sites(compare(other, one))["verdict"].to_list() == ["match"] * 5 + ["only_b"] * 4


def test_call_numbers_are_counted_anew():
    runs = []
    for _ in range(2):
        run = make_run({0: chain(9)})
        run.ranks[0].events.rows[0]["call"] = 77
        runs.append(run)
    assert sites(compare(*runs))["call"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_views_and_recomputation_on_one_side_are_notes_and_no_divergence():
    view = Call("aten.view.default", "layers.0", ["x0"], ["x0"], flags=Flag.VIEW)
    again = dataclasses.replace(chain(1)[0], phase=Phase.RECOMPUTE)
    cmp = compare(make_run({0: chain(3)}), make_run({0: [view, *chain(3), again]}))
    assert (cmp.verdict, cmp.exit_code) == ("match", 0)
    assert (cmp.structure.only_b, cmp.structure.recomputed) == (2, 1)
    assert [(item["kind"], item["count"]) for item in cmp.ignored] == [("structure_note", 2)]


def test_another_order_is_a_marker_and_no_divergence():
    calls = [Call(f"aten.{name}.default", "", [name], [name + "!"]) for name in ("exp", "log", "sin")]
    cmp = compare(make_run({0: calls}), make_run({0: [calls[1], calls[0], calls[2]]}))
    assert (cmp.verdict, cmp.structure.reordered) == ("match", 1)


def test_a_segment_that_slipped_in_one_microbatch_leaves_the_others_alone():
    def run(extra):
        calls = []
        for microbatch in range(4):
            more = [Call("aten.clamp.default", "", ["c"], ["c"])] if extra and microbatch == 2 else []
            calls += [dataclasses.replace(call, microbatch=microbatch) for call in (*chain(5), *more)]
        return make_run({0: calls})

    frame = sites(compare(run(False), run(True)))
    assert frame["verdict"].to_list() == ["match"] * 15 + ["only_b"] + ["match"] * 5
    assert set(frame["how"][:10]) == {"site"}


def test_interleaved_phases_are_paired_by_key():
    """An extra reduction between two parts of the backward changes the sequence of segments."""
    parts = [dataclasses.replace(call, phase=Phase.BACKWARD) for call in chain(6)]
    reduce = Call("aten.div.Tensor", "", ["b"], ["b!"], phase=Phase.GRAD_REDUCE)
    cmp = compare(make_run({0: parts}), make_run({0: [*parts[:3], reduce, *parts[3:]]}))
    assert sites(cmp)["verdict"].to_list() == ["match"] * 3 + ["only_b"] + ["match"] * 3


def test_a_key_that_only_one_run_has_stands_where_it_ran():
    data = Call("aten.arange.default", "", [], ["ids"], phase=Phase.DATA)
    frame = sites(compare(make_run({0: chain(3)}), make_run({0: [data, *chain(3)]})))
    assert frame["verdict"].to_list() == ["only_b", "match", "match", "match"]


def test_a_call_of_one_run_in_the_middle_of_a_reorder_is_found():
    first, second, extra = (Call("aten.mm.default", scope, ["x"], [f"y of {scope}"]) for scope in "abc")
    one, other = make_run({0: [first, second]}), make_run({0: [second, extra, first]})
    for cmp in (compare(one, other), compare(other, one)):
        assert [(each.finding_class, each.scopes) for each in cmp.roots] == [("structure", ("c",))]


def exchanged(order, steps=(1,), before=()):
    """Products of one module, of other tensors each, in some order; and what is made of them."""
    calls = []
    for step in steps:
        made = [Call("aten.mm.default", "lin", ["w", f"x{n}"], [f"y{n}"], step=step) for n in order]
        last = Call("aten.cat.default", "", [f"y{n}" for n in sorted(order)], ["c"], step=step)
        calls += [*before, *made, last]
    return make_run({0: calls})


@pytest.mark.parametrize(("order", "reordered"), [([1, 0, 2], 1), ([1, 2, 0], 1), ([1, 0, 3, 2], 2)])
def test_calls_of_one_callee_in_another_order_that_share_nothing_match(order, reordered):
    cmp = compare(exchanged(sorted(order)), exchanged(order))
    assert (cmp.verdict, cmp.roots, cmp.structure.reordered) == ("match", (), reordered)
    assert len(cmp.first) == 0


def test_calls_in_another_order_match_in_every_step():
    cmp = compare(exchanged([0, 1], (1, 2, 3)), exchanged([1, 0], (1, 2, 3)))
    assert (cmp.verdict, cmp.roots, cmp.structure.reordered) == ("match", (), 3)


def test_another_order_hides_no_origin_of_its_step_or_of_a_later_one():
    origins = [
        [Call("aten.index_add.default", "moe", ["i"], [f"o{n}{end}"], step=n) for n in (1, 2)]
        for end in ("", "!")
    ]
    for n in (0, 1):
        runs = [
            exchanged(order, before=[each[n]]) for order, each in zip(([0, 1], [1, 0]), origins, strict=True)
        ]
        cmp = compare(*runs)
        assert [(each.finding_class, each.op) for each in cmp.roots] == [("kernel", "aten.index_add.default")]


def test_data_in_another_order_makes_receivers_of_what_takes_it():
    def run(order):
        loads = [Call("load", "data", [], [f"x{n}"], phase=Phase.DATA) for n in order]
        return make_run(
            {0: [*loads, *(Call("aten.mm.default", "lin", ["w", f"x{n}"], [f"y{n}"]) for n in order)]}
        )

    cmp = compare(run([0, 1]), run([1, 0]))
    assert sites(cmp)["verdict"].to_list() == ["origin", "origin", "receiver", "receiver"]
    assert [each.finding_class for each in cmp.roots] == ["data"]

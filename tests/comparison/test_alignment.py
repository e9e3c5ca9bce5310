"""One extra, missing or moved call shifts nothing else."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare
from detlab.comparison.align import align_rows, occurrences
from detlab.schema import Flag, Phase
from detlab.testing import Call, make_run

callees = st.lists(st.integers(0, 4), max_size=30)


def chain(length, start=0):
    return [
        Call("aten.mm.default", f"layers.{n % 3}", [f"x{n}"], [f"x{n + 1}"])
        for n in range(start, start + length)
    ]


def sites(cmp):
    return cmp.sites(step=1, rank=0)


@given(callees, callees)
def test_every_row_is_paired_once_with_its_own_callee(a, b):
    a, b = np.array(a, np.uint64), np.array(b, np.uint64)
    at_a, at_b = align_rows(a, b)
    assert sorted(at_a[at_a >= 0]) == list(range(len(a)))
    assert sorted(at_b[at_b >= 0]) == list(range(len(b)))
    paired = (at_a >= 0) & (at_b >= 0)
    assert (a[at_a[paired]] == b[at_b[paired]]).all()


@given(callees)
def test_equal_sequences_are_paired_in_order(a):
    at_a, at_b = align_rows(np.array(a, np.uint64), np.array(a, np.uint64))
    assert at_a.tolist() == at_b.tolist() == list(range(len(a)))


@given(callees)
def test_occurrences_count_earlier_equal_keys(keys):
    assert occurrences(np.array(keys, np.uint64)).tolist() == [
        keys[:n].count(key) for n, key in enumerate(keys)
    ]


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

"""Who counts as a reader of padding: whatever comes after it, in either run, and in doubt everything."""

from dataclasses import replace

import pytest

from detlab import compare, load_run
from detlab.schema import Flag
from detlab.testing import Call, make_run, save_run
from tests.comparison.stories import INDEX_ADD, MM, expect, held, mm

GROUPED = "te.grouped_gemm"
PADDING = ("kernel", GROUPED, (0,))


def padded(word):
    """A grouped product of which a view takes the rows that count."""
    places = {word: ("buf", 0, 64), "rows": ("buf", 0, 48)}
    return [
        Call(GROUPED, "experts", ["w", "x"], [word], places=places),
        Call("aten.slice.Tensor", "", [word], ["rows"], scalars=[0, 0, 3], flags=Flag.VIEW, places=places),
        mm("rows", "next"),
    ]


def test_a_difference_that_only_a_later_step_reads_is_an_origin():
    def run(word):
        return [*padded(word), mm(word, f"y {word}", step=2, places={word: ("buf", 0, 64)})]

    expect(run("b"), run("B"), "origin absorbed match receiver", PADDING)


def test_a_difference_of_which_a_later_step_reads_a_part_is_an_origin():
    def run(rest):
        return [
            *padded(rest),
            mm(f"tail {rest}", f"y {rest}", step=2, places={f"tail {rest}": ("buf", 48, 64)}),
        ]

    cmp = compare(make_run({0: run("b")}), make_run({0: run("B")}))
    assert PADDING in [(each.finding_class, each.op, each.ranks) for each in cmp.roots]
    assert not cmp.ignored


def test_a_difference_that_a_snapshot_of_a_state_holds_is_an_origin():
    def run(word):
        return [*padded(word), held("experts", word)]

    cmp = compare(make_run({0: run("b")}), make_run({0: run("B")}))
    assert PADDING in [(each.finding_class, each.op, each.ranks) for each in cmp.roots]
    assert not cmp.ignored


def test_a_call_whose_inputs_were_not_recorded_may_have_read_it():
    def run(word):
        return [*padded(word), Call(MM, "blind", ["v", None], [f"y {word}"])]

    expect(run("b"), run("B"), "origin absorbed match unknown", PADDING)


def test_a_call_of_which_an_input_is_open_may_have_read_it():
    def run(word):
        return [*padded(word), Call(INDEX_ADD, "open", ["v"], [f"y {word}"], flags=Flag.OPEN_INPUTS)]

    expect(run("b"), run("B"), "origin absorbed match unknown", PADDING)


def test_a_call_that_is_open_to_a_number_alone_has_not_read_it():
    def run(word):
        return [*padded(word), Call("aten.mul.Tensor", "open", ["v"], [f"y {word}"], flags=Flag.OPEN_INPUTS)]

    expect(
        run("b"), run("B"), "origin absorbed match unknown", ("unknown", "aten.mul.Tensor", (0,)),
        ignored={"padding": 2},
    )  # fmt: skip


def test_a_tensor_without_bytes_that_no_call_gave_may_hold_it():
    def run(word):
        return [*padded(word), mm(f"t {word}", f"y {word}", step=2, places={f"t {word}": ("", 0, 0)})]

    expect(run("b"), run("B"), "origin absorbed match receiver", PADDING)


@pytest.mark.parametrize("step", [1, 2])
def test_a_call_of_one_run_that_takes_a_part_of_it_has_read_it(step):
    reads = mm("tail", "y", "extra", step=step, places={"tail": ("buf", 48, 64)})
    last = mm("p", "q", step=2)
    cmp = compare(make_run({0: [*padded("b"), last]}), make_run({0: [*padded("B"), reads, last]}))
    assert sorted((each.finding_class, each.op) for each in cmp.roots) == [PADDING[:2], ("structure", MM)]
    assert not cmp.ignored


def reused(word, start=0):
    """Memory of the buffer that another call has written since, and a difference that begins there."""
    places = {"new": ("buf", start, 64), f"n {word}": ("buf", 0, 64)}
    return [
        mm("x", "new", "other", step=2, places=places),
        Call(INDEX_ADD, "moe", ["new"], [f"n {word}"], step=2, places=places),
        mm(f"n {word}", f"y {word}", "last", step=2, places=places),
    ]


def test_memory_that_is_used_again_has_not_been_read():
    expect(
        padded("b") + reused("b"), padded("B") + reused("B"),
        "origin absorbed match match origin receiver", ("kernel", INDEX_ADD, (0,)), ignored={"padding": 2},
    )  # fmt: skip


def test_memory_that_was_written_only_in_part_has_been_read():
    def run(word):
        places = {"new": ("buf", 0, 48), f"n {word}": ("buf", 0, 64)}
        return [
            *padded(word),
            mm("x", "new", "other", step=2, places=places),
            mm(f"n {word}", f"y {word}", "last", step=2, places=places),
        ]

    cmp = compare(make_run({0: run("b")}), make_run({0: run("B")}))
    assert PADDING in [(each.finding_class, each.op, each.ranks) for each in cmp.roots]
    assert not cmp.ignored


def test_fresh_memory_and_views_overwrite_nothing():
    def run(word):
        places = {word: ("buf", 0, 64)}
        alone = [
            Call("aten.empty.memory_format", "", [], ["e"], step=2, places={"e": ("buf", 0, 64)}),
            Call(
                "aten.view.default", "", ["v"], ["e"], step=2, flags=Flag.VIEW, places={"e": ("buf", 0, 64)}
            ),
        ]
        taken = mm(f"n {word}", f"y {word}", "last", step=2, places={f"n {word}": ("buf", 0, 64)})
        return [*padded(word), *alone, replace(taken, places=taken.places | places)]

    cmp = compare(make_run({0: run("b")}), make_run({0: run("B")}))
    assert PADDING in [(each.finding_class, each.op, each.ranks) for each in cmp.roots]


def test_a_view_of_a_later_step_that_does_not_differ_reads_nothing():
    def run(word):
        return [*padded(word), replace(padded(word)[1], step=2)]

    expect(run("b"), run("B"), "origin absorbed match absorbed", verdict="match", ignored={"padding": 3})


def test_readers_are_found_wherever_batches_end(tmp_path, monkeypatch):
    monkeypatch.setattr("detlab.store.writer.MAX_BATCH_ROWS", 1)
    monkeypatch.setattr("detlab.comparison.padding._AT_ONCE", 1)
    for name, tail in (("reused", reused), ("read", lambda w: [mm(w, f"y {w}", step=2)])):
        runs = [save_run(make_run({0: padded(w) + tail(w)}), tmp_path / (name + w)) for w in ("b", "bB")]
        cmp = compare(*map(load_run, runs))
        assert {each["kind"] for each in cmp.ignored} == ({"padding"} if name == "reused" else set())

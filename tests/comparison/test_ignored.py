"""Every kind of thing that is set aside can be counted on request, one by one, and the others stay aside."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare, load_comparison
from detlab.comparison.ignored import WHY
from detlab.errors import InputError
from detlab.schema import Flag, Phase
from detlab.testing import Call, make_run, save_run
from tests.comparison.stories import ALL_REDUCE, MM, collective, mm, verdicts_of
from tests.comparison.test_properties import pairs, run_of

EARLY = collective("_c10d_functional.all_gather_into_tensor.default", "s", "e", flags=Flag.NOT_WAITED_FOR)
EMPTY = Call(
    "aten.empty.memory_format", "", [], ["j"], flags=Flag.FRESH_MEMORY, places={"j": ("fresh", 0, 64)}
)
POINTERS = Call("moe.pointers", "experts", ["w"], ["p"], dtype="int64", flags=Flag.POINTERS)
COPY = Call("aten.copy_.default", "", ["cpu"], ["c"], flags=Flag.COPY_IN_FLIGHT)
TUNED = Call("triton.l2norm_fwd", "norm", ["x"], ["y"], attributes={"config": "small"})
VIEW = Call("aten.view.default", "layers.0", ["x"], ["x"], flags=Flag.VIEW)


def padded(word, flags=0):
    places = {word: ("buf", 0, 704), "rows": ("buf", 0, 698)}
    return [
        Call("te.grouped_gemm", "experts", ["w", "x"], [word], places=places, flags=flags),
        Call("aten.slice.Tensor", "", [word], ["rows"], scalars=[698], flags=Flag.VIEW, places=places),
    ]


def in_step(step, calls):
    return [replace(call, step=step) for call in calls]


PLANTED = {
    "not_waited_for": ([EARLY], [replace(EARLY, outputs=["E"])]),
    "pointers": ([POINTERS], [replace(POINTERS, outputs=["P"])]),
    "copy_in_flight": ([COPY], [replace(COPY, outputs=["C"])]),
    "structure_note": ([], [VIEW]),
    "fresh_memory": ([EMPTY], [replace(EMPTY, outputs=["J"], places={"J": ("fresh", 0, 64)})]),
    "padding": (padded("b"), padded("B")),
    "configuration": ([TUNED], [replace(TUNED, attributes={"config": "large"})]),
}
"""Calls of both runs that differ in just one kind of thing, which is set aside."""

FOUND = {
    "not_waited_for": ("unknown", EARLY.op),
    "pointers": ("kernel", POINTERS.op),
    "copy_in_flight": ("unknown", COPY.op),
    "structure_note": ("structure", VIEW.op),
    "fresh_memory": ("state", EMPTY.op),
    "padding": ("kernel", "te.grouped_gemm"),
    "configuration": ("environment", TUNED.op),
}
"""Class and op of the finding that each becomes when it is counted."""

NUM_ASIDE = dict.fromkeys(WHY, 1) | {"padding": 2}


def planted(*kinds, step_of=None):
    """Two runs with several planted kinds, one after another, between calls that match."""
    steps = step_of or dict.fromkeys(kinds, 1)
    sides = [[mm("a", "b", "first", step=step) for step in sorted(set(steps.values()))] for _ in range(2)]
    for kind in kinds:
        for side, calls in zip(sides, PLANTED[kind], strict=True):
            side += in_step(steps[kind], calls)
    return [
        make_run({0: sorted(side, key=lambda call: call.step)}, groups={"dp": [0]}, label=label)
        for side, label in zip(sides, "ab", strict=True)
    ]


def aside(cmp):
    return {item["kind"]: item["count"] for item in cmp.ignored}


def found(cmp):
    return sorted((finding.finding_class, finding.op) for finding in cmp.roots)


@pytest.mark.parametrize("kind", WHY)
def test_a_kind_alone_is_set_aside_and_becomes_a_finding_when_it_is_counted(kind):
    runs = planted(kind)
    default, counted = compare(*runs), compare(*runs, count=[kind])
    assert (default.verdict, default.exit_code, aside(default)) == ("match", 0, {kind: NUM_ASIDE[kind]})
    assert default.counted == ()
    assert "counted" not in default.to_json()
    assert (counted.verdict, counted.exit_code, aside(counted)) == ("diverged", 1, {})
    assert found(counted) == [FOUND[kind]]
    assert not counted.first.is_empty()
    assert counted.to_json()["counted"] == [kind]
    assert f"counted on request: {kind}" in repr(counted)


@pytest.mark.parametrize("kind", WHY)
@pytest.mark.parametrize("order", ["first", "last"])
def test_the_other_kinds_stay_aside_wherever_the_counted_one_stands(kind, order):
    step_of = dict.fromkeys(WHY, 2) | {kind: 1 if order == "first" else 3}
    runs = planted(*WHY, step_of=step_of)
    assert compare(*runs).verdict == "match"
    cmp = compare(*runs, count=[kind])
    assert found(cmp) == [FOUND[kind]]
    assert aside(cmp) == {other: count for other, count in NUM_ASIDE.items() if other != kind}


def test_all_kinds_can_be_counted_and_in_any_form():
    runs = planted(*WHY)
    cmp = compare(*runs, count=WHY)
    assert aside(cmp) == {}
    assert found(cmp) == sorted(FOUND.values())
    assert cmp.counted == tuple(WHY)
    assert compare(*runs, count=", ".join(reversed(WHY))).to_json() == cmp.to_json()


def test_a_counted_kind_hides_no_difference_that_enters_later():
    given = [mm("x", "y", step=2)], [mm("X", "Y", step=2)]
    runs = [make_run({0: [*PLANTED["pointers"][at], *given[at]]}) for at in (0, 1)]
    assert found(compare(*runs)) == [("upstream", MM)]
    assert found(compare(*runs, count=["pointers"])) == [FOUND["pointers"], ("upstream", MM)]


@pytest.mark.parametrize("flag", [Flag.OPEN_INPUTS, Flag.VIEW])
def test_a_counted_kind_hides_no_unknown_of_its_step(flag):
    rest = [Call(MM, "open", ["i"], [word], flags=flag) for word in "oO"]
    runs = [make_run({0: [*PLANTED["pointers"][at], rest[at]]}) for at in (0, 1)]
    assert found(compare(*runs)) == [("unknown", MM)]
    assert found(compare(*runs, count=["pointers"])) == sorted([FOUND["pointers"], ("unknown", MM)])


def test_what_is_set_aside_for_two_reasons_needs_both():
    both = replace(POINTERS, flags=Flag.POINTERS | Flag.COPY_IN_FLIGHT)
    runs = [make_run({0: [replace(both, outputs=[word])]}) for word in "pP"]
    assert aside(compare(*runs)) == {"pointers": 1}
    assert aside(compare(*runs, count=["pointers"])) == {"copy_in_flight": 1}
    assert aside(compare(*runs, count=["copy_in_flight"])) == {"pointers": 1}
    assert compare(*runs, count=["pointers", "copy_in_flight"]).verdict == "diverged"


def test_padding_that_is_an_artefact_as_well_needs_both():
    runs = [make_run({0: padded(word, Flag.POINTERS)}) for word in "bB"]
    assert [each.finding_class for each in compare(*runs, count=["padding"]).roots] == ["observer"]
    assert compare(*runs, count=["pointers"]).roots == ()
    assert found(compare(*runs, count=["pointers", "padding"])) == [FOUND["padding"]]


def test_a_flag_that_only_run_b_has_is_counted_too():
    runs = [
        make_run({0: [replace(POINTERS, outputs=[word], flags=flags)]})
        for word, flags in (("p", 0), ("P", Flag.POINTERS))
    ]
    assert compare(*runs).verdict == "match"
    assert found(compare(*runs, count=["pointers"])) == [FOUND["pointers"]]
    assert compare(*runs, count=["padding"]).verdict == "match"


def test_a_counted_collective_is_judged_by_what_its_group_gave():
    def run(words):
        calls = {
            rank: [
                mm("x", word, "bwd", phase=Phase.BACKWARD),
                collective(ALL_REDUCE, word, "sum" + words, flags=Flag.NOT_WAITED_FOR),
            ]
            for rank, word in enumerate(words)
        }
        return make_run(calls, groups={"dp": [0, 1]})

    cmp = compare(run("gh"), run("gH"), count=["not_waited_for"])
    assert [verdicts_of(cmp, rank) for rank in (0, 1)] == [["match", "receiver"], ["origin", "receiver"]]
    assert [(each.finding_class, each.op, each.ranks) for each in cmp.roots] == [("kernel", MM, (1,))]
    same = compare(run("gh"), run("gh"), count=["not_waited_for"])
    assert (same.verdict, same.roots) == ("match", ())


def test_memory_that_was_not_hashed_has_nothing_to_count():
    runs = [make_run({0: [replace(EMPTY, outputs=[None], places={}), mm("a", "b")]}) for _ in range(2)]
    assert aside(compare(*runs)) == {"fresh_memory": 1}
    cmp = compare(*runs, count=["fresh_memory"])
    assert (cmp.verdict, aside(cmp), cmp.num_without_evidence) == ("match", {}, 1)


@pytest.mark.parametrize("count", [["rounding"], "padding,rounding", ["padding", ""], "p"])
def test_an_unknown_kind_is_refused_with_the_known_ones(count):
    with pytest.raises(InputError, match=f"is no kind .* the kinds are {', '.join(WHY)}"):
        compare("nowhere", "neither", count=count)


@pytest.mark.parametrize("kind", WHY)
def test_saving_keeps_what_was_counted(kind, tmp_path):
    paths = [save_run(run, tmp_path / run.label) for run in planted(*WHY)]
    cmp = compare(*paths, count=[kind])
    opened = load_comparison(cmp.save(tmp_path / "cmp"))
    assert opened.counted == (kind,)
    assert (opened.to_json(), repr(opened)) == (cmp.to_json(), repr(cmp))
    assert verdicts_of(opened, 0) == verdicts_of(cmp, 0)


def test_processes_count_alike(tmp_path):
    paths = [save_run(run, tmp_path / run.label) for run in planted(*WHY)]
    cmp = compare(*paths, count=WHY)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        assert compare(*paths, count=WHY, executor=executor).to_json() == cmp.to_json()


@given(pairs(), st.sets(st.sampled_from(sorted(WHY))))
def test_counting_only_adds(pair, kinds):
    """Nothing that counts by default is lost, and no counted kind is left aside."""
    runs = [run_of(each) for each in pair]
    default, counted = compare(*runs), compare(*runs, count=kinds)
    assert not kinds & aside(counted).keys()
    if not kinds & aside(default).keys():
        assert counted.verdict == default.verdict
        assert found(counted) == found(default)
    for before, after in zip(default.ranks, counted.ranks, strict=True):
        assert set(before.divergent().tolist()) <= set(after.divergent().tolist())
    assert set(found(default)) <= set(found(counted))

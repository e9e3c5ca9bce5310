"""The trace asked which axis separates divergent instances of an op from clean ones."""

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare
from detlab.comparison.discriminate import _Cell, _chance
from detlab.testing import Call, make_run
from tests.comparison.stories import INDEX_ADD, expect


def gemms(word):
    """Instances of one op: those with float32 output diverge, whatever the layout and the accumulation."""
    made = []
    for layout in ("NN", "NT"):
        for output in ("bfloat16", "float32"):
            for accumulate in "01":
                name = f"{layout}{output}{accumulate}"
                result = name + (word if output == "float32" else "")
                made.append(
                    Call("gemm.default", f"probe.{name}", ["x" + name], [result], dtypes={result: output},
                         attributes={"layout": layout, "accumulate": accumulate})
                )  # fmt: skip
    return made


def table(**changed):
    cmp = compare(make_run({0: gemms("")}), make_run({0: gemms("!")}), **changed)
    frame = cmp.discriminate(0)
    return {row["axis"]: row for row in frame.to_dicts()}, frame


def test_the_axis_that_separates_is_named_and_the_others_are_ruled_out():
    axes, frame = table()
    assert [axis for axis, row in axes.items() if row["separates"]] == ["output dtypes"]
    assert frame.filter(axis="output dtypes").select("value", "divergent", "clean").rows() == [
        ("bfloat16", 0, 4),
        ("float32", 4, 0),
    ]
    assert axes["accumulate"]["says"] == (
        "ruled out as the only axis: every value of it has divergent instances"
    )
    assert axes["phase"]["says"] == "all instances have one phase: nothing is said of it"


def test_an_axis_that_separates_says_how_often_chance_does():
    axes, _ = table()
    assert axes["output dtypes"]["chance"] == pytest.approx(2 / 70, rel=1e-12)


def test_a_call_with_differing_inputs_is_untested_and_not_counted():
    base = [Call("gemm.default", "a", ["x"], ["y"]), Call("gemm.default", "b", ["y"], ["z"])]
    other = [Call("gemm.default", "a", ["x"], ["Y"]), Call("gemm.default", "b", ["Y"], ["z"])]
    frame = compare(make_run({0: base}), make_run({0: other})).discriminate(0)
    assert set(frame.select("divergent", "clean").rows()) == {(1, 0)}


# What a clean cell proves


def says(axis, *calls):
    """What is said of an axis by one op's calls: scope, shape, dtype and whether it diverges, of each."""

    def run(end):
        return [
            Call(
                "gemm.default", f"probe.{n}", [f"x{n}"], [f"y{n}{end * odd}"],
                shape=shape, dtype=dtype, attributes={"layout": layout},
            )
            for n, (layout, shape, dtype, odd) in enumerate(calls)
        ]  # fmt: skip

    frame = compare(make_run({0: run("")}), make_run({0: run("!")})).discriminate(0)
    (sentence,) = set(frame.filter(axis=axis)["says"])
    return sentence


def test_clean_cells_that_rounding_can_hide_are_said_to_prove_little():
    def run(word):
        wide = [Call(INDEX_ADD, f"wide.{n}", [f"x{n}"], [f"{word}{n}"]) for n in range(4)]
        narrow = [Call(INDEX_ADD, f"narrow.{n}", [f"h{n}"], [f"z{n}"], dtype="bfloat16") for n in range(4)]
        return [*wide, *narrow]

    cmp = expect(run("y"), run("Y"), "origin " * 4 + "match " * 4, ("kernel", INDEX_ADD, (0,)))
    dtypes = cmp.discriminate(finding=0).filter(axis="output dtypes")
    assert "bfloat16: all clean calls prove little (narrow floats: rounding can hide" in dtypes["says"][0]


WIDE = ("NT", (512, 512), "float32", True)


def test_clean_integers_are_said_to_prove_little():
    said = says("output dtypes", WIDE, ("NN", (512, 512), "int64", False))
    assert "int64: all clean calls prove little (integers" in said


def test_clean_calls_of_few_elements_prove_little_unless_as_few_diverged():
    small = ("NN", (4, 4), "float32", False)
    assert "all clean calls prove little (few elements" in says("layout", WIDE, small)
    assert "prove little" not in says("layout", ("NT", (4, 4), "float32", True), small)


def test_narrow_floats_prove_something_where_narrow_floats_diverged():
    narrow = ("NT", (512, 512), "bfloat16", True)
    said = says("layout", WIDE, narrow, ("NN", (512, 512), "bfloat16", False))
    assert "prove little" not in said


def test_a_clean_cell_states_the_rate_that_it_excludes_and_what_it_does_not_count():
    clean, hidden = ("NN", (512, 512), "float32", False), ("NN", (512, 512), "bfloat16", False)
    said = says("layout", WIDE, *[clean] * 5, hidden)
    assert "NN: 5 clean calls exclude a rate above 45% at 95% (1 more prove little: narrow floats" in said


def test_an_axis_is_not_ruled_out_by_clean_calls_that_prove_little():
    turned, hidden = ("NN", (512, 512), "float32", False), ("NT", (512, 512), "bfloat16", False)
    assert says("layout", WIDE, turned, hidden).startswith("not ruled out: NT has divergent and clean")
    shown = ("NT", (512, 512), "float32", False)
    assert says("layout", WIDE, turned, shown).startswith("ruled out as the only axis: NT has divergent")


# What chance does


CELLS = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=2, max_size=7)


@given(CELLS)
def test_the_chance_of_an_axis_is_the_share_of_all_ways_to_spread_the_divergent_calls(cells):
    sizes, total = [size for size, _ in cells], sum(size for size, _ in cells)
    divergent = sum(size for size, is_divergent in cells if is_divergent)
    sets = [each for n in range(len(sizes) + 1) for each in combinations(sizes, n)]
    exact = min(1.0, sum(sum(each) == divergent for each in sets) / comb(total, divergent))
    planted = [_Cell(size, ()) if is_divergent else _Cell(0, ("",) * size) for size, is_divergent in cells]
    assert _chance(planted, total) == pytest.approx(exact, rel=1e-9)


def test_the_chance_over_a_million_calls_and_thousands_of_values_is_known():
    half = [_Cell(1_000, ())] * 2 + [_Cell(0, ("",) * 1_000)] * 998
    assert _chance(half, 1_000_000) == 0.0
    ones = [_Cell(1, ())] * 2_000 + [_Cell(0, ("",))] * 2_000
    assert _chance(ones, 4_000) == pytest.approx(1.0, rel=1e-6)


# Nothing to separate


def test_without_a_divergent_instance_it_is_said_that_there_is_nothing_to_separate():
    def run(word):
        blind = Call("gemm.default", "blind", ["x", None], [word], attributes={"layout": "NT"})
        clean = [Call("gemm.default", f"c.{n}", ["x"], ["z"], attributes={"layout": n}) for n in ("NN", "NT")]
        return [blind, *clean]

    frame = compare(make_run({0: run("y")}), make_run({0: run("Y")})).discriminate(0).filter(axis="layout")
    assert frame.select("value", "divergent", "clean", "separates").rows() == [
        ("NN", 0, 1, False),
        ("NT", 0, 1, False),
    ]
    assert set(frame["says"]) == {"no instance with equal inputs is divergent: there is nothing to separate"}


def test_without_a_clean_instance_it_is_said_that_there_is_nothing_to_separate():
    turned = ("NN", (512, 512), "float32", True)
    assert (
        says("layout", WIDE, turned) == "no instance with equal inputs is clean: there is nothing to separate"
    )


def test_without_any_instance_the_table_is_empty():
    runs = [make_run({0: [Call("gemm.default", "blind", [None], [word])]}) for word in "yY"]
    assert compare(*runs).discriminate(0).is_empty()

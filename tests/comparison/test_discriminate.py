"""The trace asked which axis separates divergent instances of an op from clean ones."""

from detlab import compare
from detlab.testing import Call, make_run


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
    assert axes["accumulate"]["says"].startswith("ruled out as the only axis")
    assert axes["phase"]["says"] == "all instances have one phase: nothing is said of it"


def test_an_axis_that_separates_says_how_often_chance_does():
    axes, _ = table()
    assert axes["output dtypes"]["chance"] == 2 / 70


def test_a_call_with_differing_inputs_is_untested_and_not_counted():
    base = [Call("gemm.default", "a", ["x"], ["y"]), Call("gemm.default", "b", ["y"], ["z"])]
    other = [Call("gemm.default", "a", ["x"], ["Y"]), Call("gemm.default", "b", ["Y"], ["z"])]
    frame = compare(make_run({0: base}), make_run({0: other})).discriminate(0)
    assert set(frame.select("divergent", "clean").rows()) == {(1, 0)}

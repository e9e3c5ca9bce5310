"""The site rule, one row of its table a test: one planted thing, and that verdict and no other."""

import pytest

from detlab import compare
from detlab.schema import Evidence, Flag, Kind, Phase
from detlab.testing import Call, make_run, save_run

BEFORE = Call("aten.mm.default", "layers.0", ["w", "x"], ["h"])
AFTER = Call("aten.mm.default", "layers.9", ["w9", "y"], ["z"])
PLANTED = {"op": "aten.index_add.default", "scope": "layers.1"}


def verdicts(one, other):
    """Verdicts of a run pair that differs in its middle call alone."""
    runs = [make_run({0: [BEFORE, Call(**PLANTED, **call), AFTER]}) for call in (one, other)]
    frame = compare(*runs).sites(step=1, rank=0)
    assert frame["verdict"].to_list()[::2] == ["match", "match"]
    return frame["verdict"][1]


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ({"inputs": ["i"], "outputs": ["o"]}, {"inputs": ["i"], "outputs": ["o"]}, "match"),
        ({"inputs": ["i"], "outputs": ["o"]}, {"inputs": ["i"], "outputs": ["P"]}, "origin"),
        ({"inputs": ["i"], "outputs": ["o"]}, {"inputs": ["J"], "outputs": ["P"]}, "receiver"),
        ({"inputs": ["i"], "outputs": ["o"]}, {"inputs": ["J"], "outputs": ["o"]}, "absorbed"),
        ({"inputs": [None], "outputs": ["o"]}, {"inputs": [None], "outputs": ["P"]}, "unknown"),
        ({"inputs": [None], "outputs": ["o"]}, {"inputs": [None], "outputs": ["o"]}, "match"),
        ({"inputs": ["i"], "outputs": [None]}, {"inputs": ["i"], "outputs": [None]}, "match"),
        ({"inputs": ["i"], "outputs": [None]}, {"inputs": ["J"], "outputs": [None]}, "receiver"),
        ({"inputs": ["i"], "outputs": ["o"]}, {"inputs": ["J"], "outputs": ["o", "p"]}, "changed"),
        ({"inputs": ["i"], "outputs": ["o"]}, {"inputs": ["i"], "outputs": ["o", "p"]}, "origin"),
    ],
)
def test_the_table_of_the_site_rule(one, other, verdict):
    assert verdicts(one, other) == verdict


def test_another_scalar_argument_is_another_input():
    same = {"inputs": ["grad"], "outputs": ["clipped"]}
    other = same | {"outputs": ["CLIPPED"]}
    assert verdicts(same | {"scalars": [0.5]}, other | {"scalars": [0.25]}) == "receiver"
    assert verdicts(same | {"scalars": [0.5]}, other | {"scalars": [0.5]}) == "origin"


def test_an_input_in_another_dtype_is_another_input():
    call = {"inputs": ["i"], "outputs": ["o"]}
    assert verdicts(call, call | {"dtype": "bfloat16"}) == "changed"


def test_digests_of_different_algorithms_are_never_compared():
    call = {"inputs": ["i"], "outputs": ["o"]}
    assert verdicts(call, call | {"algorithm": "crc32"}) == "unknown"


@pytest.mark.parametrize("flag", [Flag.VIEW, Flag.OPEN_INPUTS])
def test_a_view_or_an_open_call_is_never_an_origin(flag):
    call = {"inputs": ["i"], "flags": flag}
    assert verdicts(call | {"outputs": ["o"]}, call | {"outputs": ["P"]}) == "unknown"


def test_a_stride_that_differs_is_no_difference(tmp_path):
    call = Call("aten.mm.default", "lin", ["w", "x"], ["h"], shape=(2, 3))
    one, other = make_run({0: [call]}), make_run({0: [call]})
    meta = other.ranks[0].names.metas[0]
    turned = tuple(tensor._replace(stride=(1, 2)) for tensor in meta.inputs)
    other.ranks[0].names.metas[0] = meta._replace(inputs=turned)
    other = save_run(other, tmp_path)
    assert compare(one, other, verify=True).verdict == "match"


@pytest.mark.parametrize(
    ("call", "finding_class"),
    [
        ({"inputs": ["i"]}, "kernel"),
        ({"inputs": ["i"], "flags": Flag.SEEDED}, "rng"),
        ({"inputs": []}, "data"),
    ],
)
def test_an_origin_has_the_class_of_what_it_depends_on(call, finding_class):
    runs = [make_run({0: [BEFORE, Call(**PLANTED, **call, outputs=[word])]}) for word in ("o", "P")]
    assert [finding.finding_class for finding in compare(*runs).roots] == [finding_class]


def entry(**changed):
    """Classes of a pair whose only difference comes in with what its first call is given."""
    call = {"op": "aten.add.Tensor", "scope": "emb", "inputs": ["i"], "outputs": ["y"]}
    given = [{name: pair[side] for name, pair in changed.items()} for side in (0, 1)]
    runs = [make_run({0: [Call(**call | more)]}) for more in given]
    return [finding.finding_class for finding in compare(*runs).roots]


def test_what_enters_without_a_recorded_cause_is_a_finding_and_no_kernel():
    tensors = (["j"], ["K"])
    assert entry(inputs=tensors) == ["upstream"]
    assert entry(scalars=([0.5], [0.25])) == ["upstream"]
    assert entry(generator=("g", "H"), flags=(Flag.SEEDED, Flag.SEEDED)) == ["rng"]
    assert entry(inputs=tensors, flags=(Flag.FRESH_MEMORY, Flag.FRESH_MEMORY)) == ["state"]
    assert entry(inputs=tensors, phase=(Phase.DATA, Phase.DATA)) == ["data"]
    assert entry(inputs=tensors, dtype=("int64", "int64")) == ["data"]


def test_a_difference_without_recorded_inputs_is_unknown_and_no_kernel():
    runs = [make_run({0: [BEFORE, Call(**PLANTED, inputs=[None], outputs=[word])]}) for word in "oP"]
    cmp = compare(*runs)
    assert [finding.finding_class for finding in cmp.roots] == ["unknown"]
    assert "inputs=True" in cmp.roots[0].next


def test_the_evidence_is_the_least_of_any_output():
    weak = Call("aten.mul.Tensor", "layers.1", ["i"], ["o"], evidence=Evidence.SCREEN)
    assert compare(*[make_run({0: [BEFORE, weak]})] * 2).evidence is Evidence.SCREEN
    assert compare(*[make_run({0: [BEFORE]})] * 2).evidence is Evidence.EXACT


def test_a_call_without_output_evidence_is_not_counted_as_identical():
    barrier = Call("c10d.barrier.default", kind=Kind.COLLECTIVE, group="world")
    cmp = compare(*[make_run({0: [BEFORE, barrier]})] * 2)
    assert (cmp.num_calls, cmp.num_without_evidence) == (2, 1)


@pytest.mark.parametrize("words", ["on", "no"])
def test_outputs_that_one_run_has_not_recorded_are_not_counted_as_identical(words):
    given = [{"o": "o", "n": None}[word] for word in words]
    runs = [make_run({0: [BEFORE, Call("aten.mul.Tensor", "layers.1", ["i"], [word])]}) for word in given]
    cmp = compare(*runs)
    assert (cmp.verdict, cmp.num_without_evidence) == ("match", 1)
    assert "calls: 1 match, 1 without evidence of their output" in repr(cmp)


@pytest.mark.parametrize("flag", [Flag.NOT_WAITED_FOR, Flag.POINTERS, Flag.COPY_IN_FLIGHT])
def test_an_artefact_is_set_aside_and_counted(flag):
    runs = [make_run({0: [BEFORE, Call(**PLANTED, inputs=["i"], outputs=[w], flags=flag)]}) for w in "oP"]
    cmp = compare(*runs)
    assert (cmp.verdict, cmp.roots) == ("match", ())
    assert [item["count"] for item in cmp.ignored] == [1]

"""The forward against its own recomputation: a race shows in one run alone."""

from dataclasses import replace

import pytest

from detlab import load_run, samples
from detlab.comparison import find_recompute_differences
from detlab.errors import NotComparable
from detlab.schema import Evidence, Flag, Kind, Phase
from detlab.testing import Call, make_run, save_run
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.training import Recipe, train

NUM_LAYERS = 4
CHUNK = "gdn.chunk_fwd_h"


def layer(number, given, made, **changed):
    """The forward of one layer: a projection, a kernel, a norm; words of its outputs can be changed."""
    scope = f"layers.{number}"
    words = {"q": f"q{number}", "h": f"h{number}", "y": made} | changed
    return [
        Call("aten.mm.default", f"{scope}.proj", ["w", given], [words["q"]]),
        Call(CHUNK, f"{scope}.gdn", [words["q"]], [words["h"]]),
        Call("aten.native_layer_norm.default", f"{scope}.norm", [words["h"]], [words["y"]]),
    ]


def again(calls, phase=Phase.RECOMPUTE, **changed):
    return [replace(call, phase=phase, **changed) for call in calls]


def training(planted=None, phase=Phase.RECOMPUTE, shorten=False):
    """Calls of a step that recomputes its layers, the last one first, with one layer's changed."""
    forward, backward = [], []
    for number in range(NUM_LAYERS):
        calls = layer(number, f"x{number}", f"x{number + 1}")
        forward += calls
        changed = planted[1] if planted and planted[0] == number else {}
        repeated = again(layer(number, f"x{number}", f"x{number + 1}", **changed), phase)
        if shorten:
            repeated = [replace(call, scope=call.scope.split(".", 2)[2]) for call in repeated]
        grad = Call(
            "aten.mm.default", f"layers.{number}.proj", ["g", f"q{number}"], ["d"], phase=Phase.BACKWARD
        )
        backward = [*repeated, grad, *backward]
    return forward + backward


def found(calls, *columns):
    frame = find_recompute_differences(make_run({0: training(), 1: calls}))
    return frame.select("rank", "scope", "op", "verdict", "class", *columns).rows()


RACE = {"h": "H", "y": "Y"}


def test_a_kernel_that_races_under_load_shows_within_one_run():
    rows = found(training((2, RACE)), "forward", "again", "evidence")
    assert rows == [
        (
            1, "layers.2.gdn", CHUNK, "origin", "kernel",
            f"1/0/forward/layers.2.gdn/{CHUNK}#0", f"1/0/recompute/layers.2.gdn/{CHUNK}#0", "exact",
        ),
        (
            1, "layers.2.norm", "aten.native_layer_norm.default", "receiver", None,
            "1/0/forward/layers.2.norm/aten.native_layer_norm.default#0",
            "1/0/recompute/layers.2.norm/aten.native_layer_norm.default#0", "exact",
        ),
    ]  # fmt: skip


def test_layers_recomputed_in_another_order_match():
    assert found(training()) == []


@pytest.mark.parametrize("shorten", [False, True])
@pytest.mark.parametrize("phase", [Phase.BACKWARD, Phase.UNSPECIFIED])
def test_without_a_phase_of_its_own_recomputation_is_known_by_its_inputs(phase, shorten):
    run = make_run({0: training((2, RACE), phase, shorten)})
    rows = find_recompute_differences(run).select("scope", "op", "verdict", "class").rows()
    assert rows == [("layers.2.gdn", CHUNK, "origin", "kernel")]
    assert find_recompute_differences(make_run({0: training(None, phase, shorten)})).is_empty()


def test_a_module_name_shortened_in_the_recompute_phase_is_found_by_its_inputs():
    rows = found(training((1, RACE), shorten=True))
    assert rows == [(1, "layers.1.gdn", CHUNK, "origin", "kernel")]


def test_a_part_that_alone_is_recomputed_is_compared_alone():
    forward = layer(0, "x", "y")
    assert found([*forward, *again(forward[1:2])]) == []
    rows = found([*forward, *again(forward[1:2], outputs=["H"])])
    assert rows == [(1, "layers.0.gdn", CHUNK, "origin", "kernel")]


def test_a_call_that_is_made_twice_is_paired_with_its_own_repetition():
    calls = [Call(CHUNK, "gdn", [word], [word.upper()]) for word in "ab"]
    assert found([*calls, *again(calls[::-1])]) == []
    assert found([*calls, *again(calls[1:])]) == []


@pytest.mark.parametrize(
    ("call", "verdict", "finding_class"),
    [
        ({"op": "aten.native_dropout.default"}, "origin", "rng"),
        ({"flags": Flag.SEEDED}, "origin", "rng"),
        ({"inputs": []}, "origin", "data"),
        ({"op": "aten.mul.Tensor"}, "origin", "unknown"),
        ({"flags": Flag.WEAK_INPUT, "evidence": Evidence.SCREEN}, "origin", "unknown"),
        ({"kind": Kind.COLLECTIVE, "op": "c10d.allreduce_.default"}, "origin", "unknown"),
        ({"flags": Flag.OPEN_INPUTS}, "unknown", "unknown"),
        ({"inputs": [None]}, "unknown", "unknown"),
    ],
)
def test_only_a_closed_call_with_equal_inputs_is_a_kernel_finding(call, verdict, finding_class):
    plain = Call(**({"op": CHUNK, "scope": "gdn", "inputs": ["q"], "outputs": ["h"]} | call))
    rows = found([plain, *again([plain], outputs=["H"])])
    assert rows == [(1, "gdn", plain.op, verdict, finding_class)]


def test_an_artefact_is_no_finding():
    plain = Call(CHUNK, "gdn", ["q"], ["h"], flags=Flag.POINTERS)
    assert found([plain, *again([plain], outputs=["H"])]) == []


def test_another_microbatch_or_step_is_no_recomputation():
    plain = Call(CHUNK, "gdn", ["q"], ["h"])
    for place in ({"microbatch": 1}, {"step": 2}):
        with pytest.raises(NotComparable, match="makes no call of its forward again"):
            find_recompute_differences(make_run({0: [plain, *again([plain], outputs=["H"], **place)]}))


def test_a_run_without_recomputation_is_refused_and_not_passed():
    with pytest.raises(NotComparable, match="activation recomputation"):
        find_recompute_differences(load_run(samples.sample_path("clean") / "a"))


def test_a_saved_run_gives_the_same(tmp_path):
    run = make_run({0: training((2, RACE))})
    again = load_run(save_run(run, tmp_path))
    assert find_recompute_differences(again).equals(find_recompute_differences(run))


def test_a_real_recomputation_gives_the_same_bits(tmp_path):
    recipe = Recipe(recompute=True, num_steps=1)
    run_on_ranks(2, train, recipe, str(tmp_path), {})
    run = load_run(tmp_path)
    assert {Phase.RECOMPUTE} <= set(run.ranks[0].index["phase"].tolist())
    assert find_recompute_differences(run).is_empty()

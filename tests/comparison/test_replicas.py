"""Ranks that should hold the same tensor: drift is found, and what should differ is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import load_run, samples
from detlab.comparison import find_drift
from detlab.comparison.replicated import is_whole_on_tensor_ranks
from detlab.errors import NotComparable
from detlab.schema import DETAIL_DTYPE, Coordinate, Evidence, Flag, Kind, Phase, Side
from detlab.store.batches import MemoryBatches
from detlab.testing import Call, make_run, save_run

ADAM = "optimizer.step"
ALL_REDUCE = "c10d.allreduce_.default"


def ranks_of(axis, calls, groups=None):
    """A run whose ranks stand along one axis and each make their own calls."""
    places = {rank: Coordinate(**{axis: rank}) for rank in range(len(calls))}
    return make_run(dict(enumerate(calls)), coordinates=places, layout={axis: len(calls)}, groups=groups)


def update(name, word, step=1, **more):
    """The optimizer's step of one parameter."""
    place = {"phase": Phase.OPTIMIZER, "kind": Kind.OPTIMIZER, "microbatch": -1}
    return Call(ADAM, name, [f"{name} before"], [word], step=step, **place | more)


def snapshot(name, word, step=1, phase=Phase.STATE, **more):
    return Call("state", name, [], [word], step=step, phase=phase, kind=Kind.STATE, microbatch=-1, **more)


def found(run, *columns):
    return find_drift(run).select("axis", "scope", "basis", *columns).rows()


NORM, SHARDED = "layers.0.input_layernorm.weight", "layers.0.mlp.fc1.weight"


def test_one_tensor_rank_that_clips_alone_is_the_outlier_and_shards_are_left_alone():
    run = ranks_of(
        "tp", [[update(NORM, "w0" if r == 0 else "w1"), update(SHARDED, f"s{r}")] for r in range(4)]
    )
    assert found(run, "ranks", "outliers", "first_step", "site", "num_values") == [
        (
            "tp",
            "layers.*.input_layernorm.weight",
            "name",
            [0, 1, 2, 3],
            [0],
            1,
            f"1/-1/optimizer/{NORM}/{ADAM}#0",
            2,
        )
    ]


def test_after_a_partial_fix_the_share_that_still_drifts_is_said():
    names = [f"layers.{number}.input_layernorm.weight" for number in range(10)]
    run = ranks_of(
        "tp", [[update(name, f"w{r if at < 4 else 0}") for at, name in enumerate(names)] for r in range(4)]
    )
    (row,) = find_drift(run).to_dicts()
    assert (row["num_drifting"], row["num_tensors"]) == (4, 10)
    assert "4 of 10 tensors of this kind drift (40%)" in row["why"]


GRAD = "final_layernorm.weight.grad"


def test_a_gradient_that_is_partial_before_its_reduction_is_as_expected():
    calls = [
        [snapshot(GRAD, f"partial{r}", phase=Phase.BACKWARD), snapshot(GRAD, "sum", phase=Phase.GRAD_REDUCE)]
        for r in range(4)
    ]
    assert found(ranks_of("tp", calls)) == []


def test_a_gradient_that_differs_after_its_reduction_lacks_a_reduction():
    calls = [
        [snapshot(GRAD, f"partial{r}", phase=phase) for phase in (Phase.BACKWARD, Phase.GRAD_REDUCE)]
        for r in range(4)
    ]
    (row,) = find_drift(ranks_of("tp", calls)).to_dicts()
    assert (row["scope"], row["basis"], row["first_step"], row["outliers"]) == (GRAD, "name", 1, [])
    assert "a reduction over tp is missing; there is no majority" in row["why"]


def reduced(words, flags=0, **more):
    groups = {"dp": list(range(len(words)))}
    calls = [
        [
            Call(
                ALL_REDUCE,
                "",
                [f"g{r}"],
                [word],
                kind=Kind.COLLECTIVE,
                group="dp",
                phase=Phase.GRAD_REDUCE,
                flags=flags,
                **more,
            )
        ]
        for r, word in enumerate(words)
    ]
    return ranks_of("dp", calls, groups)


def test_a_sum_that_one_member_has_otherwise_names_that_member():
    assert found(reduced(["s"] * 6 + ["S", "s"]), "outliers") == [("group", "", "collective", [6])]
    assert found(reduced(["s"] * 8)) == []


def test_two_members_have_no_majority():
    (row,) = find_drift(reduced(["s", "S"])).to_dicts()
    assert row["outliers"] == []
    assert "two members disagree: there is no majority" in row["why"]


@pytest.mark.parametrize("flag", [Flag.NOT_WAITED_FOR, Flag.COPY_IN_FLIGHT, Flag.POINTERS, Flag.FRESH_MEMORY])
def test_a_result_hashed_too_early_is_not_compared(flag):
    with pytest.raises(NotComparable, match="no two ranks that show the same tensor"):
        find_drift(reduced(["s", "s", "S"], flags=flag))


def test_a_norm_of_floats_is_too_weak_to_accuse():
    with pytest.raises(NotComparable, match="no two ranks"):
        find_drift(reduced(["s", "s", "S"], evidence=Evidence.STATISTIC))


@pytest.mark.parametrize("op", ["c10d.reduce_scatter_.default", "c10d.alltoall_.default", "nccl.mystery"])
def test_a_collective_that_gives_shards_or_is_not_known_is_left_alone(op):
    words = ["s", "t", "u"]
    calls = [
        [Call(op, "", ["g"], [word], kind=Kind.COLLECTIVE, group="dp"), snapshot("w", "w")] for word in words
    ]
    assert found(ranks_of("dp", calls, {"dp": [0, 1, 2]})) == []


def history(axis, *steps, name="layers.0.mlp.fc1.weight", make=snapshot):
    """Ranks of which each shows one tensor at every step: a word for each rank and step."""
    return ranks_of(
        axis, [[make(name, words[r], step) for step, words in enumerate(steps, 1)] for r in range(3)]
    )


def test_a_data_parallel_replica_that_was_equal_once_drifts():
    assert found(history("dp", "www", "wwW"), "first_step", "outliers") == [
        ("dp", "layers.*.mlp.fc1.weight", "history", 2, [2])
    ]


def test_shards_that_start_alike_are_no_replicas():
    assert found(history("tp", "000", "abc")) == []
    zeros = [
        [snapshot(n, "zero", 1) for n in "pq"] + [snapshot(n, f"{n}{r}", 2) for n in "pq"] for r in range(3)
    ]
    assert found(ranks_of("dp", zeros)) == []  # another tensor has the same bits: zeros, or ones


def test_a_tensor_that_stays_equal_through_an_update_is_a_replica():
    assert found(history("tp", "aaa", "bbb", "bbB"), "first_step", "outliers") == [
        ("tp", "layers.*.mlp.fc1.weight", "history", 3, [2])
    ]
    assert found(history("tp", "abc", "bbb", "bbb", "bbB")) == []  # it was not, once


def test_an_optimizer_call_without_a_name_needs_an_update_too():
    assert found(history("dp", "aaa", "abc", name="", make=update)) == []
    assert found(history("dp", "aaa", "bbb", "abc", name="", make=update), "first_step") == [
        ("dp", "", "history", 3)
    ]


def test_flags_and_counters_are_equal_by_chance():
    def flag(name, word, step):
        return update(name, word, step, shape=())

    assert found(history("dp", "aaa", "bbb", "abc", name="", make=flag)) == []


def test_tensors_of_another_shape_are_shards():
    calls = [[snapshot(NORM, f"w{r}", shape=(r + 1,)), snapshot("w", "w")] for r in range(3)]
    assert found(ranks_of("tp", calls)) == []


WEIGHT = ("parameters", 0, 4)


def forward(word, data, step, **more):
    """A layer that reads its weight and a batch, and an optimizer that writes the weight in place."""
    places = {word: WEIGHT, f"{word}'": WEIGHT} | more
    return [
        Call("aten.mm.default", "lin", [word, data], [f"{data} out"], step=step, places=places),
        Call(
            "aten.add_.Tensor",
            "",
            [word, "update"],
            [f"{word}'"],
            step=step,
            places=places,
            phase=Phase.OPTIMIZER,
        ),
    ]


def trained(*words):
    """Three data-parallel ranks, each with its own data; a word for the weight of each rank and step."""
    return [
        [call for step, word in enumerate(words, 1) for call in forward(word[r], f"x{r}", step)]
        for r in range(3)
    ]


def test_a_parameter_is_known_by_what_is_done_to_its_memory():
    assert found(ranks_of("dp", trained("aaa", "bbb"))) == []
    assert found(ranks_of("dp", trained("aaa", "bXb")), "site", "outliers") == [
        ("dp", "lin", "parameter", "2/0/forward/lin/aten.mm.default#0", [1])
    ]


def test_a_parameter_that_drifted_before_the_recording_is_found():
    assert found(ranks_of("dp", trained("aaX")), "first_step", "outliers") == [
        ("dp", "lin", "parameter", 1, [2])
    ]


def test_memory_that_the_optimizer_uses_again_makes_no_parameter_of_data():
    """The batch's memory is freed and given to a temporary, which the optimizer makes and then changes."""

    def rank(number):
        data, batch = f"x{number}", ("batch", 0, 4)
        places = {data: batch, "t": batch, "u": batch}
        make = Call("aten.sqrt.default", "", ["v"], ["t"], phase=Phase.OPTIMIZER, places=places)
        change = Call("aten.add_.Tensor", "", ["t"], ["u"], phase=Phase.OPTIMIZER, places=places)
        return [*forward("w", data, 1, **{data: batch}), make, change]

    assert found(ranks_of("dp", [rank(number) for number in range(3)])) == []


def test_memory_that_the_forward_wrote_itself_is_no_parameter():
    def rank(number):
        word, places = f"a{number}", {f"a{number}": WEIGHT}
        made = Call("aten.mul.Tensor", "lin", [f"x{number}"], [word], places=places)
        return [made, *forward(word, "q", 1)]

    assert found(ranks_of("dp", [rank(number) for number in range(3)])) == []


def test_experts_that_are_sharded_otherwise_are_left_alone():
    calls = [[replace(call, scope=call.scope and "mlp.experts") for call in rank] for rank in trained("aXb")]
    apart = {f"expt_dp{rank}": [rank] for rank in range(3)}
    assert len(found(ranks_of("dp", calls))) == 1
    run = ranks_of("dp", calls)
    ranks = [
        replace(r, header=replace(r.header, groups={"expt_dp": apart[f"expt_dp{r.header.rank}"]}))
        for r in run.ranks
    ]
    assert found(replace(run, ranks=tuple(ranks))) == []


@pytest.mark.parametrize(
    "name",
    [
        "decoder.layers.3.input_layernorm.weight",
        "decoder.final_layernorm",
        "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight",
        "decoder.layers.1.mlp.linear_fc2.bias.main_grad",
        "decoder.layers.1.self_attention.linear_proj.bias",
        "decoder.layers.2.mlp.router.weight",
        "embedding.position_embeddings.weight",
    ],
)
def test_names_of_tensors_that_every_tensor_rank_has_whole(name):
    assert is_whole_on_tensor_ranks(name)


@pytest.mark.parametrize(
    "name",
    [
        "decoder.layers.0.self_attention.linear_proj.weight",
        "decoder.layers.0.mlp.linear_fc1.bias",
        "decoder.layers.0.self_attention.q_layernorm.weight",
        "decoder.layers.0.mixer.norm.weight",
        "decoder.layers.0.mlp.experts.linear_fc2.bias",
        "embedding.word_embeddings.weight",
        "",
    ],
)
def test_names_that_say_nothing_of_the_kind(name):
    assert not is_whole_on_tensor_ranks(name)


def test_what_cannot_be_checked_is_refused_and_not_passed():
    with pytest.raises(NotComparable, match="no two ranks"):
        find_drift(ranks_of("dp", [[snapshot("w", "w")]]))
    run = ranks_of("dp", [[snapshot("w", "w")]] * 2)
    with pytest.raises(NotComparable, match="how its ranks are laid out"):
        find_drift(replace(run, manifest=replace(run.manifest, layout={})))


@given(st.permutations(range(4)), st.integers(0, 3))
def test_the_order_of_ranks_changes_nothing(order, outlier):
    run = ranks_of("tp", [[update(NORM, "W" if r == outlier else "w")] for r in range(4)])
    turned = replace(run, ranks=tuple(run.ranks[at] for at in order))
    assert find_drift(turned).equals(find_drift(run))
    assert find_drift(run)["outliers"].to_list() == [[outlier]]


def test_a_saved_run_gives_the_same(tmp_path):
    run = ranks_of("dp", trained("aaa", "bXb"))
    assert find_drift(load_run(save_run(run, tmp_path))).equals(find_drift(run))


@pytest.fixture(params=["clean", "race"])
def real(request):
    return load_run(samples.sample_path(request.param) / "a")


def test_nothing_drifts_in_real_runs(real):
    assert find_drift(real).is_empty()


def test_a_parameter_changed_on_one_rank_of_a_real_run_is_found(real):
    scope = "decoder.layers.0.mlp.linear_fc1"
    changed = replace(real, ranks=(*real.ranks[:3], with_changed_weight(real.ranks[3], scope)))
    assert found(changed, "ranks", "first_step", "outliers") == [
        ("dp", "decoder.layers.*.mlp.linear_fc1", "parameter", [1, 3], 2, [])
    ]


def with_changed_weight(trace, scope):
    """The same trace, but the module's weight reads otherwise in step 2."""
    rows = trace.columns(0, trace.num_events, ("seq", "step", "callee", "phase"))
    here = np.array(
        [callee.scope == scope and callee.op == "aten.t.default" for callee in trace.names.callees]
    )
    chosen = rows["seq"][(rows["step"] == 2) & (rows["phase"] == Phase.FORWARD) & here[rows["callee"]]]
    parts = []
    for number in range(len(trace.details)):
        columns = trace.details.read(number, DETAIL_DTYPE.names)
        part = np.empty(len(columns["seq"]), DETAIL_DTYPE)
        for name, column in columns.items():
            part[name] = column
        part["digest"] ^= np.isin(part["seq"], chosen) & (part["side"] == Side.INPUT)
        parts.append(part)
    return replace(trace, details=MemoryBatches(parts))

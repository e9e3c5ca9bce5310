"""What people have reported of many ranks, of one run alone and of many, each as small runs of its own."""

from dataclasses import replace

import pytest

from detlab.comparison.many import compare_many
from detlab.comparison.replicas import find_drift
from detlab.comparison.within import find_recompute_differences
from detlab.schema import Coordinate, Flag, Phase
from detlab.testing import Call, make_run
from tests.comparison.stories import (
    ALL_REDUCE,
    ITEM,
    MM,
    NORM,
    collective,
    expect,
    held,
    item,
    mm,
    route,
    site,
    why,
)

DETACH, TRANSPOSE = "aten.detach.default", "aten.t.default"


# Collectives and numbers from Python


def reduced(sums):
    """Eight ranks reduce a gradient in step 4."""
    return make_run(
        {
            rank: [
                mm("x", f"g{rank}", step=4, phase=Phase.BACKWARD),
                collective(ALL_REDUCE, f"g{rank}", total, step=4),
            ]
            for rank, total in enumerate(sums)
        },
        groups={"dp": range(8)},
    )


def test_a_sum_that_differs_alike_on_all_ranks_is_the_collectives():
    cmp = expect(
        reduced("ssssssss"),
        reduced("SSSSSSSS"),
        ["match origin"] * 8,
        ("collective", ALL_REDUCE, tuple(range(8))),
    )
    assert "NCCL_ALGO" in why(cmp)


def test_a_sum_that_differs_on_one_rank_is_that_ranks():
    sites = ["match match"] * 8
    sites[6] = "match origin"
    expect(reduced("ssssssss"), reduced("ssssssXs"), sites, ("rank", ALL_REDUCE, (6,)))


def test_a_replicated_sum_on_which_the_ranks_disagree_is_not_the_algorithms():
    """An algorithm gives every member the same sum; here each of two ranks has one of its own."""
    sites = ["match match"] * 8
    sites[5] = sites[6] = "match origin"
    expect(reduced("ssssssss"), reduced("sssssXYs"), sites, ("rank", ALL_REDUCE, (5, 6)))


def test_ranks_that_disagree_in_either_run_are_not_the_algorithm():
    agreeing, broken = reduced("ssssssss"), reduced("sSSSSSSS")
    sites = ["match match"] + ["match origin"] * 7
    for pair in ((agreeing, broken), (broken, agreeing)):
        expect(*pair, sites, ("rank", ALL_REDUCE, tuple(range(1, 8))))


def poisoned(born_on):
    """Sixteen ranks reduce a gradient in step 4; where it is born as NaN, the sum is NaN everywhere."""
    finite, nan = (1.0, 2.0, 0, 0), (1.0, 2.0, 4, 0)

    def of(rank):
        made, total = (f"NaN {rank}" if rank == born_on else f"g{rank}"), "NaN" if born_on else "sum"
        stats = {"x": finite, "w of layers.30.mlp": finite, made: nan if rank == born_on else finite}
        stats[total] = nan if born_on else finite
        back = mm("x", made, "layers.30.mlp", step=4, phase=Phase.BACKWARD, stats=stats)
        flags = Flag.NAN if born_on else Flag(0)
        return [
            replace(back, flags=flags if rank == born_on else Flag(0)),
            collective(ALL_REDUCE, made, total, step=4, stats=stats, flags=flags),
        ]

    return make_run({rank: of(rank) for rank in range(16)}, groups={"dp": range(16)})


def test_a_nan_on_one_rank_is_born_there_and_all_others_receive_it_by_the_reduction():
    sites = ["match receiver"] * 16
    sites[11] = "origin receiver"
    cmp = expect(poisoned(None), poisoned(11), sites, ("kernel", MM, (11,)))
    assert "NaN" in why(cmp)
    (finding,) = cmp.roots
    assert (finding.scopes, finding.steps) == (("layers.30.mlp",), (4,))
    assert finding.receivers == tuple(rank for rank in range(16) if rank != 11)
    way = route(cmp, 3, cmp.first.filter(rank=3)["site"][0])
    assert way[-1] == (11, MM)


def clipped(norms, order, total, factor):
    """Norms of three gradients, the norm of these in an order, and all gradients scaled by what follows."""
    gradients, stack = ["g1", "g2", "g3"], f"stack {norms} {order}"
    foreach = {"attributes": {"lanes": "3"}, "phase": Phase.OPTIMIZER}
    return [
        Call("aten._foreach_norm.Scalar", "", gradients, norms, **foreach),
        Call("aten.stack.default", "", [norms[n] for n in order], [stack], phase=Phase.OPTIMIZER),
        Call(NORM, "", [stack], [f"total {total}"], phase=Phase.OPTIMIZER),
        replace(item(f"total {total}", total), phase=Phase.OPTIMIZER),
        Call(
            "aten._foreach_mul_.Scalar", "", gradients, [f"{g} by {factor}" for g in gradients],
            scalars=[factor], **foreach,
        ),
    ]  # fmt: skip


NORMS = ["n1", "n2", "n3"]


def test_the_reduction_of_the_gradient_norm_is_first_and_all_clipped_gradients_are_receivers():
    cmp = expect(
        clipped(NORMS, (0, 1, 2), 2.353, 0.425), clipped(NORMS, (0, 1, 2), 2.354, 0.424),
        "match match origin receiver receiver", ("kernel", NORM, (0,)),
    )  # fmt: skip
    ops = [op for _, op in route(cmp, 0, site("", "aten._foreach_mul_.Scalar", phase="optimizer"))]
    assert ops == ["aten._foreach_mul_.Scalar", ITEM, NORM]


def test_norms_of_a_list_are_reductions_and_can_be_an_origin():
    cmp = expect(
        clipped(NORMS, (0, 1, 2), 2.353, 0.425), clipped(["n1", "N2", "n3"], (0, 1, 2), 2.354, 0.424),
        "origin receiver receiver receiver receiver", ("kernel", "aten._foreach_norm.Scalar", (0,)),
    )  # fmt: skip
    assert "1 of 3 outputs" in why(cmp)


def test_the_same_norms_in_another_order_are_a_difference_of_structure():
    cmp = expect(
        clipped(NORMS, (0, 1, 2), 2.353, 0.425), clipped(NORMS, (1, 0, 2), 2.354, 0.424),
        "match receiver receiver receiver receiver", ("structure", "aten.stack.default", (0,)),
    )  # fmt: skip
    assert "order" in why(cmp)


# Across ranks


def sixteen(gradient, total):
    """Step 4 of sixteen ranks: the backward of a layer, then the data-parallel sum."""
    finite = (1.0, 2.0, 0, 0)
    calls = {}
    for rank in range(16):
        own = gradient if rank == 11 else f"g{rank}"
        stats = {
            own: finite if own.islower() else (1.0, 2.0, 96, 0),
            "dy": finite,
            "w of layers.30.mlp": finite,
        }
        nan = 0 if own.islower() else Flag.NAN
        calls[rank] = [
            mm("dy", own, "layers.30.mlp", step=4, phase=Phase.BACKWARD, stats=stats, flags=nan),
            collective(ALL_REDUCE, own, total, step=4, flags=Flag.NAN if total == "NAN" else 0),
        ]
    places = {rank: Coordinate(tp=rank % 2, pp=rank // 8, dp=rank // 2 % 4) for rank in range(16)}
    return make_run(calls, coordinates=places, groups={"dp": range(16)})


def test_a_nan_is_born_on_the_one_rank_where_the_inputs_were_finite():
    sites = ["match receiver"] * 16
    sites[11] = "origin receiver"
    cmp = expect(sixteen("g11", "s"), sixteen("NAN", "NAN"), sites, ("kernel", MM, (11,)))
    finding = cmp.roots[0]
    assert finding.receivers == tuple(rank for rank in range(16) if rank != 11)
    assert (finding.steps, finding.scopes) == ((4,), ("layers.30.mlp",))
    assert "NaN" in why(cmp)
    assert route(cmp, 3, site("", ALL_REDUCE + "@dp", 4, -1, "grad_reduce")) == [
        (3, ALL_REDUCE),
        (11, ALL_REDUCE),
        (11, MM),
    ]


def test_the_same_nan_in_a_repeated_run_is_no_divergence():
    run = sixteen("NAN", "NAN")
    expect(run, run, ["match match"] * 16, verdict="match")


def on_tensor_ranks(*calls_of):
    """One run of as many tensor-parallel ranks as there are lists of calls."""
    places = {rank: Coordinate(tp=rank) for rank in range(len(calls_of))}
    return make_run(dict(enumerate(calls_of)), coordinates=places, layout={"tp": len(calls_of)})


def clipped_on_some_ranks(drifting):
    """Ten norms of which some were updated otherwise on rank 0 in step 1, and a sharded weight."""
    ranks = []
    for rank in range(4):
        calls = []
        for step in (0, 1):
            for n in range(10):
                other = step and rank == 0 and n in drifting
                word = f"norm {n} of step {step}" + " unclipped" * bool(other)
                calls.append(held(f"layers.{n}.input_layernorm.weight", word, step))
            calls.append(held("layers.0.mlp.linear_fc1.weight", f"shard {rank} of step {step}", step))
        ranks.append(calls)
    return on_tensor_ranks(*ranks)


@pytest.mark.parametrize("num", [10, 4])
def test_a_replicated_parameter_that_one_rank_updates_otherwise_is_drift_and_a_shard_is_not(num):
    (row,) = find_drift(clipped_on_some_ranks(range(num))).iter_rows(named=True)
    assert (row["axis"], row["ranks"], row["outliers"]) == ("tp", [0, 1, 2, 3], [0])
    assert (row["scope"], row["first_step"]) == ("layers.*.input_layernorm.weight", 1)
    assert (row["num_drifting"], row["num_tensors"]) == (num, 10)


def partial_gradients(after):
    """Gradients of a norm that are partial sums after the backward, and what they are once reduced."""
    name = "final_layernorm.weight.grad"
    return on_tensor_ranks(
        *(
            [held(name, f"partial {rank}", 1, Phase.BACKWARD), held(name, word, 1, Phase.OPTIMIZER)]
            for rank, word in enumerate(after)
        )
    )


def test_partial_gradients_that_are_equal_once_reduced_are_no_drift():
    assert find_drift(partial_gradients("gggg")).is_empty()


def test_partial_gradients_that_still_differ_once_reduced_are_drift():
    (row,) = find_drift(partial_gradients("ghij")).iter_rows(named=True)
    assert (row["axis"], row["outliers"], row["num_values"]) == ("tp", [], 4)
    assert site("final_layernorm.weight.grad", "state.tensor", 1, -1, "optimizer") == row["site"]
    assert "reduc" in row["why"] + row["next"]


# Within one run, and more than two


def recomputed(again):
    """Two ranks in step 3, of which rank 1 makes a call of its forward again in the backward."""

    def chunk(word, phase):
        return Call("gdn.chunk_fwd_h", "layers.7.gdn", ["q", "k"], [word], step=3, phase=phase)

    forward = chunk("h1", Phase.FORWARD)
    return make_run(
        {rank: [forward, chunk(word, Phase.RECOMPUTE)] for rank, word in enumerate(["h1", again])}
    )


def test_a_forward_and_its_recomputation_that_differ_show_a_race_within_one_run():
    (row,) = find_recompute_differences(recomputed("H1")).iter_rows(named=True)
    assert (row["rank"], row["step"], row["op"]) == (1, 3, "gdn.chunk_fwd_h")
    assert (row["verdict"], row["class"]) == ("origin", "kernel")
    assert find_recompute_differences(recomputed("h1")).is_empty()


def test_runs_that_are_equal_within_a_rack_differ_by_topology_and_not_from_run_to_run():
    many = compare_many(
        [
            make_run(
                {0: [mm("x", loss), Call("loss", "", [loss], [loss + " mean"])]},
                label=f"{loss}{n}",
                recipes={0: {"state": {"hostname": f"rack {rack} node {n}", "racks": rack}}},
            )
            for loss, rack in (("a", 1), ("b", 2))
            for n in (1, 2)
        ]
    )
    assert many.classes == (("a1", "a2"), ("b1", "b2"))
    assert (many.verdict, many.first_step, many.conclusion) == ("diverged", 1, "environment")
    separating = many.facts.filter("separates")
    assert separating["fact"].to_list() == ["state.racks"]

"""What people who chase nondeterminism have reported, each as a small pair of runs with the right answer."""

from dataclasses import replace

import pytest

from detlab import compare
from detlab.comparison.many import compare_many
from detlab.comparison.replicas import check_replicas
from detlab.comparison.within import check_recompute
from detlab.schema import Coordinate, Evidence, Flag, Phase
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

INDEX_ADD = "aten.index_add_.default"
DETACH, TRANSPOSE = "aten.detach.default", "aten.t.default"


# Aligning two logs


def logged(result, *, views):
    """247 products, among them two of one module; with 66 views spread through them where wanted."""
    calls = []
    for n in range(247):
        scope = "layers.3.mlp" if n in (100, 150) else f"layers.{n}"
        calls.append(Call(MM, scope, [f"x{n}"], [result if n == 150 else f"y{n}"]))
        if views and n % 3 == 0 and n < 198:
            calls.append(Call((DETACH, TRANSPOSE)[n % 2], scope, [f"y{n}"], [f"y{n}"], flags=Flag.VIEW))
    return calls


def test_logs_of_313_and_247_calls_are_aligned():
    one, other = logged("h", views=True), logged("H", views=False)
    assert (len(one), len(other)) == (313, 247)
    sites = ["only_a" if call.flags else "match" for call in one]
    sites[next(n for n, call in enumerate(one) if call.outputs == ["h"])] = "origin"
    cmp = expect(one, other, " ".join(sites), ("kernel", MM, (0,)), ignored={"structure_note": 66})
    assert cmp.first["site"].to_list() == [site("layers.3.mlp", MM, call=1)]


def test_the_first_divergence_is_the_first_in_execution_and_not_by_name():
    def run(z, normed, attended):
        here = [mm(f"p{n}", f"q{n}", f"filler.{n}") for n in range(50)]
        there = list(here)
        here[10] = mm("x", z, "z_proj")
        here[40] = Call("aten.mul.Tensor", "a_norm", [z], [normed])
        there[25] = Call("aten.bmm.default", "m_attn", ["q", "k"], [attended])
        return make_run({0: here, 1: there})

    sites = [["match"] * 50, ["match"] * 50]
    sites[0][10], sites[0][40], sites[1][25] = "origin", "receiver", "origin"
    cmp = expect(
        run("z", "n", "a"), run("Z", "N", "A"), list(map(" ".join, sites)),
        ("kernel", MM, (0,)), ("kernel", "aten.bmm.default", (1,)),
    )  # fmt: skip
    assert cmp.first.select("rank", "scope", "seq_a").rows() == [(0, "z_proj", 10), (1, "m_attn", 25)]


def test_findings_of_one_step_stand_in_the_order_of_execution():
    def run(one, other):
        return [mm("x", one, "z_proj"), mm("y", other, "a_proj", phase=Phase.BACKWARD)]

    cmp = compare(*(make_run({0: run(*words)}) for words in ("ab", "AB")))
    assert [finding.scopes for finding in cmp.roots] == [("z_proj",), ("a_proj",)]


def test_a_verdict_is_as_strong_as_the_weaker_of_the_two_runs():
    runs = [[mm("x", "y", evidence=level)] for level in (Evidence.EXACT, Evidence.STATISTIC)]
    assert expect(*runs, "match", verdict="match").evidence is Evidence.STATISTIC


def buckets(*numbers):
    """A backward of which every part is followed by the reduction of a bucket."""
    backward = {"phase": Phase.BACKWARD}
    return [
        call
        for n in numbers
        for call in (
            mm(f"dy{n}", f"g{n}", f"layers.{n}", **backward),
            Call("aten.div_.Tensor", "", [f"g{n}"], [f"mean {n}"], phase=Phase.GRAD_REDUCE),
        )
    ]


@pytest.mark.parametrize("lost", range(6))
def test_a_missing_part_of_a_phase_shifts_none_of_the_others(lost):
    sites = ["match"] * 12
    sites[2 * lost] = sites[2 * lost + 1] = "only_a"
    one, other = buckets(*range(6)), buckets(*(n for n in range(6) if n != lost))
    expect(one, other, " ".join(sites), ("structure", MM, (0,)), ("structure", "aten.div_.Tensor", (0,)))


IN_LAYER = {"scope": "layers.1", "phase": Phase.FORWARD, "microbatch": 0}


def gathering(*extra):
    """Two ranks and two steps of a layer; rank 1 makes an additional call in step 2."""

    def layer(step, *more):
        own = [mm(f"x{n}", f"x{n + 1}", "layers.1", step=step) for n in range(4)]
        gather = collective(
            "c10d._allgather_base_.default", "s", "p", phase=Phase.FORWARD, microbatch=0, step=step
        )
        return [*more, replace(gather, scope="layers.1"), *own]

    ranks = {rank: [*layer(1), *layer(2, *(extra if rank else ()))] for rank in (0, 1)}
    return make_run(ranks, groups={"dp": [0, 1]})


def test_an_additional_in_place_gather_shifts_no_later_call():
    op = "c10d._allgather_base_.default"
    extra = collective(op, "t", "q", step=2, **IN_LAYER)
    rank = "match " * 5
    expect(gathering(), gathering(extra), [rank * 2, rank + "only_b " + rank], ("structure", op, (1,)))


def feed_forward(scope, phase):
    ops = ("aten.mm.default", "aten.silu.default", "aten.mul.Tensor")
    return [Call(ops[n % 3], scope, [f"f{n}"], [f"f{n + 1}"], phase=phase) for n in range(24)]


@pytest.mark.parametrize("scope", ["layers.2.feed_forward", "feed_forward"])
def test_a_recomputation_in_the_backward_is_a_note_also_under_a_short_name(scope):
    forward = feed_forward("layers.2.feed_forward", Phase.FORWARD)
    backward = [mm(f"d{n}", f"d{n + 1}", "layers.2", phase=Phase.BACKWARD) for n in range(3)]
    again = feed_forward(scope, Phase.BACKWARD)
    expect(
        [*forward, *backward], [*forward, *again, *backward],
        "match " * 24 + "only_b " * 24 + "match " * 3,
        verdict="match", ignored={"structure_note": 24}, recomputed=24,
    )  # fmt: skip


def test_a_recomputation_that_gives_other_bits_is_no_note():
    forward = feed_forward("layers.2.feed_forward", Phase.FORWARD)
    again = feed_forward("feed_forward", Phase.BACKWARD)
    again[23] = replace(again[23], outputs=["F24"])
    cmp = compare(make_run({0: forward}), make_run({0: [*forward, *again]}))
    assert cmp.verdict == "diverged"


def test_a_collective_of_another_name_is_the_same_collective():
    def run(*calls):
        return make_run({0: [mm("x", "s"), *calls, mm("p", "y", "next")]}, groups={"dp": [0]})

    forward = {"phase": Phase.FORWARD, "microbatch": 0}
    eager = collective("c10d._allgather_base_.default", "s", "p", **forward)
    functional = collective("_c10d_functional.all_gather_into_tensor_out.default", "s", "p", **forward)
    wait = Call("_c10d_functional.wait_tensor.default", "", ["p"], ["p"], flags=Flag.VIEW)
    expect(
        run(eager), run(functional, wait), "match match only_b match",
        verdict="match", ignored={"structure_note": 1},
    )  # fmt: skip


def test_a_pair_that_the_user_names_is_matched_and_says_so():
    runs = [
        make_run({0: [Call(MM, scope, ["w", "x"], ["y"]), mm("y", "z", "head")]})
        for scope in ("layers.2.ff", "ff")
    ]
    cmp = compare(*runs, pairs={"scopes": {"ff": "layers.2.ff"}})
    assert cmp.verdict == "match"
    assert cmp.sites(step=1, rank=0)["how"].to_list() == ["override", "site"]


# What the observer did


def asynchronous(early, late, flags=0):
    gather = collective("_c10d_functional.all_gather_into_tensor.default", "s", early, flags=flags)
    wait = Call(
        "_c10d_functional.wait_tensor.default", "", [None], [late], phase=Phase.GRAD_REDUCE, microbatch=-1
    )
    return make_run({0: [mm("x", "s"), gather, wait]}, groups={"dp": [0]})


def test_a_collective_hashed_before_it_finished_is_an_artefact():
    runs = [asynchronous(early, "p", Flag.NOT_WAITED_FOR) for early in ("e", "E")]
    expect(*runs, "match origin match", verdict="match", ignored={"not_waited_for": 1})


def test_equal_nans_are_no_divergence():
    run = asynchronous("nan", "p", Flag.NOT_WAITED_FOR | Flag.NAN)
    expect(run, run, "match match match", verdict="match")


def test_an_operand_that_was_permuted_under_an_equal_digest_is_first_visible_at_its_reader():
    def run(word):
        weak = {"evidence": Evidence.SCREEN}
        return [
            Call("moe.permute", "dispatch", ["h"], ["rows"], flags=Flag.WEAK_OUTPUT, **weak),
            Call(MM, "experts.0", ["w", "rows"], [word], flags=Flag.WEAK_INPUT, **weak),
        ]

    cmp = expect(run("y"), run("Y"), "match origin", ("kernel", MM, (0,)))
    assert cmp.roots[0].evidence == "screen"
    assert "first visible" in why(cmp)
    assert f"made by {site('dispatch', 'moe.permute')}" in why(cmp)


def test_an_input_that_changed_between_two_calls_was_written_by_something_unrecorded():
    def run(now):
        places = dict.fromkeys(("g", now), ("main_grad", 0, 64))
        return [
            Call(MM, "lin", ["dy", "x"], ["g"], phase=Phase.BACKWARD, places=places),
            mm("z", "u", "other", phase=Phase.BACKWARD),
            Call("opt.step", "", ["p", now], ["p after " + now], phase=Phase.OPTIMIZER, places=places),
        ]

    cmp = expect(run("g"), run("G"), "match match receiver", ("upstream", "opt.step", (0,)))
    assert "no recorded write" in why(cmp)
    assert site("lin", MM, phase="backward") in why(cmp)


def test_other_machines_addresses_and_files_are_no_difference():
    def run(label, address, host):
        places = {word: (f"{address} {word}", address, address + 16) for word in ("x", "y")}
        calls = [Call(MM, "lin", ["x"], ["y"], places=places)]
        return make_run({0: calls}, label=label, recipes={0: {"hostname": host, "output": f"/data/{label}"}})

    expect(run("monday", 64, "n1"), run("tuesday", 4096, "n7"), "match", verdict="match")


# Kernels


def test_one_of_three_gradients_of_attention_varies():
    def run(dq):
        attention = Call(
            "flash.bwd", "core_attention", ["q", "k", "v", "do"], [dq, "dk", "dv"], phase=Phase.BACKWARD
        )
        reads = [mm(word, f"next {word}", word.lower(), phase=Phase.BACKWARD) for word in (dq, "dk", "dv")]
        return [attention, *reads]

    cmp = expect(run("dq"), run("DQ"), "origin receiver match match", ("kernel", "flash.bwd", (0,)))
    assert "1 of 3 outputs" in why(cmp)


def test_the_embedding_backward_is_the_origin_when_all_before_it_is_equal():
    op = "aten.embedding_dense_backward.default"

    def run(word):
        return [
            mm("x", "y", "head"),
            mm("dy", "dx", "head", phase=Phase.BACKWARD),
            Call(op, "embedding", ["dx", "ids"], [word], phase=Phase.BACKWARD, dtypes={"ids": "int64"}),
        ]

    expect(run("g"), run("G"), "match match origin", ("kernel", op, (0,)))


def combined(diverging):
    """Two steps of eight independent layers on four ranks; ``diverging`` layers combine to other bits."""

    def layer(rank, step, n):
        name = f"r{rank} s{step} l{n}"
        made = name + "!" if n in diverging.get(rank, ()) else name
        combine = Call(INDEX_ADD, f"layers.{n}.moe.combine", ["z", "ids", "e" + name], [made], step=step)
        return [combine, mm(made, "after " + made, f"layers.{n}.out", step=step)]

    return make_run(
        {
            rank: [call for step in (1, 2) for n in range(8) for call in layer(rank, step, n)]
            for rank in range(4)
        }
    )


def test_one_op_in_many_layers_on_many_ranks_is_one_finding():
    layers = {0: (0, 1, 3, 5, 6), 1: (1, 2, 3, 4, 7), 2: (0, 2, 4, 6, 7), 3: (0, 1, 2, 3, 4)}
    sites = [
        " ".join("origin receiver" if n in chosen else "match match" for n in range(8))
        for chosen in layers.values()
    ]
    cmp = expect(
        combined({}),
        combined(layers),
        [f"{each} {each}" for each in sites],
        ("kernel", INDEX_ADD, (0, 1, 2, 3)),
    )
    finding = cmp.roots[0]
    assert (finding.steps, finding.receivers, finding.num_sites) == ((1, 2), (), 40)


def test_a_weight_gradient_is_found_one_step_before_the_loss_shows_it():
    op = "causal_conv1d.bwd"

    def run(dw, db):
        def step(number, weight):
            return [
                Call("causal_conv1d.fwd", "conv1d", ["x", weight], [f"y {weight}"], step=number),
                Call("loss", "", [f"y {weight}"], [f"loss {weight}"], step=number),
            ]

        back = Call(op, "conv1d", ["dy", "x", "w"], ["dx", dw, db], phase=Phase.BACKWARD)
        update = Call("opt.step", "", ["w", dw, db], [f"w by {dw}"], phase=Phase.OPTIMIZER)
        return [
            *step(1, "w"),
            back,
            mm("dx", "d", "in_proj", phase=Phase.BACKWARD),
            update,
            *step(2, f"w by {dw}"),
        ]

    cmp = expect(
        run("dw", "db"), run("DW", "DB"), "match match origin match receiver receiver receiver",
        ("kernel", op, (0,)),
    )  # fmt: skip
    assert cmp.first.select("step", "phase").rows() == [(1, "backward")]


def tuned(configs, words):
    """One kernel on each rank, with the configuration that the autotuner chose there."""
    return make_run(
        {
            rank: [Call("triton.l2norm_fwd", "norm", ["x"], [word], attributes={"config": config})]
            for rank, (config, word) in enumerate(zip(configs, words, strict=True))
        }
    )


def test_another_configuration_explains_a_kernel_and_is_no_divergence_by_itself():
    small, large = "BLOCK=64,warps=4", "BLOCK=128,warps=8"
    sites = ["match", "match", "origin", "match"]
    cmp = expect(
        tuned([small] * 4, "yyyy"), tuned([small, small, large, large], "yyYy"), sites,
        ("kernel", "triton.l2norm_fwd", (2,)), ignored={"configuration": 1},
    )  # fmt: skip
    assert small in why(cmp)
    assert large in why(cmp)


def test_a_product_that_differs_for_one_class_of_shapes_only_says_which():
    def run(*words):
        narrow, wide = {"shape": (4, 4096)}, {"shape": (4096, 4096)}
        return [
            *(mm(f"x{n}", f"y{n}", f"layers.{n}.linear_fc1", **wide) for n in range(6)),
            *(mm(f"x{n}", word, f"layers.{n}.linear_fc2", **narrow) for n, word in enumerate(words)),
        ]

    cmp = expect(run("y", "z"), run("Y", "Z"), "match " * 6 + "origin origin", ("kernel", MM, (0,)))
    table = cmp.discriminate(finding=0).filter("separates")
    assert set(table["axis"]) == {"shapes", "size"}
    counts = table.filter(axis="shapes").select("value", "divergent", "clean").rows()
    assert counts == [("[4, 4096] [4, 4096]", 2, 0), ("[4096, 4096] [4096, 4096]", 0, 6)]


def grouped(buffer, result, stats):
    """The backward of a grouped product, with rows beyond the valid ones that nobody writes."""
    places = {buffer: ("buf", 0, 704), "rows": ("buf", 0, 698)}
    return [
        Call("te.grouped_gemm", "experts", ["w", "x"], [buffer], places=places, stats=stats),
        Call(
            "aten.slice.Tensor", "", [buffer], [result], scalars=[0, 0, 698], flags=Flag.VIEW, places=places
        ),
        mm(result, f"y {result}", "next"),
    ]


def test_a_nan_is_born_where_inputs_are_finite_and_the_output_is_not():
    finite = dict.fromkeys(("w", "x", "b"), (1.0, 2.0, 0, 0))
    one, other = grouped("b", "r", finite), grouped("B", "R", finite | {"B": (1.0, 2.0, 12_288, 0)})
    other[0] = replace(other[0], flags=Flag.NAN)
    cmp = expect(one, other, "origin receiver receiver", ("kernel", "te.grouped_gemm", (0,)))
    assert "NaN" in why(cmp)


def test_a_difference_in_padding_that_nothing_reads_is_set_aside():
    cmp = expect(
        grouped("b", "rows", {}), grouped("B", "rows", {}), "origin absorbed match",
        verdict="match", ignored={"padding": 2},
    )  # fmt: skip
    assert cmp.first.is_empty()


def four_sources(ids, d_attention, d_mlp):
    ints = {"dtype": "int64", "stats": {ids: (9.0, 19.0, 0, 0)}}
    backward = {"phase": Phase.BACKWARD}
    return [
        Call("aten.topk.default", "indexer", ["scores"], [ids], **ints),
        Call("dsa.fwd", "core_attn", ["q", "k", ids], [f"o of {ids}"]),
        Call("aten.sort.default", "core_attn", [ids], ["sorted"], **ints, **backward),
        Call("dsa.bwd", "core_attn", ["q", "do", "sorted"], [d_attention], **backward),
        Call("grouped_mlp.bwd", "mlp", ["h", "dh"], [d_mlp], **backward),
    ]


def test_all_independent_sources_are_listed_in_the_order_of_execution():
    sources = ["aten.topk.default", "dsa.bwd", "grouped_mlp.bwd"]
    cmp = expect(
        four_sources("7 3 9", "dk", "dp"), four_sources("3 7 9", "DK", "DP"),
        "origin receiver absorbed origin origin",
        *(("kernel", op, (0,)) for op in sources),
    )  # fmt: skip
    assert [each.op for each in cmp.roots] == sources
    assert "order" in cmp.roots[0].why


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
    (row,) = check_replicas(clipped_on_some_ranks(range(num))).iter_rows(named=True)
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
    assert check_replicas(partial_gradients("gggg")).is_empty()


def test_partial_gradients_that_still_differ_once_reduced_are_drift():
    (row,) = check_replicas(partial_gradients("ghij")).iter_rows(named=True)
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
    (row,) = check_recompute(recomputed("H1")).iter_rows(named=True)
    assert (row["rank"], row["step"], row["op"]) == (1, 3, "gdn.chunk_fwd_h")
    assert (row["verdict"], row["class"]) == ("origin", "kernel")
    assert check_recompute(recomputed("h1")).is_empty()


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

"""What people who chase nondeterminism have reported, each as a small pair of runs with the right answer."""

from dataclasses import replace

import pytest

from detlab import compare
from detlab.schema import Evidence, Flag, Phase
from detlab.testing import Call, make_run
from tests.comparison.stories import (
    MM,
    collective,
    expect,
    mm,
    site,
    why,
)

COMBINE = "aten.index_add_.default"
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
        combine = Call(COMBINE, f"layers.{n}.moe.combine", ["z", "ids", "e" + name], [made], step=step)
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
        ("kernel", COMBINE, (0, 1, 2, 3)),
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

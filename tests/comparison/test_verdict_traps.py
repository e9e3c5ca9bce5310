"""Cases in which a naive reading of the site rule gives a wrong answer: each planted alone, by name."""

from dataclasses import replace

import pytest

from detlab import compare, load_run
from detlab.comparison.replicas import check_replicas
from detlab.comparison.within import check_recompute
from detlab.errors import NotComparable
from detlab.schema import Evidence, Flag, Phase
from detlab.testing import Call, make_run, save_run
from tests.comparison.stories import (
    ADD,
    ALL_GATHER,
    ALL_REDUCE,
    MM,
    MUL,
    NORM,
    REDUCE_SCATTER,
    collective,
    expect,
    held,
    item,
    mm,
    route,
    site,
    why,
)

ADAMW = "aten._fused_adamw_.default"
INDEX_ADD = "aten.index_add.default"


# A number that Python passes on


def clipped(norm, number, factor):
    """Clip a gradient by a factor that Python computes from its norm."""
    return [
        mm("dy", "g", phase=Phase.BACKWARD),
        Call(NORM, "", ["g"], [norm]),
        item(norm, number),
        Call(MUL, "", ["g"], [f"clipped by {factor}"], scalars=[factor]),
    ]


def test_a_clip_coefficient_that_differs_comes_from_the_norm_and_not_from_the_multiplication():
    cmp = expect(
        clipped("n", 2.0, 0.5),
        clipped("N", 2.1, 0.47),
        "match origin receiver receiver",
        ("kernel", NORM, (0,)),
    )
    ops = [op for _, op in route(cmp, 0, site("", MUL))]
    assert ops == [MUL, item("n", 2.0).op, NORM]


@pytest.mark.parametrize(
    ("op", "one", "other"),
    [
        (MUL, [0.5], [0.25]),
        (ADAMW, [1e-3, 0.9], [2e-3, 0.9]),
        ("aten.div.Tensor", [65536.0], [32768.0]),
        ("aten.slice.Tensor", [0, 3, 7], [0, 4, 8]),
        ("aten.split_with_sizes.default", [[3, 5]], [[4, 4]]),
    ],
)
def test_a_scalar_argument_that_differs_is_an_input_that_differs(op, one, other):
    def run(scalars, word):
        return [mm("x", "g"), Call(op, "", ["g"], [word], scalars=scalars)]

    cmp = expect(run(one, "y"), run(other, "Y"), "match receiver", ("upstream", op, (0,)))
    assert "a number passed from Python differs" in why(cmp)


def test_a_call_whose_scalars_were_not_recorded_is_open_and_no_kernel():
    def run(word):
        return [mm("x", "g"), Call(ADAMW, "", ["p", "g"], [word], flags=Flag.OPEN_INPUTS)]

    cmp = expect(run("q"), run("Q"), "match unknown", ("unknown", ADAMW, (0,)))
    assert "scalar" in why(cmp)


def test_a_branch_that_only_one_run_takes_leads_back_to_the_last_differing_host_read():
    def run(norm, number, *branch):
        return [
            mm("x", "g"),
            Call(NORM, "", ["g"], [norm]),
            item(norm, number),
            *branch,
            mm("z", "u", "head"),
        ]

    clip = Call(MUL, "clip", ["g"], ["clipped"], scalars=[0.5])
    cmp = expect(
        run("n", 0.9), run("N", 1.1, clip), "match origin receiver only_b match", ("kernel", NORM, (0,))
    )
    assert [op for _, op in route(cmp, 0, site("clip", MUL))] == [MUL, item("n", 0.9).op, NORM]


# An input that no recorded call made


def test_a_bucket_that_holds_a_differing_gradient_is_no_untraced_kernel():
    def run(gradient, bucket):
        places = {
            gradient: ("bucket", 16, 32),
            bucket: ("bucket", 0, 64),
            bucket + " again": ("bucket", 0, 64),
        }
        return [
            mm("dy", gradient, places=places),
            Call(NORM, "", [bucket], ["n of " + bucket], places=places),
            Call("aten.detach.default", "", [bucket], [bucket], places=places, flags=Flag.VIEW),
        ]

    expect(run("g", "b"), run("G", "B"), "origin receiver receiver", ("kernel", MM, (0,)))


def test_without_storages_a_bucket_after_a_divergence_is_no_untraced_kernel():
    def run(gradient, bucket):
        nowhere = {gradient: ("", 0, 0), bucket: ("", 0, 0), "n of " + bucket: ("", 0, 0)}
        return [
            mm("dy", gradient, places=nowhere),
            Call(NORM, "", [bucket], ["n of " + bucket], places=nowhere),
        ]

    expect(run("g", "b"), run("G", "B"), "origin receiver", ("kernel", MM, (0,)))


def test_a_tensor_made_of_a_number_that_was_read_is_no_untraced_kernel():
    def run(norm, number, made):
        return [
            Call(NORM, "", ["g"], [norm]),
            item(norm, number),
            Call("aten.lift_fresh.default", "", [made], [made], flags=Flag.VIEW),
            Call(MUL, "", ["x", made], ["x" + made]),
        ]

    expect(
        run("n", 2.0, "t"), run("N", 2.5, "T"), "origin receiver receiver receiver", ("kernel", NORM, (0,))
    )


def test_parameters_that_differ_when_a_late_window_opens_come_from_before_it():
    def run(weight):
        return [Call(MM, "lin", [weight, "x"], ["y" + weight], step=900)]

    cmp = expect(run("w"), run("W"), "receiver", ("upstream", MM, (0,)))
    assert "before the first recorded call" in why(cmp)
    assert "step 899" in why(cmp)


def test_token_ids_that_differ_are_data():
    def run(ids):
        return [Call("aten.embedding.default", "emb", ["w", ids], ["e" + ids], dtypes={ids: "int64"})]

    expect(run("i"), run("I"), "receiver", ("data", "aten.embedding.default", (0,)))


def test_an_input_that_was_equal_when_last_used_was_written_by_an_unrecorded_kernel():
    def run(now):
        places = dict.fromkeys(("c", now), ("cache", 0, 64))
        return [
            Call(MM, "lin", ["w", "c"], ["y"], places=places),
            mm("z", "u"),
            Call(MM, "out", ["v", now], ["o" + now], places=places),
        ]

    cmp = expect(run("c"), run("C"), "match match receiver", ("upstream", MM, (0,)))
    assert "unrecorded" in why(cmp)


# Random numbers


def masked(stats, seed, result):
    """Drop by a mask whose XOR digest is the same for every seed."""
    weak = {"evidence": Evidence.SCREEN, "stats": stats}
    drawn, reads = Flag.SEEDED | Flag.WEAK_OUTPUT, Flag.WEAK_INPUT
    return [
        Call(
            "aten.bernoulli_.float", "drop", [], ["mask"], scalars=[0.9], generator=seed, flags=drawn, **weak
        ),
        Call("aten.mul.Tensor", "drop", ["x", "mask"], [result], flags=reads, **weak),
        Call(MM, "lin", ["w", result], ["y" + result], **weak),
    ]


def test_a_mask_of_another_seed_with_the_same_digest_is_random_and_no_kernel():
    cmp = expect(
        masked({}, "s", "r"),
        masked({}, "S", "R"),
        "absorbed unknown receiver",
        ("rng", "aten.bernoulli_.float", (0,)),
    )
    assert cmp.roots[0].evidence == "screen"


def test_a_mask_with_the_same_digest_and_no_recorded_seed_is_random_at_its_first_visible_use():
    cmp = expect(
        masked({}, "", "r"), masked({}, "", "R"), "match unknown receiver", ("rng", "aten.mul.Tensor", (0,))
    )
    assert f"made by {site('drop', 'aten.bernoulli_.float')}" in why(cmp)
    assert "first visible" in why(cmp)


def test_another_sum_overrides_an_equal_digest():
    one, other = ({"mask": (1.0, total, 0, 0)} for total in (460.0, 463.0))
    expect(
        masked(one, "", "r"),
        masked(other, "", "R"),
        "origin receiver receiver",
        ("rng", "aten.bernoulli_.float", (0,)),
    )


DROPOUT = "aten.native_dropout.default"


def dropped(mask, generator=""):
    return [
        mm("x", "h"),
        Call(DROPOUT, "drop", ["h"], ["y" + mask, mask], generator=generator, flags=Flag.SEEDED),
        mm("y" + mask, "z" + mask, "next"),
    ]


def test_dropout_of_another_generator_state_is_random():
    expect(dropped("m", "s"), dropped("M", "S"), "match receiver receiver", ("rng", DROPOUT, (0,)))


def test_dropout_without_a_recorded_generator_is_random_and_no_kernel():
    expect(dropped("m"), dropped("M"), "match origin receiver", ("rng", DROPOUT, (0,)))


# Hidden state


FP8_GEMM = "te.fp8_gemm"


def test_a_scale_that_differs_makes_the_product_a_receiver_of_state():
    def run(scale):
        return [held("fc1.scale_inv", scale), Call(FP8_GEMM, "fc1", ["x", "w", scale], ["y" + scale])]

    expect(run("s"), run("S"), "origin receiver", ("state", "state.tensor", (0,)))


def test_a_product_whose_scale_was_not_recorded_is_open():
    def run(word):
        return [Call(FP8_GEMM, "fc1", ["x", "w"], [word], flags=Flag.OPEN_INPUTS)]

    expect(run("y"), run("Y"), "unknown", ("unknown", FP8_GEMM, (0,)))


def test_a_gradient_buffer_spoiled_by_one_microbatch_makes_the_next_a_receiver():
    """The tied embedding: the second microbatch's fused product accumulates into what the first left."""

    def run(after):
        scatter = Call(
            "aten.index_put_.default", "emb", ["main0", "ids", "dy"], [after], phase=Phase.BACKWARD
        )
        wgrad = Call(
            "te.wgrad_gemm_accum", "emb", [after, "x", "dz"], ["next " + after], phase=Phase.BACKWARD
        )
        return [scatter, replace(wgrad, microbatch=1)]

    expect(run("main1"), run("MAIN1"), "origin receiver", ("kernel", "aten.index_put_.default", (0,)))


@pytest.mark.parametrize(
    ("scales", "flags", "verdict", "finding_class"),
    [((["s0"], ["s1"]), 0, "receiver", None), (([], []), Flag.OPEN_INPUTS, "unknown", "unknown")],
)
def test_a_recomputation_after_the_scale_has_moved_is_no_kernel(scales, flags, verdict, finding_class):
    """The forward updates what the next call of the same product is scaled by, recorded or not."""
    calls = [
        Call(FP8_GEMM, "fc1", ["x", "w", *scale], [word], phase=phase, flags=flags)
        for scale, word, phase in zip(scales, "yY", (Phase.FORWARD, Phase.RECOMPUTE), strict=True)
    ]
    (row,) = check_recompute(make_run({0: calls})).iter_rows(named=True)
    assert (row["verdict"], row["class"]) == (verdict, finding_class)


# The order of calls that share something


def accumulated(first, second, scopes=("", "")):
    """Add two gradients to one buffer, in an order."""
    between, after = f"acc {first}", f"acc {first} {second}"
    places = dict.fromkeys(("acc", between, after), ("acc", 0, 64))
    return [
        Call(ADD, scopes[0], ["acc", first], [between], places=places),
        Call(ADD, scopes[1], [between, second], [after], places=places),
        Call(NORM, "", [after], ["n of " + after], places=places),
    ]


@pytest.mark.parametrize("scopes", [("", ""), ("layers.0", "layers.1")])
def test_two_gradients_added_in_the_other_order_are_the_cause_and_no_marker(scopes):
    one, other = accumulated("g1", "g2", scopes), accumulated("g2", "g1", scopes[::-1])
    expect(one, other, "origin receiver receiver", ("structure", ADD, (0,)), reordered=1)


def test_two_draws_from_one_generator_in_the_other_order_are_the_cause():
    def run(*scopes):
        return [
            Call("aten.rand.default", scope, [], [f"m{n}"], generator=f"s{n}", flags=Flag.SEEDED)
            for n, scope in enumerate(scopes)
        ]

    expect(
        run("a", "b"), run("b", "a"), "origin receiver", ("structure", "aten.rand.default", (0,)), reordered=1
    )


# Lists


def updated(one, two):
    """Update two parameters by one list op, and use each."""
    gradients = [mm("dy1", one, "l1", phase=Phase.BACKWARD), mm("dy2", two, "l2", phase=Phase.BACKWARD)]
    news = ["new of " + one, "new of " + two]
    step = Call(ADAMW, "opt", ["p1", "p2", one, two], news, phase=Phase.OPTIMIZER, attributes={"lanes": "2"})
    return [*gradients, step, *(mm(new, "y" + new, f"use{n}") for n, new in enumerate(news))]


def test_a_differing_lane_reaches_only_what_reads_that_lane():
    cmp = expect(
        updated("g1", "g2"), updated("G1", "g2"), "origin match receiver receiver match", ("kernel", MM, (0,))
    )
    assert route(cmp, 0, site("use0", MM)) == [(0, MM), (0, ADAMW), (0, MM)]


def test_the_path_of_one_lane_does_not_lead_through_another():
    cmp = expect(
        updated("g1", "g2"), updated("G1", "G2"), "origin origin receiver receiver receiver",
        ("kernel", MM, (0,)),
    )  # fmt: skip
    scopes = cmp.path(rank=0, site=site("use1", MM))["scope"].to_list()
    assert scopes == ["use1", "opt", "l2"]


def test_an_origin_lane_beside_a_receiving_lane_is_found():
    def run(one, other_new):
        calls = updated(one, "g2")
        calls[2] = replace(calls[2], outputs=["new of " + one, other_new])
        return [*calls[:4], mm(other_new, "y" + other_new, "use1")]

    cmp = expect(
        run("g1", "new"), run("G1", "NEW"), "origin match origin receiver receiver",
        ("kernel", MM, (0,)), ("kernel", ADAMW, (0,)),
    )  # fmt: skip
    assert cmp.path(rank=0, site=site("use0", MM))["scope"].to_list() == ["use0", "opt", "l1"]
    assert cmp.path(rank=0, site=site("use1", MM))["scope"].to_list() == ["use1", "opt"]


# What a difference hides


def test_calls_below_the_first_receiver_are_counted_as_untested():
    def run(word):
        below = [mm(f"{word}{n}", f"{word}{n + 1}", f"l{n + 1}") for n in range(5)]
        return [mm("x", f"{word}0", "l0"), *below, mm("q", "r")]

    cmp = expect(
        run("y"), run("Y"), "origin receiver receiver receiver receiver receiver match", ("kernel", MM, (0,))
    )
    assert cmp.roots[0].untested_after == 5


# Communication


def gathered(gradients, pieces):
    """Each rank makes a piece and gathers all of them; ``pieces`` are what each rank receives."""
    return make_run(
        {
            rank: [mm("x", given), collective(ALL_GATHER, given, pieces[rank])]
            for rank, given in enumerate(gradients)
        },
        groups={"dp": range(len(gradients))},
    )


def test_a_gathered_piece_that_its_giver_did_not_send_is_an_origin_beside_one_that_it_did():
    gave, sent = list("abcdefgh"), list("abcDefgh")
    spoiled = list("abcDefgH")
    sites = ["match receiver"] * 8
    sites[3], sites[0] = "origin receiver", "match origin"
    expect(
        gathered(gave, [gave] * 8), gathered(sent, [spoiled] + [sent] * 7), sites,
        ("kernel", MM, (3,)), ("collective", ALL_GATHER, (0,)),
    )  # fmt: skip


def test_a_giver_whose_own_piece_differs_still_receives_another_piece_that_nobody_sent():
    gave, sent = list("abcd"), list("aBcd")
    sites = ["match receiver", "origin origin", "match receiver", "match receiver"]
    expect(
        gathered(gave, [gave] * 4), gathered(sent, [sent, list("aBcD"), sent, sent]), sites,
        ("kernel", MM, (1,)), ("collective", ALL_GATHER, (1,)),
    )  # fmt: skip


def scattered(slices, shards, op=REDUCE_SCATTER):
    """Each rank gives a slice to every rank and receives its own shard of the sum."""
    return make_run(
        {
            rank: [Call(MM, "lin", ["w", "x"], given), collective(op, given, [shards[rank]])]
            for rank, given in enumerate(slices)
        },
        groups={"dp": range(len(slices))},
    )


SLICES = [[f"{giver}to{taker}" for taker in range(3)] for giver in range(3)]


def slices_with(giver, taker):
    changed = [list(each) for each in SLICES]
    changed[giver][taker] += "!"
    return changed


@pytest.mark.parametrize("op", [REDUCE_SCATTER, "c10d.alltoall_.default"])
def test_a_slice_reaches_only_the_rank_that_it_is_for(op):
    sites = ["match match", "origin match", "match receiver"]
    expect(scattered(SLICES, "uvw", op), scattered(slices_with(1, 2), "uvW", op), sites, ("kernel", MM, (1,)))


def whole(inputs, outputs, op="c10d._reduce_scatter_base_.default"):
    """Each rank gives one tensor that holds the slices of all, and receives its shard."""
    return make_run(
        {rank: [mm("x", given), collective(op, given, outputs[rank])] for rank, given in enumerate(inputs)},
        groups={"dp": range(len(inputs))},
    )


@pytest.mark.parametrize("op", ["c10d._reduce_scatter_base_.default", "c10d.alltoall_base_.default"])
def test_a_peer_that_differs_proves_nothing_where_its_slice_is_not_known(op):
    sites = ["match unknown", "origin absorbed", "match match"]
    expect(
        whole("abc", "uvw", op), whole("aBc", "Uvw", op), sites, ("kernel", MM, (1,)), ("unknown", op, (0,))
    )


BROADCAST = "c10d.broadcast_.default"


def sent_out(buffers, received):
    """Rank 0 broadcasts its buffer over those of the others."""
    return make_run(
        {
            rank: [collective(BROADCAST, given, received[rank], attributes={"root": "0"})]
            for rank, given in enumerate(buffers)
        },
        groups={"dp": range(len(buffers))},
    )


def test_what_stands_in_a_receivers_buffer_before_a_broadcast_is_no_input():
    expect(sent_out("abc", "aaa"), sent_out("aBc", "aaa"), ["match"] * 3, verdict="match")


def test_a_broadcast_that_arrives_changed_on_one_rank_is_that_ranks():
    expect(
        sent_out("abc", "aaa"),
        sent_out("aBc", "aXa"),
        ["match", "origin", "match"],
        ("rank", BROADCAST, (1,)),
    )


def test_what_stands_in_the_other_buffers_after_a_reduction_to_one_root_is_no_output():
    def run(left_over):
        outputs = ["sum", left_over, "c"]
        return make_run(
            {
                rank: [collective("c10d.reduce_.default", given, outputs[rank], attributes={"root": "0"})]
                for rank, given in enumerate("abc")
            },
            groups={"dp": range(3)},
        )

    expect(run("b"), run("B"), ["match"] * 3, verdict="match")


def test_one_shard_that_flips_cannot_tell_its_rank_from_the_algorithm():
    op = "c10d._reduce_scatter_base_.default"
    cmp = expect(
        whole("abc", "uvw"), whole("abc", "uVw"), ["match match", "match origin", "match match"],
        ("unknown", op, (1,)),
    )  # fmt: skip
    assert "cannot be told apart" in why(cmp)


def test_a_sum_of_two_that_differs_on_both_has_no_order_to_blame():
    cmp = expect(
        whole("ab", "ss", ALL_REDUCE), whole("ab", "SS", ALL_REDUCE), ["match origin"] * 2,
        ("unknown", ALL_REDUCE, (0, 1)),
    )  # fmt: skip
    assert "a sum of two has no order" in why(cmp)


def hashed_too_early(gradient, total):
    """Two ranks sum a gradient in place; its hash is taken before the sum is there."""
    ranks = {}
    for rank, own in enumerate([gradient, "h"]):
        places = dict.fromkeys((own, total), (f"bucket {rank}", 0, 64))
        early = collective(ALL_REDUCE, own, own, flags=Flag.NOT_WAITED_FOR, places=places)
        update = Call(ADAMW, "", [total], ["new " + total], phase=Phase.OPTIMIZER, places=places)
        ranks[rank] = [Call("aten.index_put.default", "emb", ["dy"], [own], places=places), early, update]
    return make_run(ranks, groups={"dp": [0, 1]})


def test_a_sum_hashed_before_it_finished_still_stands_in_the_path():
    put = "aten.index_put.default"
    cmp = expect(
        hashed_too_early("g", "s"), hashed_too_early("G", "S"),
        ["origin receiver receiver", "match match receiver"],
        ("kernel", put, (0,)), ignored={"not_waited_for": 1},
    )  # fmt: skip
    assert cmp.roots[0].receivers == (1,)
    path = cmp.path(rank=1, site=site("", ADAMW, phase="optimizer"))
    assert path.select("rank", "op", "set_aside").rows() == [
        (1, ADAMW, False), (1, ALL_REDUCE, True), (0, ALL_REDUCE, True), (0, put, False),
    ]  # fmt: skip


def reduced(gradients, sums, groups, labels, **more):
    """Each rank makes a gradient and reduces it, under its own label of the communicator."""
    return make_run(
        {
            rank: [mm("x", given), collective(ALL_REDUCE, given, sums[rank], group=labels[rank], **more)]
            for rank, given in enumerate(gradients)
        },
        groups=groups,
    )


def test_one_label_of_many_groups_joins_only_the_members_of_each():
    groups = {rank: {"dp": [rank - rank % 2, rank - rank % 2 + 1]} for rank in range(4)}
    expect(
        reduced("abcd", "ssuu", groups, ["dp"] * 4), reduced("abcD", "ssUU", groups, ["dp"] * 4),
        ["match match", "match match", "match receiver", "origin receiver"], ("kernel", MM, (3,)),
    )  # fmt: skip


def test_a_group_that_each_rank_numbers_for_itself_is_joined_by_its_members():
    groups = {0: {"g0": [0, 1, 2], "g1": [0]}, 1: {"g0": [1], "g1": [0, 1, 2]}, 2: {"g0": [0, 1, 2]}}
    labels = ["g0", "g1", "g0"]
    expect(
        reduced("abc", "sss", groups, labels), reduced("aBc", "SSS", groups, labels),
        ["match receiver", "origin receiver", "match receiver"], ("kernel", MM, (1,)),
    )  # fmt: skip


def test_members_that_call_from_other_modules_are_joined_by_their_order():
    def run(second, total):
        here, there = (
            [
                collective(ALL_REDUCE, "g", "s", scope=one),
                *more,
                collective(ALL_REDUCE, given, total, scope=other),
            ]
            for one, other, given, more in (("l0", "l1", "h", []), ("", "", second, [mm("x", second)]))
        )
        return make_run({0: here, 1: there}, groups={"dp": [0, 1]})

    expect(run("k", "t"), run("K", "T"), ["match receiver", "match origin receiver"], ("kernel", MM, (1,)))


def test_seven_members_whose_segments_are_equal_are_present_and_not_missing(tmp_path):
    groups, labels = {"dp": range(8)}, ["dp"] * 8
    sites = ["match match"] * 8
    sites[6] = "match origin"
    runs = [reduced("abcdefgh", sums, groups, labels) for sums in ("ssssssss", "ssssssXs")]
    saved = [load_run(save_run(run, tmp_path / run_sums)) for run, run_sums in zip(runs, "ab", strict=True)]
    expect(*saved, sites, ("rank", ALL_REDUCE, (6,)))


# What cannot have been the cause


def on_ranks(*ranks):
    return make_run(dict(enumerate(ranks)))


def test_an_addition_that_flips_a_bit_on_one_rank_is_unknown_and_explained_by_rank():
    def run(word):
        return [mm("x", "h"), Call("aten.add.Tensor", "", ["h", "r"], [word])]

    cmp = expect(
        on_ranks(run("y"), run("y"), run("y")), on_ranks(run("y"), run("y"), run("Y")),
        ["match match", "match match", "match unknown"], ("unknown", "aten.add.Tensor", (2,)),
    )  # fmt: skip
    explained = why(cmp)
    assert "hashed" in explained
    assert "hardware" in explained


def test_a_number_that_is_read_differently_from_an_equal_tensor_is_unknown_and_no_kernel():
    runs = [[mm("x", "loss"), item("loss", number)] for number in (2.0, 2.5)]
    expect(*runs, "match unknown", ("unknown", item("loss", 2.0).op, (0,)))


def used_after_gather(word, *waited):
    places = dict.fromkeys(("p0", "p"), ("param", 0, 64))
    gather = collective(
        "c10d._allgather_base_.default", "shard", "p", phase=Phase.FORWARD, microbatch=0,
        flags=Flag.NOT_WAITED_FOR, places=places,
    )  # fmt: skip
    return make_run(
        {0: [gather, *waited, Call(MM, "lin", ["p", "x"], [word], places=places)]}, groups={"dp": [0]}
    )


def test_a_product_with_a_parameter_whose_gather_was_not_waited_for_is_not_guilty():
    cmp = expect(used_after_gather("y"), used_after_gather("Y"), "match unknown", ("unknown", MM, (0,)))
    assert "nobody had waited for" in why(cmp)


def test_a_product_with_a_parameter_whose_gather_was_waited_for_is_an_origin():
    places = {"p": ("param", 0, 64)}
    wait = Call("_c10d_functional.wait_tensor.default", "", ["p"], ["p"], places=places)
    expect(
        used_after_gather("y", wait), used_after_gather("Y", wait), "match match origin", ("kernel", MM, (0,))
    )


# Memory that nobody wrote


def test_fresh_memory_that_is_overwritten_whole_is_an_artefact():
    def run(junk):
        places = dict.fromkeys((junk, "zeros"), ("fresh", 0, 64))
        return [
            Call("aten.empty.memory_format", "", [], [junk], flags=Flag.FRESH_MEMORY, places=places),
            Call("aten.zero_.default", "", [], ["zeros"], places=places),
            mm("zeros", "y"),
        ]

    expect(run("j"), run("J"), "origin match match", verdict="match", ignored={"fresh_memory": 1})


def test_fresh_memory_that_a_kernel_reads_is_a_cause():
    def run(junk):
        places = {junk: ("fresh", 0, 64)}
        fresh = Call("aten.empty.memory_format", "", [], [None], flags=Flag.FRESH_MEMORY, places=places)
        read = Call(MM, "lin", ["w", junk], ["y" + junk], flags=Flag.FRESH_MEMORY, places=places)
        return [fresh, read, mm("y" + junk, "z" + junk, "next")]

    cmp = expect(
        run("j"), run("J"), "match receiver receiver", ("state", MM, (0,)), ignored={"fresh_memory": 1}
    )
    assert "memory that no recorded call has written" in why(cmp)


def test_fresh_memory_that_a_foreign_trace_hashed_is_a_cause_where_a_kernel_reads_it():
    """Nobody flags the reader there, so that the memory itself has to be followed."""

    def run(junk):
        places = {junk: ("fresh", 0, 64)}
        fresh = Call("aten.empty.memory_format", "", [], [junk], flags=Flag.FRESH_MEMORY, places=places)
        return [fresh, Call(MM, "lin", ["w", junk], ["y" + junk], places=places)]

    expect(run("j"), run("J"), "origin receiver", ("state", MM, (0,)), ignored={"fresh_memory": 1})


def test_a_product_into_given_memory_is_an_origin_whatever_stood_there():
    """Write-only arguments are no inputs: a trace lists what a call reads."""

    def run(junk, word):
        places = dict.fromkeys((junk, word), ("out", 0, 64))
        fresh = Call("aten.empty.memory_format", "", [], [None], flags=Flag.FRESH_MEMORY, places=places)
        return [fresh, Call("aten.mm.out", "lin", ["a", "b"], [word], places=places)]

    expect(
        run("j", "y"), run("J", "Y"), "match origin",
        ("kernel", "aten.mm.out", (0,)), ignored={"fresh_memory": 1},
    )  # fmt: skip


# Calls that take no tensors


def test_a_received_message_is_no_data():
    """Its sender is not recorded: the difference came from there or arose on the way."""

    def run(word):
        recv = collective(
            "c10d.recv_.default", None, word, "pp", phase=Phase.FORWARD,
            attributes={"src": "0", "dst": "1", "tag": "0"},
        )  # fmt: skip
        return make_run({1: [recv]}, groups={"pp": [0, 1]}, world_size=2)

    expect(run("m"), run("M"), ["unknown"], ("unknown", "c10d.recv_.default", (1,)))


def test_a_tensor_made_of_another_loss_scale_is_a_host_value_and_no_data():
    def run(scale):
        made = f"t{scale}"
        return [
            mm("x", "y"),
            Call("aten.scalar_tensor.default", "", [], [made], scalars=[scale]),
            Call("aten.mul.Tensor", "", ["y", made], ["z" + made]),
        ]

    cmp = expect(
        run(65536.0),
        run(32768.0),
        "match receiver receiver",
        ("upstream", "aten.scalar_tensor.default", (0,)),
    )
    assert "a number passed from Python differs" in why(cmp)


def test_a_tensor_made_of_a_number_that_was_not_recorded_is_a_host_value_and_no_data():
    def run(word):
        return [Call("aten.scalar_tensor.default", "", [], [word], flags=Flag.OPEN_INPUTS)]

    cmp = expect(run("t"), run("T"), "unknown", ("unknown", "aten.scalar_tensor.default", (0,)))
    assert "scalar" in why(cmp)


def test_a_range_of_equal_arguments_that_differs_is_a_contradiction_and_no_data():
    def run(word):
        return [Call("aten.arange.default", "", [], [word], scalars=[8], dtype="int64")]

    expect(run("r"), run("R"), "unknown", ("unknown", "aten.arange.default", (0,)))


# Shapes and strides


def test_equal_inputs_and_another_output_shape_are_an_origin():
    def run(shape, after):
        found = Call("aten.nonzero.default", "router", ["m"], ["ids"], shapes={"ids": shape}, dtype="int64")
        return [mm("x", "h"), found, Call(MM, "lin", ["w", "ids"], [after], shapes={"ids": shape})]

    expect(
        run((3, 1), "y"), run((4, 1), "Y"), "match origin receiver", ("kernel", "aten.nonzero.default", (0,))
    )


def test_equal_inputs_in_another_layout_are_an_origin_by_selection():
    def run(stride, word):
        return [mm("x", "h"), Call(MM, "next", ["w", "h"], [word], shape=(2, 3), strides={"h": stride})]

    cmp = expect(run((3, 1), "y"), run((1, 2), "Y"), "match origin", ("kernel", MM, (0,)))
    assert "stride" in why(cmp)


def experts(count, *views):
    """Route tokens to four experts; the number of tokens that each gets follows from the router."""
    tokens = f"{count} tokens"
    shapes = {tokens: (count, 4), **{f"{tokens} of {n}": (count, 4) for n in range(4)}}
    routed = Call("moe.dispatch", "router", ["ids " + str(count)], [tokens], shapes=shapes)
    return [
        Call("aten.topk.default", "router", ["logits"], ["ids " + str(count)], dtype="int64"),
        routed,
        *views,
        *(Call(MM, f"experts.{n}", ["w", tokens], [f"{tokens} of {n}"], shapes=shapes) for n in range(4)),
    ]


@pytest.mark.parametrize("views", [0, 1])
def test_other_token_counts_change_calls_and_add_none(views):
    view = [Call("aten.view.default", "router", ["v"], ["v"], flags=Flag.VIEW)] * views
    expect(
        experts(5), experts(7, *view), "origin changed " + "only_b " * views + "changed " * 4,
        ("kernel", "aten.topk.default", (0,)), ignored={"structure_note": 1} if views else None,
    )  # fmt: skip


# Calls that look alike


def drops(*masks):
    return [Call(DROPOUT, "drop", ["x"], [mask], flags=Flag.SEEDED) for mask in masks]


def test_of_two_equal_calls_the_one_that_is_left_keeps_its_own_partner():
    after = mm("m2", "y")
    expect(
        [*drops("m1", "m2"), after], [*drops("m2"), after], "only_a match match", ("structure", DROPOUT, (0,))
    )


def test_where_another_pairing_would_match_a_difference_is_unknown():
    extra = mm("q", "r", "other")
    expect(
        drops("m1", "m2"), [*drops("m2", "m2"), extra], "unknown match only_b",
        ("unknown", DROPOUT, (0,)), ("structure", MM, (0,)),
    )  # fmt: skip


# No evidence is no equality


def test_a_barrier_is_no_identical_call():
    barrier = collective("c10d.barrier.default", None, None)
    runs = [[barrier, barrier, mm("x", word)] for word in "yY"]
    cmp = expect(*runs, "match match origin", ("kernel", MM, (0,)))
    assert (cmp.num_without_evidence, cmp.roots[0].matched_before) == (2, 0)


def test_runs_without_any_output_evidence_are_refused():
    run = make_run({0: [Call(MM, "lin", ["x"], [None]) for _ in range(9)]})
    with pytest.raises(NotComparable):
        compare(run, run)


def test_runs_whose_digests_are_all_of_different_kinds_are_refused():
    one, other = (make_run({0: [mm("x", "y", algorithm=name)]}) for name in ("xxh3-64", "crc32"))
    with pytest.raises(NotComparable):
        compare(one, other)


@pytest.mark.parametrize("level", [Evidence.PARTIAL, Evidence.SCREEN])
def test_inputs_that_look_equal_by_a_lesser_digest_are_not_called_equal_bits(level):
    runs = [[Call(INDEX_ADD, "moe", ["h"], [word], evidence=level)] for word in "yY"]
    cmp = expect(*runs, "origin", ("kernel", INDEX_ADD, (0,)))
    assert cmp.roots[0].evidence == level.name.lower()
    assert "equal bits" not in why(cmp)


@pytest.mark.parametrize("level", [Evidence.PARTIAL, Evidence.SCREEN])
def test_an_addition_with_inputs_of_a_lesser_digest_points_to_what_the_digest_missed(level):
    runs = [[Call("aten.add.Tensor", "", ["h", "r"], [word], evidence=level)] for word in "yY"]
    cmp = expect(*runs, "unknown", ("unknown", "aten.add.Tensor", (0,)))
    assert "missed a difference" in why(cmp)


@pytest.mark.parametrize("level", [Evidence.PRINTED, Evidence.STRUCTURE])
def test_rounded_or_missing_values_never_make_an_origin(level):
    runs = [[Call(INDEX_ADD, "moe", ["h"], [word], evidence=level)] for word in "yY"]
    expect(*runs, "unknown", ("unknown", INDEX_ADD, (0,)))


def test_an_origin_says_when_an_unknown_stands_before_it():
    runs = [[Call(INDEX_ADD, "open", [None], [w]), Call(INDEX_ADD, "closed", ["x"], [w + "1"])] for w in "yY"]
    cmp = expect(*runs, "unknown origin", ("unknown", INDEX_ADD, (0,)), ("kernel", INDEX_ADD, (0,)))
    assert "unknown" in next(each.why for each in cmp.roots if each.finding_class == "kernel")


# Numbers that are no numbers, and digests that say little


def with_stats(word, numbers, flags=0, **more):
    """A product, and a call whose output has statistics: absmax, sum, number of NaN and of Inf."""
    call = Call("aten.index_add.default", "moe", ["h"], [word], stats={word: numbers}, flags=flags, **more)
    return [mm("x", "h"), call]


def test_a_mask_of_minus_infinity_is_no_birth_of_a_nan():
    inf = float("inf")
    one = with_stats("y", (inf, -inf, 0, 6), Flag.INF)
    expect(one, one, "match match", verdict="match")
    cmp = expect(
        one, with_stats("Y", (inf, -inf, 0, 7), Flag.INF), "match origin", ("kernel", INDEX_ADD, (0,))
    )
    assert "nan" not in why(cmp).lower()


def test_norms_that_differ_prove_nothing():
    """A norm is a float reduction itself, and may differ for equal tensors."""
    runs = [[mm("x", word, evidence=Evidence.STATISTIC)] for word in "yY"]
    cmp = expect(*runs, "unknown", ("unknown", MM, (0,)))
    assert cmp.roots[0].evidence == "statistic"


def test_a_difference_in_the_payload_of_nans_alone_is_labelled():
    runs = [with_stats(word, (0.0, 0.0, 4, 0), Flag.NAN) for word in "yY"]
    cmp = expect(*runs, "match origin", ("kernel", INDEX_ADD, (0,)))
    assert "payload" in why(cmp)


def test_a_difference_in_the_sign_of_zeros_alone_is_labelled():
    runs = [with_stats(word, (0.0, 0.0, 0, 0)) for word in "yY"]
    cmp = expect(*runs, "match origin", ("kernel", INDEX_ADD, (0,)))
    assert "sign" in why(cmp)


def test_of_two_replicas_that_disagree_neither_is_called_wrong():
    ranks = {
        rank: [held("norm.weight", "w", 0), held("norm.weight", word, 1)] for rank, word in enumerate("vV")
    }
    (row,) = check_replicas(make_run(ranks)).iter_rows(named=True)
    assert (row["axis"], row["ranks"], row["outliers"]) == ("dp", [0, 1], [])
    assert "no majority" in row["why"]

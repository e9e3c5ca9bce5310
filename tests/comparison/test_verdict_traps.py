"""Cases in which a naive reading of the site rule gives a wrong answer: each planted alone, by name."""

from dataclasses import replace

import pytest

from detlab import compare
from detlab.comparison.within import find_recompute_differences
from detlab.errors import NotComparable
from detlab.schema import Evidence, Flag, Phase
from detlab.testing import Call, make_run, save_run
from tests.comparison.stories import (
    ADAMW,
    ADD,
    DROPOUT,
    INDEX_ADD,
    MM,
    MUL,
    NORM,
    expect,
    held,
    item,
    mm,
    route,
    site,
    why,
)

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


def written_between(now):
    """A cache that is used, and used again when something unrecorded may have written it."""
    places = dict.fromkeys(("c", now), ("cache", 0, 64))
    return [
        Call(MM, "lin", ["w", "c"], ["y"], places=places),
        mm("z", "u"),
        Call(MM, "out", ["v", now], ["o" + now], places=places),
    ]


def test_an_input_that_was_equal_when_last_used_was_written_by_an_unrecorded_kernel():
    cmp = expect(written_between("c"), written_between("C"), "match match receiver", ("upstream", MM, (0,)))
    assert "unrecorded" in why(cmp)


def test_the_last_use_of_an_input_is_found_in_any_batch_of_the_step(tmp_path, monkeypatch):
    monkeypatch.setattr("detlab.store.writer.MAX_BATCH_ROWS", 1)
    runs = [save_run(make_run({0: written_between(now)}), tmp_path / f"run_{ord(now)}") for now in "cC"]
    assert "unrecorded" in why(compare(*runs))


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


@pytest.mark.parametrize("step", [1, 2])
def test_a_snapshot_of_what_an_earlier_call_gave_is_a_receiver(step):
    def run(word):
        return [Call(INDEX_ADD, "moe", ["x"], [word]), held("moe.table", word, step), mm("a", "b", step=2)]

    expect(run("t"), run("T"), "origin receiver match", ("kernel", INDEX_ADD, (0,)))


def test_a_snapshot_of_bytes_that_an_earlier_call_wrote_is_a_receiver():
    def run(row, table):
        places = {row: ("table", 16, 32), table: ("table", 0, 64)}
        return [
            Call(INDEX_ADD, "moe", ["x"], [row], places=places),
            replace(held("moe.table", table), places=places),
        ]

    expect(run("r", "t"), run("R", "T"), "origin receiver", ("kernel", INDEX_ADD, (0,)))


def test_a_state_that_no_recorded_call_gave_is_an_origin_once_however_often_it_is_shown():
    def run(made, word):
        snapshots = [held("scale", word, step) for step in (1, 2, 3)]
        return [Call(INDEX_ADD, "moe", ["x"], [made]), *snapshots]

    expect(
        run("m", "s"), run("M", "S"), "origin origin receiver receiver",
        ("kernel", INDEX_ADD, (0,)), ("state", "state.tensor", (0,)),
    )  # fmt: skip


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
    (row,) = find_recompute_differences(make_run({0: calls})).iter_rows(named=True)
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


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (1, 2, 3, 0)])
def test_gradients_added_in_a_rotated_order_are_the_cause(order):
    def run(numbers):
        sums = ["acc", *(f"acc {numbers[: n + 1]}" for n in range(len(numbers)))]
        places = dict.fromkeys(sums, ("acc", 0, 64))
        added = [
            Call(ADD, "", [sums[n], f"g{number}"], [sums[n + 1]], places=places)
            for n, number in enumerate(numbers)
        ]
        return [*added, Call(NORM, "", [sums[-1]], ["n of " + sums[-1]], places=places)]

    sites = " ".join(["origin", *["receiver"] * len(order)])
    expect(run(tuple(sorted(order))), run(order), sites, ("structure", ADD, (0,)), reordered=1)


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


# Rows that may count for nothing


def padded(buffer, result, seen=48):
    """A grouped product whose last rows are padding: a view of the first rows, then a call on all of them."""
    places = {buffer: ("buf", 0, 64), "rows": ("buf", 0, seen)}
    return [
        Call("te.grouped_gemm", "experts", ["w", "x"], [buffer], places=places),
        Call("aten.slice.Tensor", "", [buffer], ["rows"], scalars=[0, 0, 3], flags=Flag.VIEW, places=places),
        Call(MM, "next", ["v", buffer], [result], places=places),
        mm(result, "z" + result, "after"),
    ]


def test_a_call_of_whose_input_only_padding_rows_differ_is_unknown():
    expect(
        padded("b", "y"), padded("B", "Y"), "origin absorbed unknown receiver",
        ("kernel", "te.grouped_gemm", (0,)),
    )  # fmt: skip


def test_a_small_view_that_misses_the_difference_does_not_make_the_rest_padding():
    expect(
        padded("b", "y", seen=16), padded("B", "Y", seen=16), "origin absorbed receiver receiver",
        ("kernel", "te.grouped_gemm", (0,)),
    )  # fmt: skip


def test_padding_that_a_call_of_one_run_reads_is_not_set_aside():
    reads = [Call(MM, "extra", ["v", "B"], ["q"])]
    expect(
        padded("b", "y")[:2], padded("B", "Y")[:2] + reads, "origin absorbed only_b",
        ("kernel", "te.grouped_gemm", (0,)), ("structure", MM, (0,)),
    )  # fmt: skip


def test_a_view_of_the_rest_is_a_receiver_and_says_that_the_rest_is_read():
    def run(buffer, rest, result):
        view = Call(
            "aten.slice.Tensor", "rest", [buffer], [rest], scalars=[0, 3, 4], flags=Flag.VIEW,
            places={buffer: ("buf", 0, 64), rest: ("buf", 48, 64)},
        )  # fmt: skip
        return [*padded(buffer, result)[:2], view, mm(rest, f"m {rest}", "tail"), padded(buffer, result)[2]]

    expect(
        run("b", "r", "y"), run("B", "R", "Y"), "origin absorbed receiver receiver receiver",
        ("kernel", "te.grouped_gemm", (0,)),
    )  # fmt: skip


def test_a_difference_that_leads_back_to_what_is_set_aside_still_has_a_finding():
    def run(word):
        return [Call(MM, "copied", ["x"], [word], flags=Flag.COPY_IN_FLIGHT), mm(word, "y" + word, "after")]

    cmp = expect(run("c"), run("C"), "origin receiver", ("observer", MM, (0,)), ignored={"copy_in_flight": 1})
    assert cmp.roots[0].scopes == ("after",)


# Another count of steps


def from_checkpoint(iteration, output, start=1):
    """One rank of a run that a checkpoint of some iteration was loaded into."""
    return make_run(
        {0: [replace(mm("x", output), step=start)]}, recipes={0: {"arguments": {"iteration": iteration}}}
    )


def test_a_resumed_run_that_counts_from_one_is_refused_and_asked_for_its_offset():
    for pair in ((0, 100), (100, 0), (50, 100)):
        with pytest.raises(NotComparable, match=r"resumed after iteration (50|100) and counts") as refused:
            compare(*(from_checkpoint(iteration, "y") for iteration in pair))
        assert "start_step=" in refused.value.hint


def test_two_runs_resumed_from_one_iteration_and_one_with_its_global_steps_are_compared():
    assert compare(from_checkpoint(100, "y"), from_checkpoint(100, "y")).verdict == "match"
    assert compare(from_checkpoint(0, "y", 101), from_checkpoint(100, "y", 101)).verdict == "match"


def test_a_run_from_the_start_is_not_asked_for_an_offset():
    fresh = make_run({0: [replace(mm("x", "y"), step=step) for step in (0, 1, 2)]})
    assert compare(fresh, from_checkpoint(1, "y", start=2)).steps == (2,)


# What a difference hides


def test_calls_below_the_first_receiver_are_counted_as_untested():
    def run(word):
        below = [mm(f"{word}{n}", f"{word}{n + 1}", f"l{n + 1}") for n in range(5)]
        return [mm("x", f"{word}0", "l0"), *below, mm("q", "r")]

    cmp = expect(
        run("y"), run("Y"), "origin receiver receiver receiver receiver receiver match", ("kernel", MM, (0,))
    )
    assert cmp.roots[0].untested_after == 5


def test_a_call_that_a_difference_enters_is_not_counted_among_those_after_it():
    runs = [[Call(INDEX_ADD, "moe", [word], [word + "1"])] for word in "xX"]
    assert expect(*runs, "receiver", ("upstream", INDEX_ADD, (0,))).roots[0].untested_after == 0


def test_a_flag_that_one_run_alone_has_gives_the_same_reason_both_ways_round():
    """Memory is fresh in one run and drawn from a generator: the order of the runs does not choose."""
    fresh = Call("aten.add.Tensor", "lin", [], ["y"], generator="s", flags=Flag.FRESH_MEMORY)
    plain = Call("aten.add.Tensor", "lin", [], ["y"])
    there, back = (
        compare(*(make_run({0: [call]}) for call in pair)) for pair in ((fresh, plain), (plain, fresh))
    )
    assert (
        [each.finding_class for each in there.roots]
        == [each.finding_class for each in back.roots]
        == ["state"]
    )

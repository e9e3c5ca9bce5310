"""Cases in which the evidence says less than it seems to: each planted alone, by name."""

import pytest

from detlab import compare
from detlab.comparison.replicas import find_drift
from detlab.errors import NotComparable
from detlab.schema import Evidence, Flag, Phase
from detlab.testing import Call, make_run
from tests.comparison.stories import (
    DROPOUT,
    INDEX_ADD,
    MM,
    collective,
    expect,
    held,
    item,
    mm,
    why,
)

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


@pytest.mark.parametrize("made", ["y", "Y"])
@pytest.mark.parametrize("odd", [0, 1])
def test_runs_are_not_refused_while_any_rank_has_digests_of_one_kind(odd, made):
    same, changed = [mm("x", "y")], [mm("x", made)]
    one, other = ({odd: [mm("x", "y", algorithm=name)]} for name in ("crc32", "sha256"))
    cmp = compare(make_run(one | {1 - odd: same}), make_run(other | {1 - odd: changed}))
    kernel = {("kernel", (1 - odd,))} if made == "Y" else set()
    assert {(each.finding_class, each.ranks) for each in cmp.roots} == {("unknown", (odd,))} | kernel


def test_an_empty_rank_does_not_refuse_the_others():
    runs = [make_run({0: [mm("x", word)], 1: calls}) for word, calls in (("y", []), ("Y", [mm("x", "y")]))]
    cmp = compare(*runs)
    assert ("kernel", (0,)) in {(each.finding_class, each.ranks) for each in cmp.roots}


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
    shapes = {"Y": (8,)} if level == Evidence.STRUCTURE else {}
    runs = [[Call(INDEX_ADD, "moe", ["h"], [word], evidence=level, shapes=shapes)] for word in "yY"]
    cmp = expect(*runs, "unknown", ("unknown", INDEX_ADD, (0,)))
    assert "does not prove equal bits" in why(cmp)
    details = cmp.call(rank=0, site=cmp.first["site"][0])
    assert f"({level.name.lower()}), which does not prove equal bits" in details.why


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
    (row,) = find_drift(make_run(ranks)).iter_rows(named=True)
    assert (row["axis"], row["ranks"], row["outliers"]) == ("dp", [0, 1], [])
    assert "no majority" in row["why"]

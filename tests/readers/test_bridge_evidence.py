"""What a Megatron-Bridge record proves: weak digests, sums, memory nobody wrote, collectives hashed early."""

import math

import pytest

from detlab import compare
from detlab.errors import NotComparable
from detlab.schema import Evidence, Flag, Side
from tests.readers.streams import ZERO, bridge_run, metas, record, rows, tensor

MM = "aten.mm.default"
STATS = {"sum": 3.5, "absmax": 2.0}


def one(folder, *calls):
    return bridge_run(folder, list(calls))


def flags(run, at=-1):
    return Flag(rows(run, "flags")[0][at])


def evidence(run, at=-1):
    packed = rows(run, "evidence")[0][at]
    return Evidence(packed >> 4), Evidence(packed & 15)


def verdicts(folder, a, b):
    """Verdicts of two runs of one rank, and the classes of what they found."""
    cmp = compare(bridge_run(folder / "a", a), bridge_run(folder / "b", b))
    return cmp.sites(step=1, rank=0)["verdict"].to_list()


def details(run, row=0):
    return [(Side(each["side"]), int(each["index"])) for each in run.ranks[0].details_of(row)]


# Digests


def test_a_digest_of_this_format_is_a_screen(tmp_path):
    run = one(tmp_path, record(MM, ["x", "w"], ["y"]))
    assert evidence(run) == (Evidence.SCREEN, Evidence.SCREEN)
    assert metas(run)[0].algorithm == run.ranks[0].header.algorithm == "torch.hash_tensor"
    assert flags(run) == 0


@pytest.mark.parametrize(
    ("given", "is_weak"),
    [
        (tensor("x"), False),
        (tensor(ZERO), True),
        (tensor(ZERO, absmax=0.0, sum=0.0), True),  # pairs of -0.0 are not seen
        (tensor(ZERO, ()), False),
        (tensor(ZERO, (0, 4)), False),
        (tensor("x", dtype="torch.int64"), True),
        (tensor("x", dtype="torch.int64", absmax=9.0, sum=20.0), True),
        (tensor(ZERO, dtype="torch.int64", absmax=0.0, sum=0.0), False),
        (tensor(ZERO, dtype="torch.int64"), True),
        (tensor("x", dtype="torch.bool"), True),
        (tensor("x", dtype="torch.uint8"), True),
        (tensor("x", dtype="torch.float8_e4m3fn"), True),
        (tensor("x", (), "torch.int64"), False),
        (tensor("x", (1, 1), "torch.bool"), False),
        (tensor("x", dtype="torch.bfloat16"), False),
        (tensor("x", digest=ZERO * 2), False),
    ],
)
def test_weak_digests_are_flagged_on_their_side(tmp_path, given, is_weak):
    found = one(tmp_path, record(MM, [given, "w"], ["y"]), record(MM, ["x", "w"], [given]))
    assert flags(found, 0) == (Flag.WEAK_INPUT if is_weak else 0)
    assert flags(found, 1) == (Flag.WEAK_OUTPUT if is_weak else 0)


@pytest.mark.parametrize(
    ("fields", "algorithm"),
    [
        ({"digest": "ab" * 16}, "megatron-bridge-128"),
        ({"digest": None, "crc32": "00ff12ab"}, "crc32"),
        ({"digest": None, "crc32": 3735928559}, "crc32"),
    ],
)
def test_older_digests_have_their_own_name(tmp_path, fields, algorithm):
    old = record(MM, [tensor("x") | fields], [tensor("y") | fields])
    assert metas(one(tmp_path / "old", old))[0].algorithm == algorithm
    with pytest.raises(NotComparable, match=f"digests of different kinds .{algorithm} and torch.hash_tensor"):
        verdicts(tmp_path, [old], [record(MM, ["x"], ["y"])])


def test_digests_of_two_kinds_in_one_record_match_only_their_like(tmp_path):
    mixed = record(MM, [tensor("x", digest="ab" * 16)], ["y"])
    assert metas(one(tmp_path / "mixed", mixed))[0].algorithm == "megatron-bridge-128+torch.hash_tensor"
    assert verdicts(tmp_path / "same", [mixed], [mixed]) == ["match"]


def test_all_128_bits_of_an_older_digest_count(tmp_path):
    a, b = (record(MM, ["x"], [tensor("y", digest=f"{head}{'0' * 30}{tail}")]) for head, tail in ("10", "01"))
    assert rows(one(tmp_path / "a", a), "out_digest") != rows(one(tmp_path / "b", b), "out_digest")


def test_shape_and_dtype_count_beside_the_digest(tmp_path):
    wide, flat = record(MM, ["x"], [tensor("y", (2, 4))]), record(MM, ["x"], [tensor("y", (8,))])
    assert verdicts(tmp_path, [wide], [flat]) == ["origin"]


def test_a_null_signature_is_no_evidence(tmp_path):
    run = one(
        tmp_path,
        record(MM, [None], ["y"]),
        record(MM, ["x", None], ["y"]),
        record(MM, ["x"], [None]),
        record(MM, ["x"], ["y", None]),
    )
    none, screen = Evidence.NONE, Evidence.SCREEN
    assert [evidence(run, at) for at in range(4)] == [
        (none, screen), (screen, screen), (screen, none), (screen, none),
    ]  # fmt: skip
    assert [flags(run, at) for at in range(4)] == [Flag.OPEN_INPUTS, Flag.OPEN_INPUTS, 0, 0]


def test_a_call_with_a_lost_input_is_no_kernel_finding(tmp_path):
    a, b = (record(MM, ["x", None], [out]) for out in "yz")
    assert verdicts(tmp_path, [a], [b]) == ["unknown"]


def test_a_record_without_outputs_proves_nothing_about_them(tmp_path):
    assert evidence(one(tmp_path, record("aten._local_scalar_dense.default", ["x"]))) == (
        Evidence.SCREEN,
        Evidence.NONE,
    )


# Sum and absmax


def test_another_sum_overrides_equal_digests(tmp_path):
    a, b = (record("aten.gelu.default", [tensor("mask", sum=total, absmax=1.0)], ["y"]) for total in (14, 16))
    assert verdicts(tmp_path, [a], [b]) == ["absorbed"]


def test_another_absmax_overrides_equal_digests(tmp_path):
    a, b = (record(MM, ["x"], [tensor("y", sum=3.5, absmax=top)]) for top in (2.0, 2.25))
    assert verdicts(tmp_path, [a], [b]) == ["origin"]


def test_a_sum_that_differs_by_its_order_alone_overrides_nothing(tmp_path):
    a, b = (record(MM, ["x"], [tensor("y", sum=s, absmax=1.0)]) for s in (0.1 + 0.2 + 0.3, 0.1 + (0.2 + 0.3)))
    assert a != b
    assert verdicts(tmp_path, [a], [b]) == ["match"]


def test_a_sum_of_integers_counts_to_the_last_unit(tmp_path):
    big = float(1 << 40)
    a, b = (
        record("aten.topk.default", ["x"], [tensor("i", dtype="torch.int64", sum=s, absmax=big)])
        for s in (big, big + 1)
    )
    assert verdicts(tmp_path, [a], [b]) == ["origin"]


def test_detail_rows_have_digest_sum_and_absmax(tmp_path):
    run = one(tmp_path, record(MM, [tensor("x", **STATS), "w"], [tensor("y", **STATS)]))
    found = run.ranks[0].details_of(0)
    assert details(run) == [(Side.INPUT, 0), (Side.INPUT, 1), (Side.OUTPUT, 0)]
    assert found["digest"][0] == int(tensor("x")["digest"], 16)
    assert found["has_stats"].tolist() == [1, 0, 1]
    assert (found["total"][0], found["absmax"][0]) == (3.5, 2.0)
    assert found["stop"].tolist() == [4 * 8 * 4] * 3


@pytest.mark.parametrize(
    ("absmax", "total", "flag"),
    [(math.nan, math.nan, Flag.NAN), (math.inf, math.nan, Flag.INF), (math.inf, math.inf, Flag.INF)],
)
def test_nan_and_inf_of_the_moments_are_read_and_flagged(tmp_path, absmax, total, flag):
    run = one(tmp_path, record(MM, ["x"], [tensor("y", sum=total, absmax=absmax)]))
    assert (flags(run), run.problems) == (flag, ())


def test_one_nan_looks_like_another_in_the_moments(tmp_path):
    odd = record(MM, ["x"], [tensor("y", sum=math.nan, absmax=math.nan)])
    assert verdicts(tmp_path, [odd], [odd]) == ["match"]


# What is not recorded


def test_an_op_whose_scalar_may_carry_state_is_open(tmp_path):
    run = one(tmp_path, record("aten.mul_.Tensor", ["g"], ["h"]), record(MM, ["h"], ["y"]))
    assert [flags(run, 0), flags(run, 1)] == [Flag.OPEN_INPUTS, 0]


def test_views_and_random_ops_are_known_by_name(tmp_path):
    run = one(
        tmp_path, record("aten.t.default", ["x"], ["x"]), record("aten.native_dropout.default", ["x"], ["y"])
    )
    assert [flags(run, 0), flags(run, 1)] == [Flag.VIEW, Flag.SEEDED]


def test_a_random_op_with_equal_inputs_is_of_class_rng(tmp_path):
    a, b = ([record("aten.native_dropout.default", ["x"], [out])] for out in "yz")
    cmp = compare(bridge_run(tmp_path / "a", a), bridge_run(tmp_path / "b", b))
    assert [finding.finding_class for finding in cmp.roots] == ["rng"]


def test_an_op_without_tensor_inputs_is_closed_and_a_probe_without_inputs_is_not(tmp_path):
    probe = record("expert_input", [], ["y"], group="moe")
    run = one(tmp_path, record("aten.randint.low", [], ["ids"]), probe)
    assert [evidence(run, 0)[0], evidence(run, 1)[0]] == [Evidence.SCREEN, Evidence.NONE]


def test_a_probe_of_an_experts_output_names_no_kernel(tmp_path):
    a, b = (
        [record("expert_input", [], ["x"], group="moe"), record("expert_gemm_out", [], [out], group="moe")]
        for out in "yz"
    )
    assert verdicts(tmp_path, a, b) == ["match", "unknown"]


# Memory that is only written to, or that nobody wrote


@pytest.mark.parametrize(
    ("op", "inputs", "unread"),
    [
        ("aten.copy_.default", ["{}", "src"], "0"),
        ("aten.bernoulli_.float", ["{}"], "0"),
        ("aten.zero_.default", ["{}"], "0"),
        ("aten.exp.out", ["x", "{}"], "1"),
        ("aten.zeros_like.default", ["{}"], "0"),
        ("aten.new_zeros.default", ["{}"], "0"),
        ("aten._foreach_zero_.default", ["{}", "{}"], "0,1"),
        ("aten._foreach_copy_.default", ["{}", "{}", "s", "t"], "0,1"),
    ],
)
def test_what_a_call_only_writes_to_is_no_input(tmp_path, op, inputs, unread):
    a, b = (record(op, [word.format(garbage) for word in inputs], ["y"]) for garbage in ("m", "n"))
    assert verdicts(tmp_path, [a], [b]) == ["match"]
    run = one(tmp_path / "one", a)
    assert dict(metas(run)[0].attributes) == {"unread": unread}
    assert rows(run, "n_in") == [[len(inputs) - unread.count(",") - 1]]
    assert [index for side, index in details(run) if side is Side.INPUT] == list(
        range(rows(run, "n_in")[0][0])
    )


def test_a_kernel_that_writes_over_garbage_is_found(tmp_path):
    a, b = (record("aten.mm.out", ["x", "w", garbage], [out]) for garbage, out in ("my", "nz"))
    assert verdicts(tmp_path, [a], [b]) == ["origin"]


def test_the_source_of_a_copy_still_counts(tmp_path):
    a, b = (record("aten.copy_.default", ["m", source], [source]) for source in "st")
    assert verdicts(tmp_path, [a], [b]) == ["receiver"]


def test_overwritten_memory_is_fresh_unless_a_recorded_call_wrote_it(tmp_path):
    run = one(
        tmp_path,
        record("aten.bernoulli_.float", ["garbage"], ["mask"]),
        record("aten.zero_.default", ["mask"], [ZERO]),
        record("aten.zero_.default", [tensor(ZERO)], [ZERO]),
        record("aten.zeros_like.default", ["unseen"], [ZERO]),
    )
    fresh = [bool(bits & Flag.FRESH_MEMORY) for bits in rows(run, "flags")[0]]
    assert fresh == [True, False, False, False]


BUFFER = [tensor("m", (4, 4)), "x", "w"]
OTHER_BUFFER = [tensor("n", (4, 4)), "x", "w"]
ZEROS = [tensor(ZERO, (4, 4), sum=0.0, absmax=0.0), "x", "w"]


def product(inputs, out="y"):
    return record("aten.baddbmm.default", inputs, [tensor(out, (4, 4))])


def test_a_scaled_buffer_that_nobody_wrote_is_set_aside(tmp_path):
    assert verdicts(tmp_path, [product(BUFFER)], [product(OTHER_BUFFER)]) == ["match"]
    assert flags(one(tmp_path / "one", product(BUFFER))) == Flag.FRESH_MEMORY | Flag.OPEN_INPUTS
    assert verdicts(tmp_path / "zero", [product(ZEROS)], [product(BUFFER)]) == ["match"]


def test_a_scaled_buffer_that_might_be_read_makes_no_kernel_finding(tmp_path):
    assert verdicts(tmp_path, [product(BUFFER)], [product(OTHER_BUFFER, "z")]) == ["unknown"]


def test_a_product_over_a_buffer_of_zeros_can_be_an_origin(tmp_path):
    assert verdicts(tmp_path, [product(ZEROS)], [product(ZEROS, "z")]) == ["origin"]
    assert flags(one(tmp_path / "one", product(ZEROS))) == 0


def test_a_scaled_buffer_that_a_recorded_call_wrote_is_read(tmp_path):
    a, b = (
        [record(MM, ["x"], [tensor(word, (4, 4))]), product([tensor(word, (4, 4)), "x", "w"], out)]
        for word, out in ("my", "nz")
    )
    assert verdicts(tmp_path, a, b) == ["origin", "receiver"]


def test_a_bias_is_no_scaled_buffer(tmp_path):
    a, b = ([record("aten.addmm.default", [tensor(bias, (8,)), "x", "w"], [bias])] for bias in "mn")
    assert verdicts(tmp_path, a, b) == ["receiver"]


def test_an_accumulator_that_is_written_in_place_is_read(tmp_path):
    a, b = (
        [record("aten.addmm_.default", [tensor(word, (4, 4)), "x", "w"], [tensor(word + "'", (4, 4))])]
        for word in "mn"
    )
    assert verdicts(tmp_path, a, b) == ["receiver"]


def allocation(garbage):
    """Fresh memory, a view of it, its overwriter, and what uses the result."""
    return [
        record("aten.empty.memory_format", [], [garbage]),
        record("aten.view.default", [garbage], [garbage + "v"]),
        record("aten.select.int", [garbage + "v"], [garbage + "s"]),
        record("aten.copy_.default", [garbage + "v", "s"], ["s"]),
        record(MM, ["s"], ["y"]),
    ]


def test_fresh_memory_and_its_views_prove_nothing_until_written(tmp_path):
    assert verdicts(tmp_path, allocation("m"), allocation("n")) == ["match"] * 5
    run = one(tmp_path / "one", *allocation("m"))
    assert [evidence(run, at)[1] for at in range(5)] == [Evidence.NONE] * 3 + [Evidence.SCREEN] * 2


def test_a_read_of_fresh_memory_is_a_cause(tmp_path):
    a, b = (
        [record("aten.empty.memory_format", [], [word]), record("aten.relu.default", [word], [word + "r"])]
        for word in "mn"
    )
    assert verdicts(tmp_path, a, b) == ["match", "receiver"]
    assert flags(one(tmp_path / "one", *a)) == Flag.FRESH_MEMORY


def test_memory_that_a_call_wrote_is_not_fresh_because_an_old_value_lies_in_it(tmp_path):
    run = one(
        tmp_path,
        record(MM, ["x"], ["y"]),
        record("aten.empty.memory_format", [], ["y"]),
        record("aten.relu.default", ["y"], ["z"]),
    )
    assert flags(run) == 0


# Collectives


def reduced(given, gave, group="dp", reduce_op="SUM", op="all_reduce"):
    return record(op, [given], [gave], group=group, reduce_op=reduce_op)


@pytest.mark.parametrize("reduce_op", ["SUM", None, "ReduceOp.SUM"])
def test_a_sum_that_gives_back_its_input_was_hashed_too_soon(tmp_path, reduce_op):
    run = bridge_run(tmp_path, [reduced("g", "g", reduce_op=reduce_op)], [reduced("h", "h")])
    assert flags(run) == Flag.NOT_WAITED_FOR
    assert run.ranks[0].header.groups == {"dp": (0, 1)}


@pytest.mark.parametrize(
    "call",
    [
        reduced("g", "s"),
        reduced("g", "g", reduce_op="MAX"),
        reduced("g", "g", reduce_op="AVG"),
        reduced("g", "g", group="tp"),
        reduced("g", "g", group="embd"),
        reduced("g", "g", group="grp_sz1_0"),
        reduced(tensor(ZERO, ()), tensor(ZERO, ())),
        reduced("g", "g", op="all_gather_into_tensor"),
        reduced(tensor("n", dtype="torch.int64"), tensor("n", dtype="torch.int64")),
        reduced(ZERO, ZERO),
        reduced(None, None),
    ],
)
def test_other_collectives_are_believed(tmp_path, call):
    run = bridge_run(tmp_path, [call], [call])
    assert not flags(run) & Flag.NOT_WAITED_FOR


def test_an_unnamed_group_tells_its_size(tmp_path):
    assert flags(one(tmp_path, reduced("g", "g", group="grp_sz8_0"))) == Flag.NOT_WAITED_FOR


def test_a_collective_without_recorded_input_names_no_origin(tmp_path):
    a, b = ([record("all_gather", [], [out], group="tp")] for out in "yz")
    assert verdicts(tmp_path, a, b) == ["unknown"]


def test_a_race_on_one_rank_is_found_there_and_nowhere_else(tmp_path):
    """The embedding's backward differs on one rank; the sum over both was hashed before it was complete."""

    def rank(grad, before, after, norm):
        return [
            record(MM, ["x", "w"], ["h"]),
            record("aten.index_put.default", [ZERO, tensor("i", dtype="torch.int64"), "h"], [grad]),
            record("aten.add_.Tensor", [before, grad], [before + grad]),
            reduced(before + grad, before + grad),
            record("aten.linalg_vector_norm.default", [after], [tensor(norm, ())]),
        ]

    a = bridge_run(tmp_path / "a", rank("g", "p", "s", "n"), rank("h", "q", "s", "n"))
    b = bridge_run(tmp_path / "b", rank("g", "p", "S", "n"), rank("H", "q", "S", "N"))
    cmp = compare(a, b)
    origins = [(f.op, f.ranks) for f in cmp.roots if f.finding_class == "kernel"]
    assert origins == [("aten.index_put.default", (1,))]
    assert cmp.sites(step=1, rank=0)["verdict"].to_list() == ["match"] * 4 + ["absorbed"]

"""Cases in which one member's view of its communication misleads: each planted alone, by name."""

import pytest

from detlab import load_run
from detlab.schema import Flag, Phase
from detlab.testing import Call, make_run, save_run
from tests.comparison.stories import (
    ADAMW,
    ALL_GATHER,
    ALL_REDUCE,
    MM,
    REDUCE_SCATTER,
    collective,
    expect,
    mm,
    site,
    why,
)


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


# A member that lacks a call


def two_sums(first, second, lacking, contaminated=""):
    """Two sums of three members, of which rank 2 may lack the first: what rank 0 and what all receive."""

    def calls(rank):
        return [
            collective(ALL_REDUCE, f"g{rank}", "s" + first * (rank == 0)),
            mm("x", "y"),
            collective(ALL_REDUCE, f"h{rank}" + contaminated * (rank == 2), "t" + second, scope="norm"),
        ]

    members = {rank: calls(rank) for rank in range(3)}
    return make_run(members | {2: members[2][lacking:]}, groups={"dp": [0, 1, 2]})


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_sum_that_one_member_lacks_in_either_run_is_unknown_on_the_others(is_swapped):
    runs = [two_sums("", "", lacking=0), two_sums("!", "", lacking=1)]
    side = "only_b" if is_swapped else "only_a"
    expect(
        *(runs[::-1] if is_swapped else runs),
        ["unknown match match", "match match match", f"{side} match match"],
        ("unknown", ALL_REDUCE, (0,)), ("structure", ALL_REDUCE, (2,)),
    )  # fmt: skip


@pytest.mark.parametrize("is_swapped", [False, True])
def test_the_calls_after_one_that_a_member_lacks_are_joined_as_before(is_swapped):
    runs = [two_sums("", "", lacking=0), two_sums("", "!", lacking=1, contaminated="!")]
    side = "only_b" if is_swapped else "only_a"
    expect(
        *(runs[::-1] if is_swapped else runs),
        ["match match receiver", "match match receiver", f"{side} match receiver"],
        ("structure", ALL_REDUCE, (2,)), ("upstream", ALL_REDUCE, (2,)),
    )  # fmt: skip

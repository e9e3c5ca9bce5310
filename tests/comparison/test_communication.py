"""Communication is judged by what it depends on, never from one member's view."""

import pytest

from detlab import compare
from detlab.schema import Kind, Phase
from detlab.testing import Call, make_run

GROUPS = {"dp": [0, 1, 2]}


def collective(op, given, received, group="dp", **attributes):
    words = [given] if given else []
    return Call(
        op, "", words, [received] if received else [], kind=Kind.COLLECTIVE, group=group,
        phase=Phase.GRAD_REDUCE, microbatch=-1, attributes=attributes,
    )  # fmt: skip


def reduce_run(op, gradients, outputs, groups=GROUPS):
    """A run in which each rank makes a gradient and reduces it with the others."""
    calls = {
        rank: [Call("aten.mm.default", "lin", ["w", "x"], [gradient]), collective(op, gradient, output)]
        for rank, (gradient, output) in enumerate(zip(gradients, outputs, strict=True))
    }
    return make_run(calls, groups=groups)


def verdicts(cmp):
    return [cmp.sites(step=1, rank=rank.rank)["verdict"].to_list() for rank in cmp.ranks]


ALL_REDUCE = "c10d.allreduce_.default"


def test_a_member_that_meets_a_difference_through_a_sum_is_a_receiver():
    cmp = compare(
        reduce_run(ALL_REDUCE, ["g", "h", "i"], ["s", "s", "s"]),
        reduce_run(ALL_REDUCE, ["g", "H", "i"], ["S", "S", "S"]),
    )
    assert verdicts(cmp) == [["match", "receiver"], ["origin", "receiver"], ["match", "receiver"]]
    assert [(f.finding_class, f.op, f.ranks, f.receivers) for f in cmp.roots] == [
        ("kernel", "aten.mm.default", (1,), (0, 2))
    ]


def test_a_collective_is_an_origin_when_the_inputs_of_all_members_are_equal():
    cmp = compare(
        reduce_run(ALL_REDUCE, ["g", "h", "i"], ["s", "s", "s"]),
        reduce_run(ALL_REDUCE, ["g", "h", "i"], ["S", "S", "S"]),
    )
    assert verdicts(cmp) == [["match", "origin"]] * 3
    assert [(f.finding_class, f.ranks, f.axis) for f in cmp.roots] == [("collective", (0, 1, 2), "all")]


def test_a_collective_with_a_member_untraced_is_unknown():
    cmp = compare(
        make_run({0: [collective(ALL_REDUCE, "g", "s")]}, groups=GROUPS, world_size=3),
        make_run({0: [collective(ALL_REDUCE, "g", "S")]}, groups=GROUPS, world_size=3),
    )
    assert verdicts(cmp) == [["unknown"]]
    assert [f.finding_class for f in cmp.roots] == ["unknown"]


def test_a_differing_member_proves_nothing_about_another_members_slice():
    op = "c10d._reduce_scatter_base_.default"
    cmp = compare(
        reduce_run(op, ["g", "h", "i"], ["s0", "s1", "s2"]),
        reduce_run(op, ["g", "H", "i"], ["S0", "s1", "s2"]),
    )
    assert verdicts(cmp) == [["match", "unknown"], ["origin", "absorbed"], ["match", "match"]]


def test_members_are_joined_on_the_member_set_and_not_on_the_label():
    def run(gradients, outputs):
        calls = {
            r: [collective(ALL_REDUCE, gradients[r], outputs[r], group=f"group{r % 2}")] for r in range(4)
        }
        labels = {f"group{parity}": [parity, parity + 2] for parity in (0, 1)}
        return make_run(calls, groups=labels)

    cmp = compare(run("ghij", "stst"), run("gHij", "sTsT"))
    assert verdicts(cmp) == [["match"], ["receiver"], ["match"], ["receiver"]]


def test_members_are_joined_by_their_order_on_the_communicator():
    """Another communicator's call stands between on one member alone, and equal labels mean nothing."""

    def run(second):
        shared = [collective(ALL_REDUCE, "g", "s"), collective(ALL_REDUCE, second, second + "!")]
        other = collective(ALL_REDUCE, "o", "o!", group="tp")
        calls = {0: [shared[0], other, collective(ALL_REDUCE, "k", second + "!")], 1: shared}
        return make_run(calls, groups={"dp": [0, 1], "tp": [0]})

    cmp = compare(run("h"), run("H"))
    assert verdicts(cmp) == [["match", "match", "receiver"], ["match", "receiver"]]


def test_a_member_whose_segment_was_skipped_as_equal_counts_as_present():
    cmp = compare(
        reduce_run(ALL_REDUCE, ["g", "h", "i"], ["s", "s", "s"]),
        reduce_run(ALL_REDUCE, ["g", "h", "i"], ["s", "S", "s"]),
    )
    assert verdicts(cmp) == [["match", "match"], ["match", "origin"], ["match", "match"]]


@pytest.mark.parametrize(("sent", "verdict"), [("m", "origin"), ("M", "receiver")])
def test_a_receive_is_judged_from_the_matching_send(sent, verdict):
    def run(sent, received):
        send = collective("c10d.send.default", sent, None, "pp", src="0", dst="1", tag="0")
        noise = collective("c10d.send.default", "n", None, "pp", src="0", dst="1", tag="7")
        recv = collective("c10d.recv_.default", None, received, "pp", src="0", dst="1", tag="0")
        return make_run({0: [noise, send], 1: [recv]}, groups={"pp": [0, 1]})

    cmp = compare(run("m", "m"), run(sent, "M"))
    assert verdicts(cmp)[1] == [verdict]


def test_a_receive_without_its_send_is_unknown():
    def run(received):
        recv = collective("c10d.recv_.default", None, received, "pp", src="0", dst="1", tag="0")
        return make_run({1: [recv]}, groups={"pp": [0, 1]}, world_size=2)

    assert verdicts(compare(run("m"), run("M"))) == [["unknown"]]

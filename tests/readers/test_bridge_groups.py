"""Members of a group follow from the coordinates of all streams, or are not claimed at all."""

from itertools import product

import pytest

from detlab import load_run
from detlab.readers.bridge_layout import group_axes
from tests.readers.streams import lines, record, write

CONFIG = {"world_size": 16, "tp": 2, "cp": 2, "dp": 2, "pp": 2, "ep": 2, "etp": 2}


def dense_run(folder, label, skip=(), config=CONFIG):
    """Sixteen ranks, tp fastest and pp slowest; the expert layout is etp, ep, edp, pp."""
    calls = [record("all_reduce", ["x"], ["y"], group=label)]
    for rank, (pp, dp, cp, tp) in enumerate(product(range(2), repeat=4)):
        if rank not in skip:
            place = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "etp": tp, "ep": cp, "edp": dp}
            write(folder / label, rank, lines(calls, rank=rank, config=config, **place))
    return load_run(folder / label)


def members(run, rank, label):
    (header,) = (trace.header for trace in run.ranks if trace.header.rank == rank)
    return header.groups.get(label)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("tp", (4, 5)),
        ("cp", (5, 7)),
        ("dp", (1, 5)),
        ("pp", (5, 13)),
        ("dp_cp", (1, 3, 5, 7)),
        ("tp_dp", (0, 1, 4, 5)),
        ("tp_cp", (4, 5, 6, 7)),
        ("mp", (4, 5, 12, 13)),
        ("etp", (4, 5)),
        ("ep", (5, 7)),
        ("edp", (1, 5)),
        ("etp_ep", (4, 5, 6, 7)),
        ("world", tuple(range(16))),
    ],
)
def test_members_of_each_label(tmp_path, label, expected):
    assert members(dense_run(tmp_path, label), 5, label) == expected


@pytest.mark.parametrize("label", ["grp_sz8_0", "embd", "intra_dpopt", "ep_dp", "tp_xp", "dp-cp"])
def test_a_label_that_does_not_say_its_axes_has_no_members(tmp_path, label):
    assert members(dense_run(tmp_path, label), 5, label) is None


def test_a_group_that_lacks_a_stream_has_no_members_and_others_have(tmp_path):
    run = dense_run(tmp_path, "dp", skip=[1])
    assert members(run, 5, "dp") is None
    assert members(run, 4, "dp") == (0, 4)


def test_without_sizes_no_group_is_known_to_be_complete(tmp_path):
    run = dense_run(tmp_path, "dp", config={"world_size": 16})
    assert members(run, 5, "dp") is None


def test_only_groups_that_were_met_are_listed(tmp_path):
    run = dense_run(tmp_path, "tp")
    assert all(set(rank.header.groups) == {"tp"} for rank in run.ranks)


def test_the_axes_of_dense_and_expert_layers_are_not_mixed():
    assert group_axes("tp_ep") == frozenset()
    assert group_axes("pp_edp") == {"pp", "edp"}

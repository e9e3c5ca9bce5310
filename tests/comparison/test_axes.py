"""Which ranks a finding is on: parallel axes, nodes and racks, and what chance does as well."""

import json
from dataclasses import replace

import pytest

from detlab import compare, load_run
from detlab.errors import TraceError
from detlab.schema import Coordinate
from detlab.store.header import read_manifest
from detlab.testing import make_run, save_run
from tests.comparison.stories import mm

GRID = {rank: Coordinate(tp=rank % 2, dp=rank // 2) for rank in range(8)}
"""Eight ranks, tp 2 and dp 4."""


def run(*odd, hosts=None, racks=None):
    """Eight ranks, of which some give other bits; the host of each rank by its number or as a text."""
    made = make_run(
        {rank: [mm("x", "Y" if rank in odd else "y")] for rank in GRID},
        coordinates=GRID,
        recipes={rank: {"host": host} for rank, host in enumerate(hosts or ())},
    )
    return replace(made, manifest=replace(made.manifest, racks=racks or {}))


def axis(odd, hosts_a=None, hosts_b=None, racks=None):
    """The axis that the ranks of the only finding fit, and by how much chance does."""
    (finding,) = compare(
        run(hosts=hosts_a, racks=racks), run(*odd, hosts=hosts_b or hosts_a, racks=racks)
    ).roots
    assert finding.ranks == tuple(odd)
    return finding.axis, finding.chance


QUADS = ["n0"] * 4 + ["n1"] * 4
STRIPES = ["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"]


def test_ranks_of_one_node_are_said_to_be_that_node():
    name, chance = axis((4, 5, 6, 7), QUADS)
    assert name == "node n1"
    assert chance == pytest.approx(4 / 70)  # tp=0, tp=1 and two nodes, of all sets of four


def test_more_axes_make_a_fit_by_chance_likelier():
    (_, without), (_, with_nodes) = axis((0, 2, 4, 6)), axis((0, 2, 4, 6), QUADS)
    assert (without, with_nodes) == (pytest.approx(2 / 70), pytest.approx(4 / 70))


def test_an_axis_and_a_node_with_the_same_ranks_are_both_named_and_counted_once():
    assert axis((2, 3), STRIPES) == ("dp=1, which is node n1", pytest.approx(4 / 28))
    assert axis((2, 3)) == ("dp=1", pytest.approx(4 / 28))


def test_one_host_for_all_ranks_is_no_axis():
    assert axis((0, 2, 4, 6), ["n0"] * 8) == axis((0, 2, 4, 6))
    assert axis(tuple(range(8)), ["n0"] * 8) == ("all", 1.0)


def test_ranks_on_more_than_one_node_fit_none():
    assert axis((0, 5), QUADS) == ("", None)


def test_a_node_of_one_run_is_named_with_its_run():
    assert axis((4, 5, 6, 7), QUADS, ["n7", "n7", "n8", "n8"] * 2)[0] == "node n1 in a"
    assert axis((2, 3, 6, 7), QUADS, ["n7", "n7", "n8", "n8"] * 2) == ("node n8 in b", pytest.approx(6 / 70))


def test_another_host_in_each_run_on_the_same_ranks_is_named_twice_and_counted_once():
    moved = [{"n0": "n1", "n1": "n9"}[host] for host in QUADS]
    assert axis((4, 5, 6, 7), QUADS, moved) == ("node n1 in a, which is node n9 in b", pytest.approx(4 / 70))


def test_hosts_that_one_rank_does_not_state_are_no_axis():
    assert axis((4, 5, 6, 7), ["n0"] * 3 + [None] + ["n1"] * 4) == ("", None)


def test_relabelled_hosts_change_the_label_and_nothing_else():
    name, chance = axis((2, 3), STRIPES)
    assert axis((2, 3), [host.replace("n", "machine ") for host in STRIPES]) == (
        name.replace("n1", "machine 1"),
        chance,
    )


def test_ranks_of_one_rack_are_said_to_be_that_rack():
    racks = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1"}
    assert axis((4, 5, 6, 7), STRIPES, racks=racks) == ("rack r1", pytest.approx(4 / 70))
    assert axis((4, 5, 6, 7), STRIPES, racks=racks | {"n0": ""}) == ("", None)


def test_a_rack_of_one_node_is_both():
    name, _ = axis((4, 5, 6, 7), QUADS, racks={"n0": "r0", "n1": "r1"})
    assert name == "node n1, which is rack r1"


def stated(odd, recipes, racks=None):
    """The axis of a finding on ranks whose recipes state just this."""
    made = [
        make_run(
            {rank: [mm("x", "Y" if rank in chosen else "y")] for rank in GRID},
            coordinates=GRID,
            recipes=dict(enumerate(recipes)),
        )
        for chosen in ((), odd)
    ]
    found = [replace(each, manifest=replace(each.manifest, racks=racks or {})) for each in made]
    return compare(*found).roots[0].axis


def slots(odd, numbers):
    return stated(odd, [{"local_rank": number} for number in numbers])


def test_ranks_in_one_slot_of_every_node_are_said_to_be_that_local_rank():
    assert slots((3, 7), [0, 1, 2, 3] * 2) == "local rank 3"


def test_a_local_rank_that_is_a_parallel_axis_too_is_both():
    assert slots((1, 3, 5, 7), [0, 1] * 4) == "tp=1, which is local rank 1"


def test_local_ranks_of_a_single_node_are_no_axis():
    assert slots((3,), range(8)) == ""


@pytest.mark.parametrize("unknown", [None, "3", True, 3.0])
def test_local_ranks_that_one_rank_does_not_state_are_no_axis(unknown):
    assert slots((3, 7), [0, 1, 2, 3, 0, 1, unknown, 3]) == ""


def test_racks_that_the_ranks_were_told_are_an_axis_and_the_manifest_corrects_them():
    recipes = [{"host": host, "rack": rack} for host, rack in zip(STRIPES, "ppppqqqq", strict=True)]
    assert stated((4, 5, 6, 7), recipes) == "rack q"
    assert stated((2, 3, 4, 5), recipes, racks={"n0": "q", "n2": "p"}) == "rack p"
    assert stated((4, 5, 6, 7), [{"host": "n0"}, *recipes[1:]]) == ""


def test_racks_are_read_from_the_manifest_and_a_manifest_without_them_is_whole(tmp_path):
    saved = save_run(run(), tmp_path / "run")
    path = saved / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(content | {"racks": {"n0": 7}}), "utf-8")
    assert load_run(saved).manifest.racks == {"n0": "7"}
    del content["racks"]
    path.write_text(json.dumps(content), "utf-8")
    assert load_run(saved).manifest.racks == {}
    path.write_text(json.dumps(content | {"racks": ["n0"]}), "utf-8")
    with pytest.raises(TraceError, match="not a manifest"):
        read_manifest(saved)

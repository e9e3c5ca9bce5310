import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schema import EVENT_DTYPE, Callee, Coordinate, Phase, Site, Verdict, rank_coordinate

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
sites = st.builds(
    Site,
    step=st.integers(-1, 2**31 - 1),
    microbatch=st.integers(-1, 2**15 - 1),
    phase=st.sampled_from(Phase),
    callee=st.builds(Callee, names, names, names),
    call=st.integers(0, 2**32 - 1),
)


@given(sites)
def test_a_site_survives_its_text_form(site):
    assert Site.parse(str(site)) == site


@given(sites, sites)
def test_two_sites_share_a_text_form_only_when_they_are_one(one, other):
    assert (str(one) == str(other)) == (one == other)


def test_a_site_reads_as_a_path():
    callee = Callee("embedding.word_embeddings", "aten.index_put.default")
    site = Site(1, 0, Phase.BACKWARD, callee, 0)
    assert str(site) == "1/0/backward/embedding.word_embeddings/aten.index_put.default#0"


@pytest.mark.parametrize(
    "text", ["", "1/0/backward/x", "1/0/sideways/x/op#0", "1/0/forward/x/op", "a/0/forward/x/y#0"]
)
def test_what_is_no_site_is_refused(text):
    with pytest.raises(ValueError, match="is not a site"):
        Site.parse(text)


def test_verdicts_are_numbered_by_severity():
    order = ["MATCH", "ABSORBED", "RECEIVER", "ONLY_A", "ONLY_B", "CHANGED", "UNKNOWN", "ORIGIN"]
    assert [verdict.name for verdict in sorted(Verdict)] == order


def test_an_event_is_packed_without_holes():
    assert EVENT_DTYPE.itemsize == 47


def test_a_coordinate_names_tp_dp_and_what_is_not_zero():
    assert str(Coordinate(pp=1, tp=0, dp=3)) == "pp1 tp0 dp3"


SIZES = st.fixed_dictionaries({name: st.integers(1, 4) for name in ("tp", "cp", "dp", "pp")})
ORDERS = st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-pp-ep-dp"])


@given(sizes=SIZES, order=ORDERS)
def test_every_rank_has_a_coordinate_of_its_own(sizes, order):
    world = sizes["tp"] * sizes["cp"] * sizes["dp"] * sizes["pp"]
    places = [rank_coordinate(rank, sizes, order) for rank in range(world)]
    assert len(set(places)) == world
    assert all(getattr(place, name) < size for place in places for name, size in sizes.items())
    with pytest.raises(ValueError, match=f"rank {world} is not in a layout"):
        rank_coordinate(world, sizes, order)


def test_ranks_are_counted_through_tp_first_and_pp_last():
    sizes = {"tp": 2, "cp": 2, "dp": 3, "pp": 2}
    assert rank_coordinate(1, sizes) == Coordinate(tp=1)
    assert rank_coordinate(2, sizes) == Coordinate(cp=1)
    assert rank_coordinate(4, sizes) == Coordinate(dp=1)
    assert rank_coordinate(12, sizes) == Coordinate(pp=1)
    assert rank_coordinate(2, sizes, "tp-pp-cp-ep-dp") == Coordinate(pp=1)


def test_experts_are_counted_over_cp_and_dp_alone():
    """TP2 CP2 DP2 with EP4: megatron-core 0.16.1 puts ranks 0, 2, 4 and 6 into one expert group."""
    sizes = {"tp": 2, "cp": 2, "dp": 2, "ep": 4}
    assert [rank_coordinate(rank, sizes).ep for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [rank_coordinate(rank, {**sizes, "etp": 1}).ep for rank in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]

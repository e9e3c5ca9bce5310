"""What holds for the details of any call of any two runs."""

import json

from hypothesis import given, settings

from detlab import compare
from detlab.comparison.call import call_details
from detlab.testing import make_run
from tests.comparison.test_properties import lacking, pairs, run_of


def complete(cmp):
    """Ask for every call of a comparison, in every form."""
    for number, rank in enumerate(cmp.ranks):
        for position in range(len(rank.verdicts)):
            details = call_details(cmp, number, position)
            json.dumps(details.to_json(), allow_nan=False)
            assert repr(details)
            yield details


@given(pairs())
def test_every_call_of_any_pair_of_runs_has_details_that_fit_its_verdict(pair):
    for details in complete(compare(*map(run_of, pair))):
        assert details.call.verdict.upper() in repr(details)
        if details.call.verdict == "origin" and details.members is None and not details.set_aside:
            assert details.inputs.same or details.origin_lanes or "order is the cause" in repr(details)
        if details.call.verdict in ("receiver", "absorbed") and details.members is None:
            assert details.inputs.same is False or details.kind == "state"


@given(lacking())
def test_every_call_has_details_where_ranks_lack_collectives(runs):
    assert list(complete(compare(*runs)))


@settings(max_examples=25)  # asks for the details of every call of every user of every call
@given(pairs())
def test_who_made_a_tensor_is_who_is_said_to_give_it(pair):
    """What takes an output of a call names that call as its maker, unless a difference leads elsewhere."""
    cmp = compare(*map(run_of, pair))
    for details in complete(cmp):
        for link in details.links.users:
            if link.run == "a":
                back = call_details(cmp, details.number, link.call.position)
                made = {each.call.position for each in back.links.makers if each.index == link.other_index}
                ways = {each.by for each in back.links.makers if each.index == link.other_index}
                assert details.call.position in made or "difference" in ways or not made


@given(pairs())
def test_peers_are_what_looking_at_every_rank_finds(pair):
    cmp = compare(*(make_run({n: ranks[n % 2] for n in range(4)}, groups={"dp": [0, 1]}) for ranks in pair))
    for position in range(len(cmp.ranks[0].verdicts)):
        details = call_details(cmp, 0, position)
        if details.call.seq_a is None:
            continue
        twin = call_details(cmp, 2, position)  # rank 2 runs what rank 0 runs
        listed = {each.rank: each.verdict for each in details.peers.listed}
        assert listed[2] == twin.call.verdict

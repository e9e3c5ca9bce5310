"""What stands around one compared call: neighbours, other ranks, members, findings, captures; how to ask."""

import json
from dataclasses import replace

import pytest

from detlab import compare, load_comparison
from detlab.comparison.call import call_details
from detlab.comparison.call.part_words import (
    peers_words,
)
from detlab.comparison.call.words import (
    sentences,
)
from detlab.errors import InputError
from detlab.schema import Flag, Kind
from detlab.testing import Call, make_run, save_run
from detlab.views.call_html import call_html
from tests.comparison.call_stories import OTHER, op, run, story
from tests.comparison.stories import ALL_REDUCE, INDEX_ADD, MM, collective, mm, site


def said(name):
    return " ".join(sentences(story(name)))


# Neighbours and other ranks


def test_the_four_calls_before_and_after_are_named_in_order():
    calls = [mm(f"x{n}", f"y{n}", f"l{n}") for n in range(12)]
    details = call_details(compare(*[make_run({0: calls})] * 2), 0, 5)
    assert [each.scope for each in details.before] == ["l1", "l2", "l3", "l4"]
    assert [each.scope for each in details.after] == ["l6", "l7", "l8", "l9"]
    assert [each.position for each in details.after] == [6, 7, 8, 9]


def many(num_ranks, odd, extra=()):
    """Ranks of one program, of which some give other bits, and some make one more call first."""
    ranks = {}
    for rank in range(num_ranks):
        calls = [mm("x", "h"), Call(INDEX_ADD, "moe", ["h"], ["O" if rank in odd else "o"])]
        ranks[rank] = [mm("q", "r", "more"), *calls] if rank in extra else calls
    return make_run(ranks)


def test_the_same_site_on_other_ranks_is_counted_and_the_worst_are_listed_first():
    cmp = compare(many(100, ()), many(100, {3, 70}))
    peers = call_details(cmp, 0, 1).peers
    assert (peers.counts, peers.num_found, len(peers.listed)) == ({"origin": 2, "match": 97}, 99, 64)
    assert [each.rank for each in peers.listed[:3]] == [3, 70, 1]
    assert peers_words(peers) == "2 origin, 97 match"
    assert call_details(cmp, 3, 1).peers.counts == {"origin": 1, "match": 98}


def test_ranks_of_another_program_are_found_at_their_own_row():
    runs = [many(6, odd, extra={4, 5}) for odd in ((), {5})]
    peers = call_details(compare(*runs), 0, 1).peers
    assert peers.counts == {"origin": 1, "match": 4}
    assert [each.rank for each in peers.listed if each.verdict == "origin"] == [5]


def test_ranks_that_lack_the_call_are_counted():
    runs = [many(4, (), extra={3})] * 2
    number, position = 3, 0
    assert peers_words(call_details(compare(*runs), number, position).peers) == "3 without this call"


def test_programs_beyond_the_limit_are_said_not_to_be_looked_at(monkeypatch):
    monkeypatch.setattr("detlab.comparison.call.peers._MAX_PROGRAMS", 1)
    peers = call_details(compare(*[many(5, (), extra={3, 4})] * 2), 0, 1).peers
    assert (peers.counts, peers.num_unseen) == ({"match": 2}, 2)
    assert peers_words(peers) == "2 match, 2 not looked at"


def test_a_site_set_aside_on_another_rank_is_no_divergence_there():
    flagged = Call(INDEX_ADD, "moe", ["h"], ["O"], flags=Flag.POINTERS)
    ranks = {0: [mm("x", "h"), op(["h"], ["o"])], 1: [mm("x", "h"), replace(flagged, outputs=["o"])]}
    other = {0: ranks[0], 1: [mm("x", "h"), flagged]}
    peers = call_details(compare(make_run(ranks), make_run(other)), 0, 1).peers
    assert peers_words(peers) == "1 set aside"


def test_a_site_that_only_run_b_makes_is_found_in_run_b_on_other_ranks():
    extra = mm("q", "r", "more")
    runs = [make_run(dict.fromkeys(range(3), calls)) for calls in ([OTHER], [OTHER, extra])]
    details = call_details(compare(*runs), 0, 1)
    assert (details.call.verdict, details.peers.counts) == ("only_b", {"only_b": 2})


# Findings, captures, call sites, and how calls were matched


def test_a_finding_is_named_at_its_site_and_nowhere_else():
    cmp = compare(*(run([mm("x", "h"), op(["h"], [word]), mm(word, "z" + word)]) for word in "oO"))
    assert [call_details(cmp, 0, position).findings for position in range(4)] == [(), (0,), (), ()]


def test_a_finding_of_other_ranks_at_the_same_site_is_said_to_be_theirs():
    calls = [{0: [op(["h"], [word])], 1: [op(["h"], ["o"])]} for word in "oO"]
    cmp = compare(*map(make_run, calls))
    here, there = (call_details(cmp, number, 0) for number in (0, 1))
    assert (here.findings, here.findings_elsewhere) == ((0,), ())
    assert (there.findings, there.findings_elsewhere) == ((0,), (0,))
    assert "Finding 0 (kernel) names this site." in sentences(here)
    assert "Finding 0 (kernel) names this site on other ranks." in sentences(there)


def captured(folder, sites):
    for name, (text, rank) in sites.items():
        (folder / "captures" / name).mkdir(parents=True)
        (folder / "captures" / name / "capture.json").write_text(json.dumps({"site": text, "rank": rank}))
    return folder


def test_captures_of_the_site_are_offered_those_of_this_rank_first(tmp_path):
    here, there = site("moe", INDEX_ADD), site("lin", MM)
    ranks = [{rank: [mm("x", "h"), op(["h"], [word])] for rank in (0, 1)} for word in "oO"]
    folders = [save_run(make_run(each), tmp_path / name) for each, name in zip(ranks, "ab", strict=True)]
    captured(folders[0], {"c0": (here, 1), "c1": (here, 0), "c2": (there, 0)})
    (folders[0] / "captures" / "broken").mkdir()
    (folders[0] / "captures" / "broken" / "capture.json").write_text("[]")
    cmp = compare(*folders)
    details = cmp.call(rank=0, site=here)
    assert [(each.rank, each.path[-2:]) for each in details.captures] == [(0, "c1"), (1, "c0")]
    assert details.next == f"detlab replay {details.captures[0].path}"
    assert [each.rank for each in cmp.call(rank=1, site=here).captures] == [1, 0]
    assert [each.path[-2:] for each in cmp.call(rank=0, site=there).captures] == ["c2"]


def test_a_capture_of_run_b_is_one_of_the_call_that_has_its_site_there(tmp_path):
    calls = [op([f"h{n}"], [word]) for n, word in enumerate(("o", "p"))]
    other = [op(["h"], ["n"]), calls[0], op(["h1"], ["P"])]
    folders = [save_run(run(each), tmp_path / name) for each, name in zip((calls, other), "ab", strict=True)]
    sites = {f"c{n}": (site("moe", INDEX_ADD).replace("#0", f"#{n}"), 0) for n in (0, 1, 2)}
    captured(folders[1], sites)
    cmp = compare(*folders)
    found = [[each.path[-2:] for each in call_details(cmp, 0, at).captures] for at in range(3)]
    assert found == [["c0"], ["c1"], ["c2"]]
    (kernel,) = (each for each in cmp.roots if each.finding_class == "kernel")
    assert kernel.next.endswith("c2")


def test_a_call_before_the_first_step_is_in_no_step():
    calls = [mm("x", "y"), mm("y", "z", "out")]
    both = [run([replace(calls[0], outputs=[w], step=-1), replace(calls[1], inputs=[w])]) for w in "yY"]
    details = call_details(compare(*both), 0, 1)
    assert "made by aten.mm.default in lin in no step (origin)" in repr(details)
    assert "in no step</" in call_html(details) and "step -1" not in repr(details) + call_html(details)


def test_a_call_site_is_named_once_where_it_is_the_same_and_twice_where_not():
    runs = [run([op()]) for _ in "ab"]
    for each, place in zip(runs, ("train.py:7", "train.py:9"), strict=True):
        names = each.ranks[0].names
        names.metas[0] = names.metas[0]._replace(call_site=place)
    text = " ".join(sentences(call_details(compare(*runs), 0, 0)))
    assert "It was called from train.py:7 in a and from train.py:9 in b." in text
    text = " ".join(sentences(call_details(compare(runs[0], runs[0]), 0, 0)))
    assert "It was called from train.py:7." in text
    assert "called from" not in said("match")


def test_calls_matched_by_alignment_say_so_and_others_do_not():
    calls = [mm("x", "h"), op(["h"], ["o"])]
    cmp = compare(run([*calls, mm("q", "r", "more")]), run(calls))
    assert "matched by alignment" in " ".join(sentences(call_details(cmp, 0, 0)))
    assert "matched by" not in " ".join(sentences(call_details(cmp, 0, 2)))  # only run a makes it
    assert "matched by" not in said("match")


def test_calls_matched_by_names_that_were_given_say_so():
    runs = [run([op(name=name)]) for name in ("old.op", "new.op")]
    cmp = compare(*runs, pairs={"ops": {"new.op": "old.op"}})
    assert "matched by names that you gave" in " ".join(sentences(call_details(cmp, 0, 0)))


# Communicators


def test_each_member_says_what_it_gave_and_what_became_of_it():
    members = story("receiver from a member").members
    assert [(each.rank, each.gives, each.verdict) for each in members.listed] == [
        (0, "equal", "receiver"), (1, "differs", "receiver"), (2, "equal", "receiver"),
    ]  # fmt: skip
    assert members.because == (1,)


def test_a_member_without_evidence_of_its_input_is_unknown_and_not_equal():
    ranks = {rank: [collective(ALL_REDUCE, [None] if rank else ["a"], "s")] for rank in (0, 1)}
    cmp = compare(*[make_run(ranks, groups={"dp": [0, 1]})] * 2)
    details = call_details(cmp, 0, 0)
    assert [each.gives for each in details.members.listed] == ["equal", "unknown"]
    assert "Whether what rank 1 gave is equal is not known." in " ".join(sentences(details))


def test_a_call_that_does_not_communicate_has_no_members():
    assert story("origin").members is None
    assert story("match of a barrier").members is None


def test_a_message_has_its_sender_and_receiver_as_members():
    send = Call("c10d.send.default", inputs=["m"], kind=Kind.COLLECTIVE, attributes={"dst": "1", "tag": "0"})
    recv = Call(
        "c10d.recv_.default", outputs=["m"], kind=Kind.COLLECTIVE, attributes={"src": "0", "tag": "0"}
    )
    cmp = compare(*[make_run({0: [send], 1: [recv]})] * 2)
    assert [each.rank for each in call_details(cmp, 1, 0).members.listed] == [0, 1]


# Where a call is asked for


def test_a_call_is_found_by_rank_and_site():
    cmp = compare(*(make_run({7: [mm("x", "h"), op(["h"], [word])]}) for word in "oO"))
    details = cmp.call(rank=7, site=site("moe", INDEX_ADD))
    assert (details.number, details.call.position, details.call.verdict) == (0, 1, "origin")


@pytest.mark.parametrize(
    ("rank", "text", "finding"),
    [
        (5, site("moe", INDEX_ADD), "rank 5 was not compared"),
        (0, site("moe", MM), "makes no call"),
        (0, "moe", "is not a site"),
        (0, site("moe", INDEX_ADD, step=2), "which was not compared"),
    ],
)
def test_a_call_that_is_not_there_is_refused_with_a_hint(rank, text, finding):
    calls = [op(), OTHER]
    runs = make_run({0: [*calls, op(step=2)]}), make_run({0: calls})
    with pytest.raises(InputError, match=finding) as refused:
        compare(*runs).call(rank=rank, site=text)
    assert refused.value.hint


@pytest.mark.parametrize(("number", "position"), [(1, 0), (-1, 0), (0, 2), (0, -1)])
def test_a_position_that_is_not_there_is_refused(number, position):
    cmp = compare(*[run([op()])] * 2)
    with pytest.raises(InputError, match=r"there is no rank number|no call at position"):
        call_details(cmp, number, position)


def test_a_comparison_that_was_saved_and_opened_says_the_same(tmp_path):
    runs = [save_run(run([mm("x", "h"), op(["h"], [word])]), tmp_path / word) for word in "oP"]
    cmp = compare(*runs)
    again = load_comparison(cmp.save(tmp_path / "saved.npz"))
    for position in range(3):
        assert repr(call_details(again, 0, position)) == repr(call_details(cmp, 0, position))

"""What is said about one compared call: each sentence where it is true, and not where it is not."""

import json

import pytest

from detlab.comparison.call import call_details
from detlab.comparison.call.words import (
    FLAGS,
    sentences,
)
from detlab.schema import Flag
from tests.comparison.call_stories import STORIES, one, op, story

EQUAL = {
    "match", "match screen", "match weak", "match partial", "configuration of a match",
}  # fmt: skip
WITHOUT_MEMBER = {"unknown where a member was not recorded", "unknown where a member lacks the call"}
SIDES = {
    "its inputs have no digest": {"match without inputs", "changed without inputs"},
    "not all inputs have a digest": {"unknown without inputs"},
    "its outputs have no digest": {"match without outputs"},
    "run b has no evidence of its outputs": {"match with outputs in one run"},
    "only shapes and dtypes were recorded": {"match of shapes"},
    "digests of different kinds (xxh3-64 and crc32) cannot be compared": {"unknown other digest"},
    "statistics differ, which float reductions can do": {"unknown statistic"},
    "It takes no tensor or number": {
        "match of a barrier", "receiver of a state", "origin of a state", "origin without inputs",
        "aside fresh_memory",
    },
    "It gives no tensor or number": {"match of a barrier"},
    "Its inputs match (screen: ": {
        "match screen", "match weak", "origin screen", "origin weak", "unknown weak contradiction",
    },
    "and some of these are weak": {"match weak", "origin weak"},
    "Weak inputs: input 0 holds integers": {"match weak", "origin weak"},
    "Its inputs match (partial: ": {"match partial"},
    "Its inputs match (statistic: ": {"unknown statistic"},
    "Its inputs match (printed: ": {"unknown printed"},
    "Its recorded inputs match": {"unknown open", "unknown open to a number"},
    "Its inputs differ (1 of 1)": {"match of a buffer", "changed"},
    "Its inputs differ (1 of 12)": {"origin of a lane"},
    "Its outputs differ (1 of 2)": {"origin of a piece", "changed", "changed without inputs"},
}  # fmt: skip
MEANS = {
    "The same inputs gave the same outputs, as far as the evidence goes.": EQUAL,
    "What this rank gave and what it got match": {"match of what a broadcast gave"},
    "Its outputs match; of its inputs nothing is known.": {"match without inputs"},
    "Nothing is known of what it gave, so that it is not counted as identical.": {
        "match without outputs", "match with outputs in one run", "match of shapes", "match of a barrier",
    },
    "It matches by what the members gave": {"match of a buffer"},
    "in another order, and they share nothing": {"match exchanged"},
    "it passes no difference on, a divergence all the same": {"absorbed"},
    "Its inputs differ already: it received a difference, and is untested, not exonerated.": {
        "receiver", "receiver of a number", "receiver of a state of a generator",
    },
    "It received a difference from rank 1: untested, not exonerated.": {"receiver from a member"},
    "It received a difference: untested, not exonerated.": {
        "receiver of a state", "receiver in a large group",
    },
    "the same bits in gave other bits out": {"origin"},
    "as far as the digests see: its inputs match (screen)": {"origin screen"},
    "First visible here": {"origin weak"},
    "in lane 4 the same inputs gave other outputs": {"origin of a lane"},
    "the order is the cause": {"origin by order"},
    "a random op gives other numbers": {"origin random"},
    "the call takes no tensors, so what it gives comes from outside": {"origin without inputs"},
    "The difference begins here: state that was carried into this step differs": {"origin of a state"},
    "algorithm, topology or order of the reduction": {"origin of a sum"},
    "it received a piece that its giver did not send": {"origin of a piece"},
    "what it depends on is equal on every member": {"origin in a large group"},
    "Only run a makes this call": {"only a"},
    "Only run b makes this call": {"only b"},
    "of another shape, dtype or number, and its inputs differ": {"changed"},
    "of another shape, dtype or number, and its inputs are not known to be equal": {
        "changed without inputs"
    },
    "Counted on request": {"configuration"},
    "its output differs and its inputs were not recorded": {"unknown without inputs"},
    "digests of different kinds, which say nothing together": {"unknown other digest"},
    "so that their difference proves nothing": {"unknown statistic"},
    "only in what was recorded of them (printed)": {"unknown printed"},
    "a view gives the bytes of its input, so its input was written": {"unknown view"},
    "but an input tensor of the call was not recorded": {"unknown open"},
    "but its scalar arguments were not recorded": {"unknown open to a number"},
    "the hardware of this rank": {"unknown contradiction"},
    "the digest of an input missed a difference": {"unknown weak contradiction"},
    "several calls of the other run fit": {"unknown ambiguous"},
    "what a collective gives that nobody had waited for": {"unknown in flight"},
    "perhaps padding; whether it uses them was not recorded": {"unknown padding"},
    "whether in the slice that this rank receives was not recorded": {"unknown slices"},
    "a contributor's call was not recorded": {
        *WITHOUT_MEMBER
    },
    "Set aside, and not counted (": {name for name in STORIES if name.startswith("aside")},
    "By its own record alone it is: only_b.": {"aside structure_note"},
}  # fmt: skip
BESIDE = {
    "Its output depends on the source; 3 members": {"match of a buffer", "match of what a broadcast gave"},
    "Its output depends on every member; 3 members": {
        "receiver from a member", "origin of a sum", *WITHOUT_MEMBER,
    },
    "Its output depends on every member; 20 members": {
        "receiver in a large group", "origin in a large group",
    },
    "4 more members were not asked": {"receiver in a large group", "origin in a large group"},
    "Its output depends on every member, piece by piece; 2 members": {"origin of a piece"},
    "Its output depends on a slice of every member; 3 members": {"unknown slices"},
    "the members of its communicator are not known": {"aside not_waited_for"},
    "What rank 0 gave differs between the runs": {"match of what a broadcast gave"},
    "What rank 1 gave differs between the runs": {"receiver from a member", "unknown slices"},
    "The call was not found on rank 2": {"unknown where a member was not recorded"},
    "Only run a makes the call on rank 2": {"unknown where a member lacks the call"},
    "Of its 6 lanes, which are judged one by one, lanes 1, 4 differ": {"origin of a lane"},
    "The runs chose differently: config is small in a and large in b": {
        "configuration", "configuration of a match",
    },
    "Finding 0 (kernel) names this site": {
        "origin", "origin screen", "origin weak", "origin of a lane",
    },
    "Finding 0 (collective) names this site": {
        "origin of a sum", "origin of a piece", "origin in a large group",
    },
    "It draws from a random generator": {"receiver of a state of a generator", "origin random"},
}  # fmt: skip


def said(name):
    return " ".join(sentences(story(name)))


@pytest.mark.parametrize("fragment", [*MEANS, *SIDES, *BESIDE])
def test_it_is_said_just_where_it_is_true(fragment):
    true_of = (MEANS | SIDES | BESIDE)[fragment]
    assert {name for name in STORIES if fragment in said(name)} == true_of


@pytest.mark.parametrize("name", STORIES)
def test_each_call_has_one_meaning_and_it_comes_first(name):
    found = [fragment for fragment in MEANS if fragment in sentences(story(name))[0]]
    assert len(found) == (2 if name == "aside structure_note" else 1)
    assert not any(fragment in " ".join(sentences(story(name))[1:]) for fragment in MEANS)


@pytest.mark.parametrize("name", STORIES)
def test_text_and_json_say_the_same_sentences(name):
    details = story(name)
    flat = " ".join(repr(details).split())
    assert all(" ".join(sentence.split()) in flat for sentence in sentences(details))
    assert json.loads(json.dumps(details.to_json(), allow_nan=False))["says"] == list(sentences(details))


@pytest.mark.parametrize("name", STORIES)
def test_the_text_form_is_one_screen(name):
    lines = repr(story(name)).split("\n")
    assert len(lines) <= 40
    assert all(len(line) <= 100 for line in lines if not line.startswith("  next:"))


def test_a_set_aside_call_says_why_and_how_to_count_it():
    for kind in ("pointers", "copy_in_flight", "not_waited_for", "structure_note", "fresh_memory", "padding"):
        details = story(f"aside {kind}")
        assert [name for name, _ in details.set_aside] == [kind]
        assert details.next.endswith(f'count="{kind}")')


def test_a_call_that_counts_says_no_reason_to_set_it_aside():
    assert all(not story(name).set_aside for name in STORIES if not name.startswith("aside"))


# Flags


@pytest.mark.parametrize("name", [name for name in FLAGS if name != "weak_input"])
def test_a_flag_is_put_into_words_and_no_other_flag(name):
    call = op(flags=Flag[name.upper()])
    text = " ".join(sentences(call_details(*one(call, call)))).lower()
    assert [each for each in FLAGS if FLAGS[each].lower() in text] == [name]


def test_a_flag_of_one_run_says_which():
    text = " ".join(sentences(call_details(*one(op(flags=Flag.NAN), op()))))
    assert "NaN are among its tensors (in run a)." in text


@pytest.mark.parametrize("name", sorted(WITHOUT_MEMBER))
def test_where_a_contributor_is_missing_a_longer_window_is_no_advice(name):
    assert story(name).next.startswith("compare the ranks that contribute too")
